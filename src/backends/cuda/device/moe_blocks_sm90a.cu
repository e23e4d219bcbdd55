/* SPDX-License-Identifier: MIT
 * Joints of experts on Hopper: types with a scale for each 32 weights. */
#include "backends/cuda/device/moe_down.cuh"
#include "backends/cuda/device/moe_gates.cuh"

QRN_MOE_GATES(Q4_0, 2)
QRN_MOE_DOWN(Q4_0)
QRN_MOE_GATES(Q4_1, 2)
QRN_MOE_DOWN(Q4_1)
QRN_MOE_GATES(Q5_0, 2)
QRN_MOE_DOWN(Q5_0)
QRN_MOE_GATES(Q5_1, 1)
QRN_MOE_DOWN(Q5_1)
QRN_MOE_GATES(Q8_0, 1)
QRN_MOE_DOWN(Q8_0)
QRN_MOE_GATES(IQ4_NL, 2)
QRN_MOE_DOWN(IQ4_NL)
QRN_MOE_GATES(MXFP4, 2)
QRN_MOE_DOWN(MXFP4)
