/* SPDX-License-Identifier: MIT
 * The joints of experts: to the bit what eleven launches leave in memory. */
#include "support/joint_weights.h"

enum oddity {
    NONE,
    TWO_TOKENS, /* what routes are made of is joined, and gates with ups */
    OTHER_TYPE, /* of the shared expert's weights: only the experts' gates are joined */
    NO_SHARED,  /* expert */
    OVER_GATES, /* results of experts lie where their gates are: nothing behind gates is joined */
    FLOAT_X,    /* products are given what is not rounded */
    OUT_IS_SHARED, /* the result takes the place of the shared expert's */
    OTHER_X,       /* ups meet another row: gates are not joined */
    FLOAT_MIDDLE,  /* gates times ups are not rounded: not joined */
    NAN_LOGITS     /* weights that no token has */
};

struct row {
    enum qrn_dtype dtype;
    int64_t n_experts, top_k, d, ff, ff_shared;
    enum oddity oddity;
    bool normalise;
    long n_saved; /* launches */
    const char *why;
};

static const struct row rows[] = {
    {QRN_Q4_K, 40, 8, 512, 512, 512, NONE, 1, 8, "as of 35B-A3B, but narrower"},
    {QRN_Q8_0, 9, 3, 2048, 128, 128, NONE, 0, 8, "long rows of x"},
    {QRN_Q6_K, 300, 10, 256, 256, 256, NONE, 1, 8, "more experts"},
    {QRN_Q4_0, 20, 2, 128, 128, 384, NONE, 1, 8, "a wide shared expert"},
    {QRN_MLX_Q4, 6, 1, 384, 128, 128, NONE, 0, 8, "one expert of a token"},
    {QRN_Q5_K, 33, 32, 256, 256, 256, NONE, 1, 8, "as many slots as there may be"},
    {QRN_MLX_Q8, 20, 4, 160, 128, 128, FLOAT_X, 1, 8, "x that products round, not in whole blocks"},
    {QRN_Q8_0, 24, 22, 128, 512, 512, NONE, 1, 4, "more than fits into shared memory"},
    {QRN_Q4_K, 20, 4, 256, 768, 256, NONE, 1, 7, "a narrow shared expert"},
    {QRN_Q4_K, 20, 4, 256, 256, 0, NO_SHARED, 1, 4, "no shared expert"},
    {QRN_Q4_K, 20, 4, 256, 256, 256, OTHER_TYPE, 1, 3, "a shared expert of another type"},
    {QRN_Q4_K, 20, 4, 256, 256, 256, TWO_TOKENS, 1, 2, "two tokens"},
    {QRN_Q5_K, 33, 32, 256, 256, 256, TWO_TOKENS, 1, 2, "two tokens with many slots"},
    {QRN_Q8_0, 9, 3, 384, 128, 128, TWO_TOKENS, 0, 2, "two tokens, groups that end in a share"},
    {QRN_Q4_K, 20, 4, 256, 256, 256, OVER_GATES, 1, 4, "results over gates"},
    {QRN_Q4_K, 20, 4, 256, 256, 256, OUT_IS_SHARED, 1, 8, "the result over the shared expert's"},
    {QRN_Q4_K, 20, 4, 256, 256, 256, OTHER_X, 1, 5, "another row for ups"},
    {QRN_Q4_K, 20, 4, 256, 256, 256, FLOAT_MIDDLE, 1, 4, "floats between products"},
    {QRN_Q4_K, 20, 4, 256, 256, 256, NAN_LOGITS, 1, 8, "logits that are NaN"},
};

struct call {
    struct qrn_matmul_args router, shared_gate, shared_in, shared_down;
    struct qrn_moe_route_args route;
    struct qrn_matmul_id_args gate, up, down;
    struct qrn_silu_mul_args silu, shared_silu;
    struct qrn_moe_combine_args combine;
    bool shared;
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    qrn_encode_matmul(j->enc, &c->router);
    if (c->shared) qrn_encode_matmul(j->enc, &c->shared_gate);
    qrn_encode_moe_route(j->enc, &c->route);
    qrn_encode_matmul_id(j->enc, &c->gate);
    qrn_encode_matmul_id(j->enc, &c->up);
    if (c->shared) {
        qrn_encode_matmul(j->enc, &c->shared_in);
        qrn_encode_silu_mul(j->enc, &c->shared_silu);
    }
    qrn_encode_silu_mul(j->enc, &c->silu);
    qrn_encode_matmul_id(j->enc, &c->down);
    if (c->shared) qrn_encode_matmul(j->enc, &c->shared_down);
    qrn_encode_moe_combine(j->enc, &c->combine);
}

static struct qrn_tensor poison(struct joint_test *j, enum qrn_dtype dtype, int64_t n0, int64_t n1)
{
    return joint_test_poison(j, dtype, 2, (const int64_t[]){n0, n1});
}

static struct qrn_tensor poison_slots(struct joint_test *j, enum qrn_dtype dtype, int64_t n0,
                                      int64_t n1, int64_t n2)
{
    return joint_test_poison(j, dtype, 3, (const int64_t[]){n0, n1, n2});
}

