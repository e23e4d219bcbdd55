/* SPDX-License-Identifier: MIT
 * A driver of the right version that lacks nearly all of it. */
#include <cuda.h>

__attribute__((visibility("default"))) CUresult cuDriverGetVersion(int *out)
{
    *out = 13000;
    return CUDA_SUCCESS;
}

__attribute__((visibility("default"))) CUresult cuInit(unsigned flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
