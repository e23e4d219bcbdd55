/* SPDX-License-Identifier: MIT
 * matmul and matmul_id in portable C, weights in rows: a weight row is decoded once, then meets its
 * rows of x one by one. */
#include "backends/cpu/matmul_forms.h"
#include "backends/cpu/matmul_job.h"

/* 32 weights: d * s * level + m * t; s and t of each half. */
struct weights {
    float d, m;
    int16_t s[2], t[2];
    int16_t level[32];
};

/* Columns of bf16 products: in whole blocks. */
static int64_t padded_k(const struct matmul_job *j)
{
    return (j->k + 31) / 32 * 32;
}

static size_t acts_bytes(const struct matmul_job *j)
{
    size_t n = 0;
    if (j->q8 && !j->acts) n = (size_t)(j->n_x * matmul_act_blocks(j)) * sizeof(struct qrn_q8_act);
    if (j->bf16) n = (size_t)(j->n_x * padded_k(j)) * sizeof(float);
    return (n + 63) / 64 * 64;
}

static size_t row_bytes(const struct matmul_job *j)
{
    const size_t n =
        j->q8 ? (size_t)(j->k / 32) * sizeof(struct weights) : (size_t)padded_k(j) * sizeof(float);
    return (n + 63) / 64 * 64;
}

static size_t scratch(const struct matmul_job *j, int n_threads)
{
    return matmul_slots_bytes(j) + acts_bytes(j) + row_bytes(j) * (size_t)n_threads;
}

static void take(const struct matmul_form *f, const struct qrn_weight_row *row, int64_t i,
                 struct weights *out)
{
    struct matmul_block b;
    qrn_matmul_take(row, i, &b);
    out->d = matmul_head_value(f->head, b.d);
    out->m = matmul_has_min(f) ? matmul_head_value(f->head, b.m) : 0.0f;
    out->s[0] = out->s[1] = out->t[0] = out->t[1] = 1;
    const bool halves = matmul_has_halves(f);
    const bool min = f->sub == SUB_SCALE_MIN || f->sub == SUB_HALVES_MIN;
    for (int h = 0; h < 2 && f->sub != SUB_NONE; h++) {
        const uint8_t bits = b.s[halves ? h : 0];
        out->s[h] = min ? bits : (int8_t)bits;
        if (min) out->t[h] = b.t[halves ? h : 0];
    }
    if (min) out->m = -out->m;
    for (int n = 0; n < 32; n++) out->level[n] = (int16_t)matmul_level(f, b.codes[n]);
}

/* As matmul_drive.h says, but for a product and a sum in place of each fma; n_head: blocks of 32 that
 * share d and m, of which x's 128 hold four at most. */
static float dot_q8(const struct weights *w, const struct qrn_q8_act *x, int64_t n_blocks,
                    int64_t n_head)
{
    const int64_t run = n_head < 4 ? n_head : 4;
    float acc = 0.0f, p = 0.0f;
    for (int64_t b = 0; b < n_blocks; b += run) {
        int32_t isum = 0, tsum = 0;
        for (int64_t i = 2 * b; i < 2 * (b + run); i++) {
            const struct weights *half = w + i / 2;
            int32_t dot = 0;
            for (int n = 0; n < 16; n++) dot += half->level[i % 2 * 16 + n] * x->q[i % 8 * 16 + n];
            isum += half->s[i % 2] * dot;
            tsum += half->t[i % 2] * x->sum[i % 8];
        }
        p += (float)isum * w[b].d;
        p += (float)tsum * w[b].m;
        if ((b + run) % 4 && b + run < n_blocks) continue;
        acc += p * x->d;
        p = 0.0f;
        x++;
    }
    return acc;
}

static float dot_f32(const float *w, const float *x, int64_t k)
{
    float acc = 0.0f;
    for (int64_t i = 0; i < k; i++) acc += w[i] * x[i];
    return acc;
}

/* Row i of x to bf16, as floats, with zeros up to whole blocks. */
static void round_bf16(const struct matmul_job *j, int64_t i, float *out)
{
    const int64_t at = qrn_row_at(j->x, i);
    for (int64_t k = 0; k < padded_k(j); k++) {
        uint16_t h = 0;
        if (k < j->k)
            h = j->x->dtype == QRN_BF16 ? ((const uint16_t *)j->x->data)[at + k]
                                        : qrn_float_to_bf16(((const float *)j->x->data)[at + k]);
        out[k] = qrn_bf16_to_float(h);
    }
}

/* The order of AMX, as in matmul_bf16.h. */
static float dot_bf16(const float *w, const float *x, int64_t n_blocks)
{
    float acc = 0.0f;
    for (int64_t b = 0; b < n_blocks; b++) {
        float even = 0.0f, odd = 0.0f;
        for (int i = 0; i < 16; i++, w += 2, x += 2) {
            even = fmaf(w[0], x[0], even);
            odd = fmaf(w[1], x[1], odd);
        }
        acc += even + odd;
    }
    return acc;
}

