/* SPDX-License-Identifier: MIT
 * Ragged batches as device code sees them. */
#ifndef QUERN_BACKENDS_CUDA_RAGGED_CUDA_H
#define QUERN_BACKENDS_CUDA_RAGGED_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

struct qrn_ragged {
    const int32_t *seq_begin; /* NULL: one sequence */
    int64_t n_seqs, n_tokens; /* n_tokens of them all */
};

QRN_PARAMS_END

#endif
