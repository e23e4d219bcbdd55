/* SPDX-License-Identifier: MIT
 * A map of a tensor for bulk copies, as the driver encodes it; among a function's params. */
#ifndef QUERN_BACKENDS_CUDA_TENSOR_MAP_CUDA_H
#define QUERN_BACKENDS_CUDA_TENSOR_MAP_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
struct alignas(128) qrn_tensor_map {
    uint64_t opaque[16];
};
#else
struct qrn_tensor_map {
    _Alignas(128) uint64_t opaque[16];
};
#endif

#endif
