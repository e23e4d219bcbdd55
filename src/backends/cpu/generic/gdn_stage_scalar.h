/* SPDX-License-Identifier: MIT
 * The words of the chunk stages in portable C (gdn_stage_vectors.inc says what they mean). */
#ifndef QUERN_GDN_STAGE_SCALAR_GENERIC_H
#define QUERN_GDN_STAGE_SCALAR_GENERIC_H

#include <math.h>

#include "backends/cpu/gdn_stage.h"

struct stage_matrix {
    const float *data;
    int64_t row, column;
};

static inline void stage_product(float *out, int64_t width, struct stage_matrix a, int64_t n_rows,
                                 int64_t m, const float *b, int64_t b_width, int64_t n_columns,
                                 bool add)
{
    for (int64_t r = 0; r < n_rows; r++) {
        float *row = out + r * width;
        for (int64_t c = 0; c < n_columns && !add; c++) row[c] = 0.0f;
        for (int64_t i = 0; i < m; i++)
            for (int64_t c = 0; c < n_columns; c++)
                row[c] += a.data[r * a.row + i * a.column] * b[i * b_width + c];
    }
}

static inline void stage_turn(float *out, int64_t width, const float *in, int64_t in_width,
                              int64_t n_rows, int64_t n_columns)
{
    for (int64_t c = 0; c < n_columns; c++)
        for (int64_t r = 0; r < n_rows; r++) out[c * width + r] = in[r * in_width + c];
}

static inline void stage_decays(float *out, double G, const double *from)
{
    for (int j = 0; j < STAGE_CHUNK; j++) out[j] = expf((float)(G - from[j]));
}

static inline void stage_exp(float *out, const double *G)
{
    for (int j = 0; j < STAGE_CHUNK; j++) out[j] = expf((float)G[j]);
}

#endif