static void make_experts(struct joint_test *j, struct qrn_device *dev, const struct row *z,
                         struct call *c, int64_t T, struct qrn_tensor x)
{
    const int64_t in[] = {z->n_experts, z->ff, z->d}, out[] = {z->n_experts, z->d, z->ff};
    const struct qrn_tensor slots_x = qrn_tensor_split_last(x, 1, z->d);
    c->gate = (struct qrn_matmul_id_args){.w = joint_packed(j, dev, z->dtype, 3, in),
                                          .x = slots_x,
                                          .ids = c->route.ids,
                                          .out = poison_slots(j, QRN_F32, T, z->top_k, z->ff),
                                          .activation = QRN_ACT_Q8,
                                          .layout = QRN_LAYOUT_PACKED};
    c->up = c->gate;
    c->up.w = joint_packed(j, dev, z->dtype, 3, in);
    c->up.out = poison_slots(j, QRN_F32, T, z->top_k, z->ff);
    c->silu = (struct qrn_silu_mul_args){
        .gate = c->gate.out,
        .up = c->up.out,
        .out =
            poison_slots(j, z->oddity == FLOAT_MIDDLE ? QRN_F32 : QRN_Q8_ACT, T, z->top_k, z->ff)};
    c->down = c->gate;
    c->down.w = joint_packed(j, dev, z->dtype, 3, out);
    c->down.x = c->silu.out;
    c->down.out = poison_slots(j, QRN_F32, T, z->top_k, z->d);
    if (z->oddity == OVER_GATES)
        c->down.out = qrn_tensor_split_last(
            qrn_tensor_2d(QRN_F32, c->gate.out.data, T, z->top_k * z->d), z->top_k, z->d);
    if (z->oddity == OTHER_X) c->up.x = qrn_tensor_split_last(joint_rounded(j, T, z->d), 1, z->d);
}

static void make_shared(struct joint_test *j, struct qrn_device *dev, const struct row *z,
                        struct call *c, int64_t T, struct qrn_tensor x)
{
    const enum qrn_dtype type = z->oddity == OTHER_TYPE ? QRN_Q8_0 : z->dtype;
    const int64_t ff = z->ff_shared, in[] = {2 * ff, z->d}, out[] = {z->d, ff};
    c->shared_in = (struct qrn_matmul_args){.w = joint_packed(j, dev, type, 2, in),
                                            .x = x,
                                            .out = poison(j, QRN_F32, T, 2 * ff),
                                            .activation = QRN_ACT_Q8,
                                            .layout = QRN_LAYOUT_PACKED};
    c->shared_silu =
        (struct qrn_silu_mul_args){.gate = qrn_tensor_slice(c->shared_in.out, 1, 0, ff),
                                   .up = qrn_tensor_slice(c->shared_in.out, 1, ff, ff),
                                   .out = poison(j, QRN_Q8_ACT, T, ff)};
    c->shared_down = c->shared_in;
    c->shared_down.w = joint_packed(j, dev, type, 2, out);
    c->shared_down.x = c->shared_silu.out;
    c->shared_down.out = poison(j, QRN_F32, T, z->d);
    c->combine.shared = c->shared_down.out;
    c->combine.shared_gate = c->shared_gate.out;
}

static void make(struct joint_test *j, struct qrn_device *dev, const struct row *z, struct call *c)
{
    const int64_t T = z->oddity == TWO_TOKENS ? 2 : 1;
    const struct qrn_tensor floats = joint_test_filled(j, 1.0, 2, (const int64_t[]){T, z->d}),
                            x = z->oddity == FLOAT_X ? floats : joint_rounded(j, T, z->d);
    *c = (struct call){.shared = z->oddity != NO_SHARED};
    c->router =
        (struct qrn_matmul_args){.w = joint_test_filled(j, z->oddity == NAN_LOGITS ? NAN : 0.1, 2,
                                                        (const int64_t[]){z->n_experts, z->d}),
                                 .x = floats,
                                 .out = poison(j, QRN_F32, T, z->n_experts)};
    c->shared_gate = c->router;
    c->shared_gate.w = joint_test_filled(j, 0.1, 2, (const int64_t[]){1, z->d});
    c->shared_gate.out = poison(j, QRN_F32, T, 1);
    c->route = (struct qrn_moe_route_args){.logits = c->router.out,
                                           .ids = poison(j, QRN_I32, T, z->top_k),
                                           .weights = poison(j, QRN_F32, T, z->top_k),
                                           .normalise = z->normalise};
    make_experts(j, dev, z, c, T, x);
    if (c->shared) make_shared(j, dev, z, c, T, x);
    c->combine.experts = c->down.out;
    c->combine.weights = c->route.weights;
    c->combine.out = z->oddity == OUT_IS_SHARED ? c->combine.shared : poison(j, QRN_F32, T, z->d);
}

static void test_rows(void **state)
{
    (void)state;
    struct joint_test j;
    joint_test_open(&j, 5);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul_pack);
    assert_non_null(dev);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct call c;
        make(&j, dev, &rows[i], &c);
        joint_test_run(&j, record, &c, rows[i].n_saved, rows[i].why);
    }
    qrn_device_close(dev);
    joint_test_close(&j);
}

/* Each type of packed weights. */
static void test_types(void **state)
{
    (void)state;
    struct joint_test j;
    joint_test_open(&j, 6);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul_pack);
    assert_non_null(dev);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        struct call c;
        const struct row z = {weight_types[t].dtype, 10, 3, 256, 256, 256, NONE, 1, 8, ""};
        if (!qrn_has_integer_form(z.dtype)) continue;
        make(&j, dev, &z, &c);
        joint_test_run(&j, record, &c, z.n_saved, qrn_dtype_info(z.dtype)->name);
    }
    qrn_device_close(dev);
    joint_test_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
