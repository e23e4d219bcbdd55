/* SPDX-License-Identifier: MIT
 * What the attention ops share: checks of numbers, and one row in float64. */
#ifndef QUERN_OPS_ATTENTION_ROW_H
#define QUERN_OPS_ATTENTION_ROW_H

#include "core/op.h"

/* The grid that all attention kernels walk: blocks of keys from key 0 on, and the tiles of classes.
 */
enum { ATTENTION_BLOCK = 64, ATTENTION_TILE_Q = 32, ATTENTION_TILE_K = ATTENTION_BLOCK };

/* A mask value from here down masks. */
#define ATTENTION_MASKED (-1e30f)

static inline int64_t attention_n_tiles(int64_t n, int64_t tile)
{
    return n / tile + (n % tile != 0);
}

/* A view of 4 dimensions, with a batch of 1 in front where there is none. */
static inline struct qrn_tensor attention_batched(struct qrn_tensor t)
{
    if (t.n_dims != 3) return t;
    const struct qrn_tensor flat = t;
    t.n_dims = 4;
    t.shape[0] = 1;
    t.stride[0] = 0;
    for (int i = 0; i < 3; i++) {
        t.shape[i + 1] = flat.shape[i];
        t.stride[i + 1] = flat.stride[i];
    }
    return t;
}

enum qrn_status qrn_attention_check_heads(const char *op, int64_t n_heads, int64_t n_kv_heads,
                                          struct qrn_error *err);
enum qrn_status qrn_attention_check_numbers(const char *op, float scale, float softcap,
                                            int64_t window, struct qrn_error *err);
/* QRN_ACT_F32 or QRN_ACT_BF16. */
enum qrn_status qrn_attention_check_acts(const char *op, enum qrn_activation_type acts,
                                         struct qrn_error *err);
/* |q_offset| within 2^40: positions never overflow. */
enum qrn_status qrn_attention_check_offset(const char *op, int64_t q_offset, struct qrn_error *err);

/* Keys begin .. end - 1 that the query at position p attends to. */
void qrn_attention_range(int64_t p, bool causal, int64_t window, int64_t n_kv, int64_t *begin,
                         int64_t *end);

/* One query of one head; mask is NULL or gives the value to add. */
struct attention_row {
    const void *user;
    double (*query)(const void *user, int64_t d);
    double (*key)(const void *user, int64_t j, int64_t d);
    double (*value)(const void *user, int64_t j, int64_t d);
    double (*mask)(const void *user, int64_t j);
    void (*set_out)(const void *user, int64_t d, double x);
    int64_t d_k, d_v, begin, end;
    double scale, softcap;
};
void qrn_attention_row(const struct attention_row *row);

#endif
