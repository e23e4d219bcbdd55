/* SPDX-License-Identifier: MIT
 * One row out of a packed matrix: for embeddings that share their weights with the head. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_IMAGE_ROW_H
#define QUERN_BACKENDS_CPU_MATMUL_IMAGE_ROW_H

#include "backends/cpu/matmul_image.h"

/* Row n of w [N, K], a whole image, exactly as the type decodes; mlx_group as in image_bytes. */
void qrn_image_read_row(const struct qrn_tensor *w, int64_t mlx_group, int64_t n, float *out);

#endif
