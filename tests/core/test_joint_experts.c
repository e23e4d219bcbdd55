/* SPDX-License-Identifier: MIT
 * The joint from a mixer to the next one with experts between: to the bit what fifteen launches leave in memory. */
#include <stdlib.h>
#include <string.h>

#include "support/joint_weights.h"

enum { MANY = 40 }; /* experts: more do not have weights of their own */

enum oddity {
    NONE,
    TWO_TOKENS,
    OTHER_TYPE,   /* of the shared expert's first weights */
    OTHER_ROW,    /* ups meet another row */
    OTHER_LOGITS, /* routes are of others */
    OVER_LOGITS,  /* a product writes logits before routes are made of them */
    OVER_WEIGHTS, /* the last product's result lies over the router's weights */
    OVER_STREAM,  /* a product writes the residual stream */
    NORMED_STAYS, /* the first norm's floats lie where nothing else does */
    RESULT_STAYS, /* the experts' result, too: that is stored */
    BF16_ROUTER,
    MADE_ROUTER, /* its weights are made by a step before */
    NAN_LOGITS,
    TIES,        /* two experts each have the same logit */
    FLOAT_MIDDLE /* gates times ups are not rounded */
};

struct row {
    enum qrn_dtype dtype;
    int64_t mixed, d, n_experts, top, ff, ff_shared, next;
    enum oddity oddity;
    bool normalise;
    const char *n_multiprocessors;
    long n_saved; /* launches: 14 where all are one */
    const char *why;
};

static const struct row rows[] = {
    {QRN_Q4_K, 512, 768, 16, 8, 512, 512, 1056, NONE, 1, "53", 14, "as of 35B-A3B, but narrower"},
    {QRN_Q4_0, 256, 640, 258, 3, 512, 1024, 70, NONE, 0, "27", 14,
     "more experts, a wide shared one"},
    {QRN_Q6_K, 256, 768, 9, 1, 1024, 512, 32, NONE, 1, "24", 14,
     "one of a token, as many blocks as groups"},
    {QRN_Q4_0, 128, 640, 33, 32, 512, 512, 64, NONE, 1, "24", 14, "as many slots as there may be"},
    {QRN_Q5_K, 256, 768, 12, 2, 512, 512, 96, NONE, 1, "60", 14,
     "more blocks than anything has groups"},
    {QRN_Q4_K, 256, 1024, 8, 4, 512, 512, 96, NONE, 1, "33", 14, "shares of whole stages"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, NONE, 1, "23", 8, "fewer blocks than groups"},
    {QRN_Q4_K, 256, 768, 8, 4, 768, 512, 96, NONE, 1, "27", 7, "slots of no whole stages"},
    {QRN_Q4_K, 256, 512, 8, 4, 512, 512, 96, NONE, 1, "27", 8, "a stream that a warp norms"},
    {QRN_IQ4_NL, 256, 768, 8, 4, 512, 512, 96, NONE, 1, "27", 8, "a type without a chain"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, BF16_ROUTER, 1, "27", 14,
     "bf16 weights of the router"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, MADE_ROUTER, 1, "27", 14, "a router made before"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, NAN_LOGITS, 1, "27", 14, "logits that are NaN"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, TIES, 1, "27", 14, "logits that are equal"},
    {QRN_Q4_K, 256, 768, 8, 1, 512, 512, 96, TIES, 0, "27", 14, "one of two equal logits"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, RESULT_STAYS, 1, "27", 14, "results that stay"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, TWO_TOKENS, 1, "27", 2, "two tokens"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, OTHER_TYPE, 1, "27", 7, "weights of two types"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, OTHER_ROW, 1, "27", 5, "another row for ups"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, OTHER_LOGITS, 1, "27", 8, "other logits"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, OVER_LOGITS, 1, "27", 7, "logits written again"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, OVER_WEIGHTS, 1, "27", 8, "results over weights"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, OVER_STREAM, 1, "27", 8, "results over the stream"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, NORMED_STAYS, 1, "27", 8, "floats of the first norm"},
    {QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, FLOAT_MIDDLE, 1, "27", 4, "floats between products"},
};

