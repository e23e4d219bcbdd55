/* SPDX-License-Identifier: MIT
 * What matmul and matmul_id are to a kernel: weight matrices, each with the rows of x it meets. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_JOB_H
#define QUERN_BACKENDS_CPU_MATMUL_JOB_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"
#include "ops/matmul_common.h"

struct matmul_job {
    const struct qrn_tensor *w, *scales, *biases, *x, *out;
    bool packed, q8; /* q8: activations are rounded, and the type has an integer form */
    bool acts;       /* x holds them rounded */
    bool bf16;       /* weights are, and activations are rounded to it */
    bool streams;    /* as the processor has them (QRN_CPU_STREAMS); known where it runs */
    bool deep;       /* QRN_CPU_DEEP_STREAMS, likewise */
    bool near;       /* as of struct qrn_cpu_lane */
    int64_t n, k;
    int64_t n_matrices;
    int64_t n_x;               /* rows of x in all, numbered as its leading dimensions flatten */
    int64_t most_rows;         /* no matrix meets more */
    int64_t m, m2, w2, r2, r3; /* matmul: rows, batches of x, matrices along dimension -3, ratios */
    const int32_t *ids;        /* matmul_id: [n_tokens, top_k], rows ids_stride apart; else NULL */
    int64_t ids_stride, n_tokens, top_k, x_per_token;
    /* matmul_id: the slots of matrix e are slots[first[e]] .. slots[first[e + 1] - 1]; a slot is
     * token * top_k + rank. */
    int32_t *first, *slots;
};

static inline int64_t matmul_dim(const struct qrn_tensor *t, int from_last)
{
    return from_last < t->n_dims ? t->shape[t->n_dims - 1 - from_last] : 1;
}

static inline struct matmul_job matmul_job(const struct qrn_matmul_args *a)
{
    const int64_t w2 = matmul_dim(&a->w, 2), w3 = matmul_dim(&a->w, 3);
    const int64_t m = matmul_dim(&a->x, 1), m2 = matmul_dim(&a->x, 2), m3 = matmul_dim(&a->x, 3);
    struct matmul_job j = {
        .w = &a->w,
        .scales = &a->scales,
        .biases = &a->biases,
        .x = &a->x,
        .out = &a->out,
        .packed = a->layout == QRN_LAYOUT_PACKED,
        .q8 = a->activation == QRN_ACT_Q8 && qrn_has_integer_form(a->w.dtype),
        .acts = a->x.dtype == QRN_Q8_ACT,
        .bf16 = qrn_acts_bf16(a->activation, a->w.dtype),
        .n = matmul_dim(&a->w, 1),
        .k = matmul_dim(&a->w, 0),
        .n_matrices = w2 * w3,
        .n_x = m * m2 * m3,
        .m = m,
        .m2 = m2,
        .w2 = w2,
        .r2 = w2 ? m2 / w2 : 0,
        .r3 = w3 ? m3 / w3 : 0,
    };
    j.most_rows = j.m * j.r2 * j.r3;
    return j;
}

static inline struct matmul_job matmul_id_job(const struct qrn_matmul_id_args *a)
{
    return (struct matmul_job){
        .w = &a->w,
        .scales = &a->scales,
        .biases = &a->biases,
        .x = &a->x,
        .out = &a->out,
        .packed = a->layout == QRN_LAYOUT_PACKED,
        .q8 = a->activation == QRN_ACT_Q8 && qrn_has_integer_form(a->w.dtype),
        .acts = a->x.dtype == QRN_Q8_ACT,
        .bf16 = qrn_acts_bf16(a->activation, a->w.dtype),
        .n = a->w.shape[1],
        .k = a->w.shape[2],
        .n_matrices = a->w.shape[0],
        .n_x = a->x.shape[0] * a->x.shape[1],
        .most_rows = qrn_tensor_n_elements(&a->ids),
        .ids = a->ids.data,
        .ids_stride = a->ids.stride[0],
        .n_tokens = a->ids.shape[0],
        .top_k = a->ids.shape[1],
        .x_per_token = a->x.shape[1],
    };
}

/* Blocks of rounded activations in a row of x. */
static inline int64_t matmul_act_blocks(const struct matmul_job *j)
{
    return (j->k + QRN_Q8_ACT_BLOCK - 1) / QRN_Q8_ACT_BLOCK;
}

/* Memory for first and slots. */
static inline size_t matmul_slots_bytes(const struct matmul_job *j)
{
    if (!j->ids) return 0;
    const size_t n = (size_t)j->n_matrices + 1 + (size_t)(j->n_tokens * j->top_k);
    return (n * sizeof(int32_t) + 63) / 64 * 64;
}

/* Sorts the slots by matrix; within one they ascend.  One lane does it. */
static inline void matmul_sort_slots(struct matmul_job *j)
{
    for (int64_t e = 0; e <= j->n_matrices; e++) j->first[e] = 0;
    for (int64_t t = 0; t < j->n_tokens; t++)
        for (int64_t r = 0; r < j->top_k; r++) j->first[j->ids[t * j->ids_stride + r] + 1]++;
    for (int64_t e = 0; e < j->n_matrices; e++) j->first[e + 1] += j->first[e];
    for (int64_t t = 0; t < j->n_tokens; t++)
        for (int64_t r = 0; r < j->top_k; r++)
            j->slots[j->first[j->ids[t * j->ids_stride + r]]++] = (int32_t)(t * j->top_k + r);
    for (int64_t e = j->n_matrices; e > 0; e--) j->first[e] = j->first[e - 1];
    j->first[0] = 0;
}

/* Rows of x that matrix i meets. */
static inline int64_t matmul_n_rows(const struct matmul_job *j, int64_t i)
{
    return j->ids ? j->first[i + 1] - j->first[i] : j->most_rows;
}

struct matmul_row {
    int64_t i_x;   /* among all rows of x */
    const void *x; /* of x as it is given: floats, bf16 or struct qrn_q8_act */
    float *out;
};

/* Row r of those that matrix i meets. */
static inline struct matmul_row matmul_row_at(const struct matmul_job *j, int64_t i, int64_t r)
{
    int64_t i_x, i_out;
    if (j->ids) {
        i_out = j->slots[j->first[i] + r];
        i_x = j->x_per_token == j->top_k ? i_out : i_out / j->top_k;
    } else if (j->n_matrices == 1) {
        i_x = i_out = r;
    } else {
        const int64_t batch = r / j->m, i2 = i % j->w2 * j->r2 + batch % j->r2;
        const int64_t i3 = i / j->w2 * j->r3 + batch / j->r2;
        i_x = i_out = (i3 * j->m2 + i2) * j->m + r % j->m;
    }
    const char *x = (const char *)j->x->data + qrn_block_offset(j->x->dtype, qrn_row_at(j->x, i_x));
    return (struct matmul_row){i_x, x, qrn_row_f32(j->out, i_out)};
}

/* Row n of matrix i, of a job whose weights are not packed. */
static inline struct qrn_weight_row matmul_weight_row(const struct matmul_job *j, int64_t i,
                                                      int64_t n)
{
    const int64_t w2 = j->ids ? j->n_matrices : j->w2;
    return qrn_weight_row(j->w, j->scales, j->biases, i / w2, i % w2, n);
}

#endif
