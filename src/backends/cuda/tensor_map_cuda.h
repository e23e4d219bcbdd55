/* SPDX-License-Identifier: MIT
 * A map of a tensor for bulk copies, as the driver encodes it; among a function's params. */
#ifndef QUERN_BACKENDS_CUDA_TENSOR_MAP_CUDA_H
#define QUERN_BACKENDS_CUDA_TENSOR_MAP_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* Maps of anywhere: an address is QRN_MAP_STEP times a number, and that of its 2^QRN_MAP_NEAR_BITS bytes,
 * from the second on; addresses have QRN_MAP_BITS. */
enum { QRN_MAP_STEP = 64, QRN_MAP_NEAR_BITS = 27, QRN_MAP_BITS = 48 };

#ifdef __cplusplus
struct alignas(128) qrn_tensor_map {
    uint64_t opaque[16];
};
#else
struct qrn_tensor_map {
    _Alignas(128) uint64_t opaque[16];
};
#endif

QRN_PARAMS_END

#endif
