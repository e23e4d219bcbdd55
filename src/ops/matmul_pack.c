/* SPDX-License-Identifier: MIT
 * matmul_pack: checks, and the size of what a device would write.  The image has no meaning outside
 * the device, so the reference writes nothing: products of packed weights are what tests
 * compare. */
#include "core/device_impl.h"
#include "ops/matmul_common.h"

static enum qrn_status check_weights(const struct qrn_matmul_pack_args *a, struct qrn_error *err)
{
    if (a->w.n_dims != 2 && a->w.n_dims != 3)
        return qrn_fail(err, QRN_ERR_SHAPE, "matmul_pack: w has %d dimensions, wants 2 or 3",
                        a->w.n_dims);
    QRN_TRY(
        qrn_check_weight("matmul_pack", "w", &a->w, &a->scales, &a->biases, QRN_LAYOUT_ROWS, err));
    return qrn_check_activation("matmul_pack", a->activation, 0, err);
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_matmul_pack_args *a = args;
    QRN_TRY(check_weights(a, err));
    QRN_TRY(qrn_check_dtype("matmul_pack", "packed", &a->packed, err, 1, QRN_U8));
    QRN_TRY(qrn_check_shape("matmul_pack", "packed", &a->packed, err, 1, (int64_t)-1));
    if ((uint64_t)a->packed.shape[0] > a->packed.n_bytes)
        return qrn_fail(err, QRN_ERR_SHAPE, "matmul_pack: packed needs %" PRId64 " bytes, has %zu",
                        a->packed.shape[0], a->packed.n_bytes);
    return QRN_OK;
}

/* The operands' general checks ask for memory, which a query need not have. */
static enum qrn_status check_query(const struct qrn_matmul_pack_args *a, struct qrn_error *err)
{
    const struct qrn_tensor *const all[] = {&a->w, &a->scales, &a->biases};
    static const char *const names[] = {"w", "scales", "biases"};
    for (int i = 0; i < 3; i++) {
        const struct qrn_tensor *t = all[i];
        size_t extent;
        if (i > 0 && t->n_dims == 0) continue;
        if (t->n_dims < 1 || t->n_dims > QRN_MAX_DIMS)
            return qrn_fail(err, QRN_ERR_SHAPE, "matmul_pack: %s.n_dims is %d, wants 2 or 3",
                            names[i], t->n_dims);
        const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
        if (!type)
            return qrn_fail(err, QRN_ERR_DTYPE, "matmul_pack: %s.dtype is %d, which is no type",
                            names[i], (int)t->dtype);
        for (int d = 0; d < t->n_dims; d++)
            if (t->shape[d] < 0 || (d == t->n_dims - 1 && t->shape[d] % type->block_elements))
                return qrn_fail(err, QRN_ERR_SHAPE,
                                "matmul_pack: %s.shape[%d] is %" PRId64
                                ", wants whole blocks of %s",
                                names[i], d, t->shape[d], type->name);
        if (!qrn_tensor_extent(t, &extent))
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "matmul_pack: the size of %s does not fit in memory", names[i]);
    }
    return check_weights(a, err);
}

enum qrn_status qrn_matmul_packed_bytes(struct qrn_device *dev,
                                        const struct qrn_matmul_pack_args *args, size_t *n_bytes,
                                        struct qrn_error *err)
{
    struct qrn_matmul_pack_args query = *args;
    query.packed = (struct qrn_tensor){0};
    QRN_TRY(check_query(&query, err));
    const struct qrn_kernel *k;
    *n_bytes = 0;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul_pack, i)) != NULL; i++) {
        if (k->supports && !k->supports(&query)) continue;
        *n_bytes = k->output_bytes(&query);
        break;
    }
    return QRN_OK;
}

static void reference(const void *args)
{
    (void)args;
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_matmul_pack_args *a = args;
    const struct qrn_dtype_info *type = qrn_dtype_info(a->w.dtype);
    *n_flops = 0;
    *n_bytes =
        2.0 * (double)qrn_tensor_n_elements(&a->w) * type->block_bytes / type->block_elements;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(matmul_pack, w, QRN_READS),
    QRN_OPERAND(matmul_pack, scales, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(matmul_pack, biases, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(matmul_pack, packed, QRN_WRITES | QRN_OPAQUE),
};

const struct qrn_op qrn_op_matmul_pack = {
    .name = "matmul_pack",
    .args_bytes = sizeof(struct qrn_matmul_pack_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
