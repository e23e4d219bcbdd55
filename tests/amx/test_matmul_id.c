/* SPDX-License-Identifier: MIT
 * tests/ops/test_matmul_id.c with the kernels of AMX, on emulated tiles. */
#include "ops/test_matmul_id.c"
