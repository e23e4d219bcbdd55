/* SPDX-License-Identifier: MIT
 * Weights that formats cut in different ways: the input projections of linear layers, experts. */
#include "model/load_projections.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

static const char *layer_name(struct loader *ld, int64_t i_layer, const char *suffix,
                              char out[LOAD_NAME_BYTES])
{
    const bool gguf = ld->files->format == QRN_FORMAT_GGUF;
    (void)snprintf(out, LOAD_NAME_BYTES, "%s%s%lld.%s", ld->prefix, gguf ? "blk." : "layers.",
                   (long long)i_layer, suffix);
    return out;
}

static struct row_run part(const struct row_run *whole, int64_t first, int64_t n)
{
    struct row_run run = *whole;
    run.first = first;
    run.n = n;
    return run;
}

/* Rows grouped by key head: d_k of q, d_k of k, r d_v of v, r d_v of z (r value heads a key head). */
static enum qrn_status split_qkvz(struct loader *ld, const char *name, struct qrn_linear_weights *l)
{
    const struct qrn_model_config *c = ld->config;
    const int64_t n = c->n_k_heads, v_rows = c->n_v_heads / n * c->d_v,
                  group = 2 * c->d_k + 2 * v_rows;
    const int64_t n_qkv = 2 * n * c->d_k + n * v_rows, n_z = n * v_rows;
    const size_t bytes = (size_t)n * 4 * sizeof(struct row_run);
    struct row_run whole;
    QRN_TRY(qrn_load_run(ld, name, &whole));
    if (whole.n != n * group)
        return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" has %lld rows, wants %lld", name,
                        (long long)whole.n, (long long)(n * group));
    struct row_run *runs = qrn_alloc(ld->allocator, bytes);
    if (!runs) return qrn_fail_memory(ld->err, bytes, "row runs");
    for (int64_t h = 0; h < n; h++) {
        runs[h] = part(&whole, h * group, c->d_k);
        runs[n + h] = part(&whole, h * group + c->d_k, c->d_k);
        runs[2 * n + h] = part(&whole, h * group + 2 * c->d_k, v_rows);
        runs[3 * n + h] = part(&whole, h * group + 2 * c->d_k + v_rows, v_rows);
    }
    enum qrn_status s =
        qrn_load_matrix(ld, runs, (size_t)(3 * n), 0, n_qkv, c->d_model, BIG, &l->qkv);
    if (s == QRN_OK)
        s = qrn_load_matrix(ld, runs + 3 * n, (size_t)n, 0, n_z, c->d_model, BIG, &l->z);
    qrn_free(ld->allocator, runs, bytes);
    return s;
}

/* Rows grouped by key head: r of b, r of a. */
static enum qrn_status split_ba(struct loader *ld, const char *name, struct qrn_linear_weights *l)
{
    const struct qrn_model_config *c = ld->config;
    const int64_t n = c->n_k_heads, r = c->n_v_heads / n;
    const size_t bytes = (size_t)n * 2 * sizeof(struct row_run);
    struct row_run whole;
    QRN_TRY(qrn_load_run(ld, name, &whole));
    if (whole.n != 2 * c->n_v_heads)
        return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" has %lld rows, wants %lld", name,
                        (long long)whole.n, (long long)(2 * c->n_v_heads));
    struct row_run *runs = qrn_alloc(ld->allocator, bytes);
    if (!runs) return qrn_fail_memory(ld->err, bytes, "row runs");
    for (int64_t h = 0; h < n; h++) {
        runs[h] = part(&whole, h * 2 * r, r);
        runs[n + h] = part(&whole, h * 2 * r + r, r);
    }
    enum qrn_status s =
        qrn_load_matrix(ld, runs, (size_t)n, 0, c->n_v_heads, c->d_model, SMALL, &l->b);
    if (s == QRN_OK)
        s = qrn_load_matrix(ld, runs + n, (size_t)n, 0, c->n_v_heads, c->d_model, SMALL, &l->a);
    qrn_free(ld->allocator, runs, bytes);
    return s;
}

/* Gates have float32 activations.  Where many tokens are rounded to bf16 for the matrix that lies before them in memory, it can be
 * one product with them, if they are rounded too. */
static void join_gates(const struct loader *ld, struct qrn_linear_weights *l)
{
    const struct qrn_matrix *const z = &l->z, *const b = &l->b;
    if (ld->stage->rounds_many && z->many == QRN_ACT_BF16 && z->w.dtype == QRN_BF16 &&
        b->w.dtype == QRN_BF16 && l->a.w.dtype == QRN_BF16 &&
        (uintptr_t)z->w.data + z->w.n_bytes == (uintptr_t)b->w.data)
        l->b.many = l->a.many = QRN_ACT_BF16;
}