/* One weight row, decoded, with one row of x. */
static float dot(const struct matmul_job *j, const void *w, int64_t n_head, const void *acts,
                 struct matmul_row row)
{
    if (j->q8) {
        const struct qrn_q8_act *x =
            j->acts ? row.x : (const struct qrn_q8_act *)acts + row.i_x * matmul_act_blocks(j);
        return dot_q8(w, x, j->k / 32, n_head);
    }
    if (j->bf16) return dot_bf16(w, (const float *)acts + row.i_x * padded_k(j), padded_k(j) / 32);
    return dot_f32(w, row.x, j->k);
}

static void run(const struct qrn_cpu_lane *lane, struct matmul_job *j)
{
    char *at = lane->scratch;
    j->first = (int32_t *)(void *)at;
    j->slots = j->ids ? j->first + j->n_matrices + 1 : NULL;
    void *const acts = at += matmul_slots_bytes(j);
    void *decoded = at + acts_bytes(j) + row_bytes(j) * (size_t)lane->i;
    const struct matmul_form *form = qrn_matmul_form(j->w->dtype);
    const int64_t n_blocks = j->k / 32;
    int64_t begin, end;
    if (j->ids && lane->i == 0) matmul_sort_slots(j);
    const bool round_q8 = j->q8 && !j->acts;
    const int64_t n_acts = matmul_act_blocks(j);
    qrn_cpu_share(lane, j->n_x * n_acts, 1, &begin, &end);
    for (int64_t b = begin; b < end && round_q8; b++) {
        const int64_t k0 = b % n_acts * QRN_Q8_ACT_BLOCK, left = j->k - k0;
        qrn_q8_act_block(qrn_row_f32(j->x, b / n_acts) + k0,
                         (int)(left < QRN_Q8_ACT_BLOCK ? left : QRN_Q8_ACT_BLOCK),
                         (struct qrn_q8_act *)acts + b);
    }
    qrn_cpu_share(lane, j->n_x, 1, &begin, &end);
    for (int64_t r = begin; r < end && j->bf16; r++)
        round_bf16(j, r, (float *)acts + r * padded_k(j));
    if (j->ids || round_q8 || j->bf16) qrn_cpu_lane_wait(lane);
    qrn_cpu_share(lane, j->n, 1, &begin, &end);
    for (int64_t i = 0; i < j->n_matrices; i++) {
        const int64_t n_rows = matmul_n_rows(j, i);
        for (int64_t n = begin; n < end && n_rows; n++) {
            const struct qrn_weight_row w = matmul_weight_row(j, i, n);
            const int64_t n_head = j->q8 && form->blocks ? form->blocks : w.group / 32;
            if (j->q8)
                for (int64_t b = 0; b < n_blocks; b++)
                    take(form, &w, b, (struct weights *)decoded + b);
            else if (j->k)
                qrn_weight_decode(&w, 0, j->k, decoded);
            for (int64_t k = j->k; k < padded_k(j) && j->bf16; k++) ((float *)decoded)[k] = 0.0f;
            for (int64_t r = 0; r < n_rows; r++) {
                const struct matmul_row row = matmul_row_at(j, i, r);
                row.out[n] = dot(j, decoded, n_head, acts, row);
            }
        }
    }
}

static size_t matmul_scratch(const void *args, int n_threads)
{
    const struct matmul_job j = matmul_job(args);
    return scratch(&j, n_threads);
}

static size_t matmul_id_scratch(const void *args, int n_threads)
{
    const struct matmul_job j = matmul_id_job(args);
    return scratch(&j, n_threads);
}

static void matmul_run(void *lane, const void *args)
{
    struct matmul_job j = matmul_job(args);
    run(lane, &j);
}

static void matmul_id_run(void *lane, const void *args)
{
    struct matmul_job j = matmul_id_job(args);
    run(lane, &j);
}

static bool matmul_supports(const void *args)
{
    return ((const struct qrn_matmul_args *)args)->layout == QRN_LAYOUT_ROWS;
}

static bool matmul_id_supports(const void *args)
{
    return ((const struct qrn_matmul_id_args *)args)->layout == QRN_LAYOUT_ROWS;
}

const struct qrn_kernel qrn_cpu_matmul_generic = {
    .op = QRN_OP_matmul,
    .name = "cpu.matmul.generic",
    .serves = "weights in rows, any activations",
    .supports = matmul_supports,
    .scratch_bytes = matmul_scratch,
    .run = matmul_run,
};

const struct qrn_kernel qrn_cpu_matmul_id_generic = {
    .op = QRN_OP_matmul_id,
    .name = "cpu.matmul_id.generic",
    .serves = "weights in rows, any activations",
    .supports = matmul_id_supports,
    .scratch_bytes = matmul_id_scratch,
    .run = matmul_id_run,
};
