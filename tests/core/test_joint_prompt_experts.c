/* SPDX-License-Identifier: MIT
 * Joints of the experts of many tokens: gates and ups in one launch, slots listed once for all products; to the bit what
 * separate launches leave in memory. */
#include "support/joint_weights.h"

enum oddity {
    NONE,
    IN_PLACE, /* the middle takes the gates' place */
    FLOATS,   /* x is not rounded yet */
    OTHER_X,  /* ups are of another x: nothing is joined */
    OTHER_IDS /* what is behind has other ids: gates and ups are joined */
};

struct row {
    enum qrn_dtype weights;
    int64_t n_tokens, d, ff, d_shared; /* d_shared 0: no shared expert */
    enum oddity oddity;
    long n_saved;
    const char *why;
};

enum { EXPERTS = 5, TOP_K = 2 };

static const struct row rows[] = {
    {QRN_Q4_K, 130, 256, 256, 128, NONE, 5, "a shared expert"},
    {QRN_Q8_0, 40, 160, 128, 0, FLOATS, 6, "none, x is rounded once for two"},
    {QRN_Q4_0, 70, 128, 384, 0, IN_PLACE, 5, "in place"},
    {QRN_Q4_0, 140, 128, 96, 32, FLOATS, 6, "a shared expert, rows that are not whole panels"},
    {QRN_Q4_K, 130, 256, 256, 128, OTHER_IDS, 3, "two lists"},
    {QRN_Q4_0, 40, 128, 128, 0, OTHER_X, 0, "two x"},
};

struct call {
    bool has_shared;
    struct qrn_matmul_id_args gate, up, down;
    struct qrn_matmul_args shared;
    struct qrn_silu_mul_args shared_silu, silu;
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    qrn_encode_matmul_id(j->enc, &c->gate);
    qrn_encode_matmul_id(j->enc, &c->up);
    if (c->has_shared) {
        qrn_encode_matmul(j->enc, &c->shared);
        qrn_encode_silu_mul(j->enc, &c->shared_silu);
    }
    qrn_encode_silu_mul(j->enc, &c->silu);
    qrn_encode_matmul_id(j->enc, &c->down);
}

static struct qrn_tensor ids_of(struct joint_test *j, int64_t n_tokens)
{
    int32_t ids[1024];
    for (int64_t i = 0; i < n_tokens * TOP_K; i++) ids[i] = (int32_t)rng_below(&j->r, EXPERTS);
    ids[3] = -1;
    const struct qrn_tensor t = joint_test_ints(j, ids, n_tokens * TOP_K);
    return qrn_tensor_2d(QRN_I32, t.data, n_tokens, TOP_K);
}

static struct qrn_tensor x_of(struct joint_test *j, const struct row *z)
{
    const struct qrn_tensor t =
        z->oddity == FLOATS ? joint_test_filled(j, 1.0, 2, (const int64_t[]){z->n_tokens, z->d})
                            : joint_bf16(j, z->n_tokens, z->d);
    return qrn_tensor_split_last(t, 1, z->d);
}

static struct qrn_matmul_id_args product(struct joint_test *j, struct qrn_device *dev,
                                         const struct row *z, int64_t n, int64_t k,
                                         struct qrn_tensor x, struct qrn_tensor ids)
{
    return (struct qrn_matmul_id_args){
        .w = joint_packed(j, dev, z->weights, 3, (const int64_t[]){EXPERTS, n, k}),
        .x = x,
        .ids = ids,
        .out = joint_test_poison(j, QRN_F32, 3, (const int64_t[]){z->n_tokens, TOP_K, n}),
        .activation = QRN_ACT_BF16,
        .any_order = true,
        .layout = QRN_LAYOUT_PACKED};
}

static void make(struct joint_test *j, struct qrn_device *dev, const struct row *z, struct call *c)
{
    const struct qrn_tensor x = x_of(j, z), ids = ids_of(j, z->n_tokens);
    *c = (struct call){.has_shared = z->d_shared > 0};
    c->gate = product(j, dev, z, z->ff, z->d, x, ids);
    c->up = product(j, dev, z, z->ff, z->d, z->oddity == OTHER_X ? x_of(j, z) : x, ids);
    c->silu = (struct qrn_silu_mul_args){.gate = c->gate.out, .up = c->up.out};
    c->silu.out =
        z->oddity == IN_PLACE || z->oddity == FLOATS
            ? c->gate.out
            : joint_test_poison(j, QRN_BF16, 3, (const int64_t[]){z->n_tokens, TOP_K, z->ff});
    c->down = product(j, dev, z, z->d, z->ff, c->silu.out,
                      z->oddity == OTHER_IDS ? ids_of(j, z->n_tokens) : ids);
    if (!c->has_shared) return;
    const struct qrn_tensor both =
        joint_test_poison(j, QRN_F32, 2, (const int64_t[]){z->n_tokens, 2 * z->d_shared});
    c->shared = (struct qrn_matmul_args){
        .w = joint_packed(j, dev, z->weights, 2, (const int64_t[]){2 * z->d_shared, z->d}),
        .x = qrn_tensor_2d(x.dtype, x.data, z->n_tokens, z->d),
        .out = both,
        .activation = QRN_ACT_BF16,
        .any_order = true,
        .layout = QRN_LAYOUT_PACKED};
    c->shared_silu = (struct qrn_silu_mul_args){
        .gate = qrn_tensor_slice(both, 1, 0, z->d_shared),
        .up = qrn_tensor_slice(both, 1, z->d_shared, z->d_shared),
        .out = joint_test_poison(j, QRN_F32, 2, (const int64_t[]){z->n_tokens, z->d_shared})};
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct joint_test j;
        struct call c;
        struct qrn_device *dev = joint_test_open_packing(&j, i, "3");
        make(&j, dev, &rows[i], &c);
        qrn_device_close(dev);
        joint_test_run(&j, record, &c, rows[i].n_saved, rows[i].why);
        joint_test_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