enum qrn_status qrn_load_linear_projections(struct loader *ld, int64_t i_layer,
                                            const struct projection_names *names,
                                            struct qrn_linear_weights *l)
{
    const struct qrn_model_config *c = ld->config;
    const int64_t n_value = c->n_v_heads * c->d_v, n_conv = 2 * c->n_k_heads * c->d_k + n_value;
    char name[LOAD_NAME_BYTES];
    if (qrn_load_find(ld, layer_name(ld, i_layer, names->qkvz, name))) {
        QRN_TRY(split_qkvz(ld, name, l));
    } else {
        QRN_TRY(qrn_load_named_matrix(ld, layer_name(ld, i_layer, names->qkv, name), n_conv,
                                      c->d_model, BIG, &l->qkv));
        QRN_TRY(qrn_load_named_matrix(ld, layer_name(ld, i_layer, names->z, name), n_value,
                                      c->d_model, BIG, &l->z));
    }
    if (qrn_load_find(ld, layer_name(ld, i_layer, names->ba, name))) {
        QRN_TRY(split_ba(ld, name, l));
    } else {
        QRN_TRY(qrn_load_named_matrix(ld, layer_name(ld, i_layer, names->b, name), c->n_v_heads,
                                      c->d_model, SMALL, &l->b));
        QRN_TRY(qrn_load_named_matrix(ld, layer_name(ld, i_layer, names->a, name), c->n_v_heads,
                                      c->d_model, SMALL, &l->a));
    }
    join_gates(ld, l);
    layer_name(ld, i_layer, names->dt_bias, name);
    if (!qrn_load_find(ld, name)) layer_name(ld, i_layer, names->dt_bias_other, name);
    QRN_TRY(qrn_load_vector(ld, name, c->n_v_heads, AS_IS, &l->dt_bias));
    l->conv = qrn_tensor_2d(QRN_F32, l->conv.data, n_conv, c->conv_kernel);
    return QRN_OK;
}

/* Halves of one tensor: for each expert d_ff rows of gate, then d_ff of up. */
static enum qrn_status split_gate_up(struct loader *ld, const char *name, struct qrn_moe_weights *m)
{
    const struct qrn_model_config *c = ld->config;
    const int64_t n = c->n_experts, ff = c->d_ff_expert;
    const size_t bytes = (size_t)n * 2 * sizeof(struct row_run);
    struct row_run whole;
    QRN_TRY(qrn_load_run(ld, name, &whole));
    if (whole.n != n * 2 * ff)
        return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" has %lld rows, wants %lld", name,
                        (long long)whole.n, (long long)(n * 2 * ff));
    struct row_run *runs = qrn_alloc(ld->allocator, bytes);
    if (!runs) return qrn_fail_memory(ld->err, bytes, "row runs");
    for (int64_t e = 0; e < n; e++) {
        runs[e] = part(&whole, e * 2 * ff, ff);
        runs[n + e] = part(&whole, e * 2 * ff + ff, ff);
    }
    enum qrn_status s = qrn_load_matrix(ld, runs, (size_t)n, n, ff, c->d_model, BIG, &m->gate);
    if (s == QRN_OK) s = qrn_load_matrix(ld, runs + n, (size_t)n, n, ff, c->d_model, BIG, &m->up);
    qrn_free(ld->allocator, runs, bytes);
    return s;
}

enum qrn_status qrn_load_stacked_experts(struct loader *ld, int64_t i_layer,
                                         const struct expert_names *names,
                                         struct qrn_moe_weights *m)
{
    const struct qrn_model_config *c = ld->config;
    const int64_t n = c->n_experts, ff = c->d_ff_expert;
    char name[LOAD_NAME_BYTES];
    struct row_run run;
    if (qrn_load_find(ld, layer_name(ld, i_layer, names->gate_up, name))) {
        QRN_TRY(split_gate_up(ld, name, m));
    } else {
        QRN_TRY(qrn_load_run(ld, layer_name(ld, i_layer, names->gate, name), &run));
        QRN_TRY(qrn_load_matrix(ld, &run, 1, n, ff, c->d_model, BIG, &m->gate));
        QRN_TRY(qrn_load_run(ld, layer_name(ld, i_layer, names->up, name), &run));
        QRN_TRY(qrn_load_matrix(ld, &run, 1, n, ff, c->d_model, BIG, &m->up));
    }
    QRN_TRY(qrn_load_run(ld, layer_name(ld, i_layer, names->down, name), &run));
    return qrn_load_matrix(ld, &run, 1, n, c->d_model, ff, BIG, &m->down);
}

/* mlp.experts.E.<which>.weight, one tensor an expert. */
static enum qrn_status separate(struct loader *ld, int64_t i_layer, const char *which,
                                int64_t n_out, int64_t n_in, struct qrn_matrix *out)
{
    const int64_t n = ld->config->n_experts;
    const size_t bytes = (size_t)n * sizeof(struct row_run);
    struct row_run *runs = qrn_alloc(ld->allocator, bytes);
    if (!runs) return qrn_fail_memory(ld->err, bytes, "row runs");
    enum qrn_status s = QRN_OK;
    for (int64_t e = 0; e < n && s == QRN_OK; e++) {
        char suffix[64], name[LOAD_NAME_BYTES];
        (void)snprintf(suffix, sizeof suffix, "mlp.experts.%lld.%s.weight", (long long)e, which);
        s = qrn_load_run(ld, layer_name(ld, i_layer, suffix, name), &runs[e]);
        if (s == QRN_OK && runs[e].n != n_out)
            s = qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" has %lld rows, wants %lld", name,
                         (long long)runs[e].n, (long long)n_out);
    }
    if (s == QRN_OK) s = qrn_load_matrix(ld, runs, (size_t)n, n, n_out, n_in, BIG, out);
    qrn_free(ld->allocator, runs, bytes);
    return s;
}

enum qrn_status qrn_load_separate_experts(struct loader *ld, int64_t i_layer,
                                          struct qrn_moe_weights *m)
{
    const struct qrn_model_config *c = ld->config;
    QRN_TRY(separate(ld, i_layer, "gate_proj", c->d_ff_expert, c->d_model, &m->gate));
    QRN_TRY(separate(ld, i_layer, "up_proj", c->d_ff_expert, c->d_model, &m->up));
    return separate(ld, i_layer, "down_proj", c->d_model, c->d_ff_expert, &m->down);
}
