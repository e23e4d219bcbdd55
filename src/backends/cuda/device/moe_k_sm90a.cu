/* SPDX-License-Identifier: MIT
 * Joints of experts on Hopper: types with scales for each 256 weights. */
#include "backends/cuda/device/moe_down.cuh"
#include "backends/cuda/device/moe_gates.cuh"

QRN_MOE_GATES(Q2_K, 2)
QRN_MOE_DOWN(Q2_K)
QRN_MOE_GATES(Q3_K, 2)
QRN_MOE_DOWN(Q3_K)
QRN_MOE_GATES(Q4_K, 2)
QRN_MOE_DOWN(Q4_K)
QRN_MOE_GATES(Q5_K, 2)
QRN_MOE_DOWN(Q5_K)
QRN_MOE_GATES(Q6_K, 2)
QRN_MOE_DOWN(Q6_K)
QRN_MOE_GATES(IQ4_XS, 2)
QRN_MOE_DOWN(IQ4_XS)
QRN_MOE_GATES(TQ1_0, 2)
QRN_MOE_DOWN(TQ1_0)
QRN_MOE_GATES(TQ2_0, 2)
QRN_MOE_DOWN(TQ2_0)