struct call {
    struct qrn_cast_args made; /* of the router's weights, before; or none */
    struct qrn_matmul_args out, router, shared_gate, shared_in, shared_down, next;
    struct qrn_rms_norm_args mlp_norm, mixer_norm;
    struct qrn_moe_route_args route;
    struct qrn_matmul_id_args gate, up, down;
    struct qrn_silu_mul_args shared_silu, silu;
    struct qrn_moe_combine_args combine;
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    if (c->made.x.n_dims) qrn_encode_cast(j->enc, &c->made);
    qrn_encode_matmul(j->enc, &c->out);
    qrn_encode_rms_norm(j->enc, &c->mlp_norm);
    qrn_encode_matmul(j->enc, &c->router);
    qrn_encode_matmul(j->enc, &c->shared_gate);
    qrn_encode_moe_route(j->enc, &c->route);
    qrn_encode_matmul_id(j->enc, &c->gate);
    qrn_encode_matmul_id(j->enc, &c->up);
    qrn_encode_matmul(j->enc, &c->shared_in);
    qrn_encode_silu_mul(j->enc, &c->shared_silu);
    qrn_encode_silu_mul(j->enc, &c->silu);
    qrn_encode_matmul_id(j->enc, &c->down);
    qrn_encode_matmul(j->enc, &c->shared_down);
    qrn_encode_moe_combine(j->enc, &c->combine);
    qrn_encode_rms_norm(j->enc, &c->mixer_norm);
    qrn_encode_matmul(j->enc, &c->next);
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

static struct qrn_tensor filled(struct joint_test *j, double scale, int64_t n0, int64_t n1)
{
    return joint_test_filled(j, scale, 2, (const int64_t[]){n0, n1});
}

/* A product with n rows of new weights. */
static struct qrn_matmul_args product(struct joint_test *j, struct qrn_device *dev,
                                      enum qrn_dtype dtype, int64_t n, struct qrn_tensor x,
                                      struct qrn_tensor out)
{
    return (struct qrn_matmul_args){
        .w = joint_packed(j, dev, dtype, 2, (const int64_t[]){n, x.shape[1]}),
        .x = x,
        .out = out,
        .activation = QRN_ACT_Q8,
        .layout = QRN_LAYOUT_PACKED};
}

/* Of the router, and of the shared expert's gate. */
static struct qrn_matmul_args floats(struct joint_test *j, const struct row *z, int64_t n,
                                     struct qrn_tensor x)
{
    const double scale = z->oddity == NAN_LOGITS ? NAN : 0.1;
    return (struct qrn_matmul_args){.w = z->oddity == BF16_ROUTER ? joint_bf16(j, n, z->d)
                                                                  : filled(j, scale, n, z->d),
                                    .x = x,
                                    .out = poison(j, QRN_F32, x.shape[0], n)};
}

/* Weights of all experts; of many, those of two in turn. */
static struct qrn_tensor of_experts(struct joint_test *j, struct qrn_device *dev,
                                    const struct row *z, int64_t n, int64_t k)
{
    const int64_t n_packed = z->n_experts > MANY ? 2 : z->n_experts;
    struct qrn_tensor w = joint_packed(j, dev, z->dtype, 3, (const int64_t[]){n_packed, n, k});
    if (n_packed == z->n_experts) return w;
    const int64_t n_bytes = (int64_t)w.n_bytes / 2 * z->n_experts;
    const struct qrn_tensor all = joint_test_poison(j, QRN_U8, 1, &n_bytes);
    for (int64_t at = 0; at < n_bytes; at += (int64_t)w.n_bytes)
        memcpy((char *)joint_test_at(j, all.data) + at, joint_test_at(j, w.data), w.n_bytes);
    w.data = all.data;
    w.n_bytes = (size_t)n_bytes;
    w.shape[0] = z->n_experts;
    return w;
}

static void make_experts(struct joint_test *j, struct qrn_device *dev, const struct row *z,
                         struct call *c, int64_t T, struct qrn_tensor x)
{
    const enum qrn_dtype middle = z->oddity == FLOAT_MIDDLE ? QRN_F32 : QRN_Q8_ACT;
    c->route = (struct qrn_moe_route_args){.logits = c->router.out,
                                           .ids = poison(j, QRN_I32, T, z->top),
                                           .weights = poison(j, QRN_F32, T, z->top),
                                           .normalise = z->normalise};
    c->gate = (struct qrn_matmul_id_args){.w = of_experts(j, dev, z, z->ff, z->d),
                                          .x = qrn_tensor_split_last(x, 1, z->d),
                                          .ids = c->route.ids,
                                          .out = poison_slots(j, QRN_F32, T, z->top, z->ff),
                                          .activation = QRN_ACT_Q8,
                                          .layout = QRN_LAYOUT_PACKED};
    c->up = c->gate;
    c->up.w = of_experts(j, dev, z, z->ff, z->d);
    c->up.out = poison_slots(j, QRN_F32, T, z->top, z->ff);
    c->silu = (struct qrn_silu_mul_args){
        .gate = c->gate.out, .up = c->up.out, .out = poison_slots(j, middle, T, z->top, z->ff)};
    c->down = c->gate;
    c->down.w = of_experts(j, dev, z, z->d, z->ff);
    c->down.x = c->silu.out;
    c->down.out = poison_slots(j, QRN_F32, T, z->top, z->d);
}

static void make_shared(struct joint_test *j, struct qrn_device *dev, const struct row *z,
                        struct call *c, int64_t T, struct qrn_tensor x)
{
    const enum qrn_dtype type = z->oddity == OTHER_TYPE ? QRN_Q8_0 : z->dtype;
    const int64_t ff = z->ff_shared;
    c->shared_in = product(j, dev, type, 2 * ff, x, poison(j, QRN_F32, T, 2 * ff));
    c->shared_silu =
        (struct qrn_silu_mul_args){.gate = qrn_tensor_slice(c->shared_in.out, 1, 0, ff),
                                   .up = qrn_tensor_slice(c->shared_in.out, 1, ff, ff),
                                   .out = poison(j, QRN_Q8_ACT, T, ff)};
    c->shared_down =
        product(j, dev, z->dtype, z->d, c->shared_silu.out, poison(j, QRN_F32, T, z->d));
}

static void make_odd(struct joint_test *j, const struct row *z, struct call *c, int64_t T)
{
    const struct qrn_tensor row = poison(j, QRN_F32, T, z->d);
    float *router = joint_test_at(j, c->router.w.data);
    switch (z->oddity) {
    case TIES:
        for (int64_t i = 0; i < z->n_experts; i += 2)
            memcpy(router + (i + 1) * z->d, router + i * z->d, (size_t)z->d * sizeof *router);
        break;
    case OTHER_ROW:
        c->up.x = qrn_tensor_split_last(joint_rounded(j, T, z->d), 1, z->d);
        break;
    case OTHER_LOGITS:
        c->route.logits = filled(j, 1.0, T, z->n_experts);
        break;
    case OVER_LOGITS:
        c->shared_gate.out = c->combine.shared_gate =
            qrn_tensor_2d(QRN_F32, c->router.out.data, 1, 1);
        break;
    case OVER_WEIGHTS:
        c->next.out = qrn_tensor_2d(QRN_F32, c->router.w.data, 1, z->next);
        break;
    case OVER_STREAM:
        c->shared_down.out = c->combine.shared = c->mlp_norm.residual;
        break;
    case NORMED_STAYS:
        c->mlp_norm.out = c->router.x = c->shared_gate.x = row;
        break;
    case RESULT_STAYS:
        c->combine.out = c->mixer_norm.x = row;
        break;
    case MADE_ROUTER:
        c->made.x = filled(j, 0.2, z->n_experts, z->d);
        c->made.out = c->router.w;
        break;
    default:
        break;
    }
}

/* As a layer has them: results of d take turns at one place, norms add to the stream. */
static void make(struct joint_test *j, struct qrn_device *dev, const struct row *z, struct call *c)
{
    const int64_t T = z->oddity == TWO_TOKENS ? 2 : 1, d = z->d;
    const struct qrn_tensor normed = poison(j, QRN_F32, T, d), stream = filled(j, 1.0, T, d),
                            row = poison(j, QRN_Q8_ACT, T, d);
    memset(c, 0, sizeof *c);
    c->out = product(j, dev, z->dtype, d, joint_rounded(j, T, z->mixed), normed);
    c->mlp_norm = (struct qrn_rms_norm_args){.x = normed,
                                             .weight = joint_test_filled(j, 1.0, 1, &d),
                                             .residual = stream,
                                             .sum = stream,
                                             .out = normed,
                                             .eps = 1e-6f,
                                             .rounded = row};
    c->router = floats(j, z, z->n_experts, normed);
    c->shared_gate = floats(j, z, 1, normed);
    make_experts(j, dev, z, c, T, row);
    make_shared(j, dev, z, c, T, row);
    c->combine = (struct qrn_moe_combine_args){.experts = c->down.out,
                                               .weights = c->route.weights,
                                               .shared = c->shared_down.out,
                                               .shared_gate = c->shared_gate.out,
                                               .out = normed};
    c->mixer_norm = c->mlp_norm;
    c->mixer_norm.weight = joint_test_filled(j, 1.0, 1, &d);
    c->next = product(j, dev, z->dtype, z->next, row, poison(j, QRN_F32, T, z->next));
    make_odd(j, z, c, T);
}

static void run_row(const struct row *z)
{
    struct joint_test j;
    struct call c;
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", z->n_multiprocessors, 1), 0);
    joint_test_open_bytes(&j, 8, (size_t)(z->n_experts > MANY ? 176 : 48) << 20);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul_pack);
    assert_non_null(dev);
    make(&j, dev, z, &c);
    joint_test_run(&j, record, &c, z->n_saved, z->why);
    qrn_device_close(dev);
    joint_test_close(&j);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_row(&rows[i]);
}

/* One layer after the other, of two shapes in turn. */
static void record_several(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    for (int i = 0; i < 6; i++) record(j, &c[i % 2]);
}

static void test_several(void **state)
{
    (void)state;
    struct joint_test j;
    struct call c[2];
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", "27", 1), 0);
    joint_test_open(&j, 9);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul_pack);
    assert_non_null(dev);
    make(&j, dev, &(struct row){QRN_Q4_K, 256, 768, 8, 4, 512, 512, 96, .normalise = true}, &c[0]);
    make(&j, dev, &(struct row){QRN_Q8_0, 128, 640, 9, 2, 512, 512, 64, .normalise = false}, &c[1]);
    joint_test_run(&j, record_several, c, 6 * 14, "two layers, three times");
    qrn_device_close(dev);
    joint_test_close(&j);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_several)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
