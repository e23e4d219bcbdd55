/* SPDX-License-Identifier: MIT
 * silu_mul of sums of panels (matmul_panels_avx512.h), with the bits of the op's own kernel. */
#ifndef QUERN_PANEL_SILU_AVX512_H
#define QUERN_PANEL_SILU_AVX512_H

#include <string.h>
#include "backends/cpu/avx512/round_avx512.h"
#include "backends/cpu/matmul_panels_avx512.h"

/* A panel_middle. */
static __attribute__((noinline)) void
panel_silu(const struct panel_job *j, const struct qrn_tensor *middle, int64_t r0, int64_t g)
{
    const int n = j->n_groups / 2;
    for (int r = 0; r < j->n_rows; r++) {
        _Alignas(64) float values[PANEL_GROUPS / 2 * IMAGE_ROWS];
        panel_sums *sums = j->total[r / PANEL_ROWS];
        for (int c = 0; c < n; c++) {
            const __m512 gate = _mm512_load_ps(sums[c][r % PANEL_ROWS]),
                         up = _mm512_load_ps(sums[n + c][r % PANEL_ROWS]);
            _mm512_store_ps(values + c * IMAGE_ROWS, _mm512_mul_ps(silu_ps(gate), up));
        }
        if (middle->dtype == QRN_F32)
            memcpy(qrn_row_f32(middle, r0 + r) + g * IMAGE_ROWS, values,
                   (size_t)n * IMAGE_ROWS * sizeof *values);
        else
            round_out(&rounding_avx512, values, middle, r0 + r, g * IMAGE_ROWS, n * IMAGE_ROWS);
    }
}

#endif
