/* SPDX-License-Identifier: MIT
 * Arguments of products made ready for device code. */
#include "backends/cuda/matmul_job.h"

static int64_t dim(const struct qrn_tensor *t, int from_last)
{
    return from_last < t->n_dims ? t->shape[t->n_dims - 1 - from_last] : 1;
}

/* Rows without elements are nowhere. */
static struct qrn_rows rows_of(const struct qrn_tensor *t)
{
    struct qrn_rows r = qrn_rows(t);
    if (qrn_tensor_n_elements(t) == 0) r.data = 0;
    return r;
}

/* In three dimensions the first is dimension -3. */
static struct qrn_matrices matrices(const struct qrn_tensor *t)
{
    struct qrn_matrices m = {.data = (uint64_t)(uintptr_t)t->data, .dtype = (int32_t)t->dtype};
    if (t->n_dims == 0 || qrn_tensor_n_elements(t) == 0) return (struct qrn_matrices){0};
    for (int i = 0; i + 1 < t->n_dims; i++)
        m.stride[4 - t->n_dims + i] = (int64_t)qrn_block_offset(t->dtype, t->stride[i]);
    return m;
}

/* The layout of matmul_forms_cuda.h. */
static size_t lay_out(struct qrn_weights_params *p, int64_t n_matrices, int tag)
{
    const struct qrn_form f = qrn_form_of(p->dtype);
    const int run = f.run ? f.run : p->group / 32;
    const int64_t n_panels = (p->k + QRN_PANEL_K - 1) / QRN_PANEL_K;
    p->panel_bytes = QRN_PANEL_ROWS * (16 * f.bits + qrn_form_sub_bytes(f.sub) +
                                       qrn_form_head_bytes(f.head, run, p->wide_scales));
    p->group_bytes = n_panels * p->panel_bytes + 16 * tag;
    p->matrix_bytes = (p->n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS * p->group_bytes;
    return (size_t)(n_matrices * p->matrix_bytes);
}

/* Each way in which scales of MLX codes may be kept. */
static bool find_mlx_image(struct qrn_weights_params *p, int64_t n_matrices, size_t n_bytes)
{
    static const enum qrn_dtype types[] = {QRN_F32, QRN_BF16, QRN_F16};
    for (int tag = 0; tag < 3; tag++)
        for (int group = 32; group <= 128; group *= 2) {
            p->group = group;
            p->wide_scales = tag == 0;
            p->scales_dtype = (int32_t)types[tag];
            if (p->k % group == 0 && lay_out(p, n_matrices, tag) == n_bytes) return true;
        }
    return false;
}

bool qrn_cuda_weights(const struct qrn_tensor *w, const struct qrn_tensor *scales,
                      const struct qrn_tensor *biases, bool packed, struct qrn_weights_params *out)
{
    const int64_t n_matrices = dim(w, 2) * dim(w, 3);
    *out = (struct qrn_weights_params){
        .n = dim(w, 1), .k = dim(w, 0), .dtype = (int32_t)w->dtype, .group = QRN_PANEL_K};
    if (!packed) {
        out->w = matrices(w);
        out->scales = matrices(scales);
        out->biases = matrices(biases);
        if (scales->n_dims) out->group = (int32_t)qrn_mlx_group(w, scales);
        return true;
    }
    if (!qrn_has_integer_form(w->dtype)) return false;
    out->packed = (uint64_t)(uintptr_t)w->data;
    if (out->packed % 16) return false;
    return qrn_is_mlx(w->dtype) ? find_mlx_image(out, n_matrices, w->n_bytes)
                                : lay_out(out, n_matrices, 0) == w->n_bytes;
}

size_t qrn_cuda_packed_bytes(const struct qrn_tensor *w, const struct qrn_tensor *scales,
                             const struct qrn_tensor *biases, struct qrn_weights_params *out)
{
    (void)qrn_cuda_weights(w, scales, biases, false, out);
    if (!qrn_has_integer_form(w->dtype) || out->k == 0) return 0;
    int tag = 0;
    if (qrn_is_mlx(w->dtype)) {
        if (scales->dtype == biases->dtype)
            tag = scales->dtype == QRN_BF16 ? 1 : scales->dtype == QRN_F16 ? 2 : 0;
        out->wide_scales = tag == 0;
        out->scales_dtype = tag ? (int32_t)scales->dtype : QRN_F32;
    }
    return lay_out(out, dim(w, 2), tag);
}

/* Packed weights are rounded to bf16 with them. */
static enum qrn_act_kind kind_of(const struct qrn_tensor *w, enum qrn_activation_type activation,
                                 enum qrn_weight_layout layout)
{
    const bool packed = layout == QRN_LAYOUT_PACKED && qrn_has_integer_form(w->dtype);
    if (activation == QRN_ACT_BF16 && packed) return QRN_ACTS_BF16;
    if (activation == QRN_ACT_Q8 && qrn_has_integer_form(w->dtype)) return QRN_ACTS_Q8;
    return qrn_acts_bf16(activation, w->dtype) ? QRN_ACTS_BF16 : QRN_ACTS_F32;
}

bool qrn_cuda_matmul_job(const struct qrn_matmul_args *a, struct qrn_matmul_params *out)
{
    const int64_t w2 = dim(&a->w, 2), w3 = dim(&a->w, 3);
    const int64_t m = dim(&a->x, 1), m2 = dim(&a->x, 2), m3 = dim(&a->x, 3);
    *out = (struct qrn_matmul_params){.shape = qrn_rows_shape(&a->x),
                                      .out_shape = qrn_rows_shape(&a->out),
                                      .x = rows_of(&a->x),
                                      .out = qrn_rows(&a->out),
                                      .x_dtype = (int32_t)a->x.dtype,
                                      .acts = (int32_t)kind_of(&a->w, a->activation, a->layout),
                                      .any_order = a->any_order,
                                      .n_x = m * m2 * m3,
                                      .n_matrices = w2 * w3,
                                      .m = m,
                                      .m2 = m2,
                                      .w2 = w2,
                                      .r2 = w2 ? m2 / w2 : 0,
                                      .r3 = w3 ? m3 / w3 : 0};
    out->most_rows = out->m * out->r2 * out->r3;
    return qrn_cuda_weights(&a->w, &a->scales, &a->biases, a->layout == QRN_LAYOUT_PACKED, &out->w);
}

bool qrn_cuda_matmul_id_job(const struct qrn_matmul_id_args *a, struct qrn_matmul_params *out)
{
    *out = (struct qrn_matmul_params){.shape = qrn_rows_shape(&a->x),
                                      .out_shape = qrn_rows_shape(&a->out),
                                      .x = rows_of(&a->x),
                                      .out = qrn_rows(&a->out),
                                      .x_dtype = (int32_t)a->x.dtype,
                                      .acts = (int32_t)kind_of(&a->w, a->activation, a->layout),
                                      .any_order = a->any_order,
                                      .n_x = a->x.shape[0] * a->x.shape[1],
                                      .n_matrices = a->w.shape[0],
                                      .most_rows = 1,
                                      .m = 1,
                                      .w2 = a->w.shape[0],
                                      .ids = (uint64_t)(uintptr_t)a->ids.data,
                                      .ids_stride = a->ids.stride[0],
                                      .n_slots = qrn_tensor_n_elements(&a->ids),
                                      .top_k = a->ids.shape[1],
                                      .x_per_token = a->x.shape[1]};
    return qrn_cuda_weights(&a->w, &a->scales, &a->biases, a->layout == QRN_LAYOUT_PACKED, &out->w);
}
