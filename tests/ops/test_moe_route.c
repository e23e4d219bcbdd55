/* SPDX-License-Identifier: MIT
 * moe_route: every kernel against the reference, ties, NaN, and every documented error. */
#include "support/golden.h"

static const struct {
    int64_t n_tokens, n_experts, top_k;
    const char *why;
} cases[] = {
    {1, 1, 1, "smallest"},
    {1, 512, 10, "decode"},
    {11, 12, 5, "several tokens"},
    {3, 33, 33, "all experts; no width divides 33"},
    {40, 128, 8, "more tokens than lanes"},
    {5, 256, 8, "8 of 256"},
    {2, 600, 4, "many experts"},
    {0, 16, 2, "no tokens"},
};

static struct qrn_moe_route_args make(struct mem *m, struct rng *r, int64_t n, int64_t e, int64_t k)
{
    return (struct qrn_moe_route_args){
        .logits = mem_filled(m, r, 2.0, 2, (const int64_t[]){n, e}),
        .ids = mem_tensor(m, QRN_I32, 2, (const int64_t[]){n, k}),
        .weights = mem_tensor(m, QRN_F32, 2, (const int64_t[]){n, k}),
    };
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 3, QRN_OP_moe_route);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_moe_route_args a =
            make(&m, &r, cases[i].n_tokens, cases[i].n_experts, cases[i].top_k);
        for (int normalise = 0; normalise < 2; normalise++) {
            a.normalise = normalise;
            for (size_t j = 0; j < d.n; j++)
                op_test_against_reference(d.dev[j], QRN_OP_moe_route, &a, 3e-6, cases[i].why);
            op_test_same_bits(QRN_OP_moe_route, &a, cases[i].why);
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* Seven values over and over: of equal ones the lower index first, wherever a kernel keeps the others. */
static void test_ties(void **state)
{
    static const int64_t n_experts[] = {100, 200, 400, 600};
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_moe_route);
    for (size_t i = 0; i < sizeof n_experts / sizeof *n_experts; i++) {
        struct mem m = {0};
        struct rng r = {0};
        struct qrn_moe_route_args a = make(&m, &r, 2, n_experts[i], 30);
        for (int64_t t = 0; t < 2; t++)
            for (int64_t e = 0; e < n_experts[i]; e++)
                ((float *)a.logits.data)[t * n_experts[i] + e] = (float)((t + 1) * e % 7);
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_moe_route, &a, 3e-6, "ties");
        op_test_same_bits(QRN_OP_moe_route, &a, "ties");
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {50};
    devices_open_for(&d, 2, QRN_OP_moe_route);
    const struct qrn_tensor logits = mem_filled(&m, &r, 2.0, 2, (const int64_t[]){6, 50});
    const struct qrn_tensor ids = mem_tensor(&m, QRN_I32, 2, (const int64_t[]){6, 9});
    const struct qrn_tensor weights = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 7});
    const struct qrn_moe_route_args a = {.logits = qrn_tensor_slice(logits, 1, 9, 20),
                                         .ids = qrn_tensor_slice(ids, 1, 2, 4),
                                         .weights = qrn_tensor_slice(weights, 1, 3, 4),
                                         .normalise = true};
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_moe_route, &a, 3e-6, "strided");
    devices_close(&d);
    mem_free_all(&m);
}

/* Equal logits: the lowest id first.  What is no number comes last, and is answered with NaN. */
static void test_ranks(void **state)
{
    (void)state;
    static const struct {
        float logits[6];
        int32_t ids[4];
        bool weights_are_numbers;
    } rows[] = {
        {{1, 1, 1, 1, 1, 1}, {0, 1, 2, 3}, true},
        {{0, 5, 2, 5, 2, 2}, {1, 3, 2, 4}, true},
        {{NAN, 1, NAN, 2, NAN, NAN}, {3, 1, 0, 2}, false},
        {{NAN, NAN, NAN, NAN, NAN, NAN}, {0, 1, 2, 3}, false},
        {{-INFINITY, 1, -INFINITY, 2, -INFINITY, -INFINITY}, {3, 1, 0, 2}, true},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, {0, 1, 2, 3}, false},
        {{0, 1, INFINITY, 2, 3, 4}, {2, 5, 4, 3}, false},
        {{0.0f, -0.0f, 0.0f, -1, -2, -3}, {0, 1, 2, 3}, true},
        {{-1e30f, 3e38f, -3e38f, 88.0f, -88.0f, 1e-30f}, {1, 3, 5, 4}, true},
    };
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_moe_route);
    for (size_t j = 0; j < d.n; j++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct mem m = {0};
            struct rng r = {0};
            const struct qrn_moe_route_args a = make(&m, &r, 1, 6, 4);
            const float *weights = a.weights.data;
            memcpy(a.logits.data, rows[i].logits, sizeof rows[i].logits);
            assert_int_equal(qrn_moe_route(d.dev[j], &a, NULL), QRN_OK);
            assert_memory_equal(a.ids.data, rows[i].ids, sizeof rows[i].ids);
            for (int k = 0; k < 4; k++)
                assert_int_equal(!isnan(weights[k]), rows[i].weights_are_numbers);
            op_test_against_reference(d.dev[j], QRN_OP_moe_route, &a, 3e-6, "ranks");
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* The weights in plain float32, one expert after the other; ids are known. */
static void plain(const struct qrn_moe_route_args *a, int64_t n_experts, int64_t top_k)
{
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        const float *x = (float *)a->logits.data + t * n_experts;
        float *w = (float *)a->weights.data + t * top_k, largest = x[0], sum = 0.0f, chosen = 0.0f;
        for (int64_t e = 1; e < n_experts; e++) largest = fmaxf(largest, x[e]);
        for (int64_t e = 0; e < n_experts; e++) sum += expf(x[e] - largest);
        for (int64_t k = 0; k < top_k; k++) {
            w[k] = expf(x[((int32_t *)a->ids.data)[t * top_k + k]] - largest) / sum;
            chosen += w[k];
        }
        for (int64_t k = 0; k < top_k; k++) w[k] /= chosen;
    }
}

/* An entry made by PyTorch: the same experts, the reference agrees, and no kernel is further from
 * the reference than 4 times the plain float32 op. */
static void test_golden(void **state)
{
    (void)state;
    enum { N = 11, EXPERTS = 12, TOP_K = 5 };
    const int64_t chosen[] = {N, TOP_K};
    struct devices d;
    struct mem m = {0};
    struct tensor_file file;
    devices_open_for(&d, 2, QRN_OP_moe_route);
    tensor_file_open("tests/data/op_goldens.safetensors", &file);
    const struct qrn_tensor ids =
        golden_tensor(&m, &file, "moe_route.0.experts", QRN_I32, 2, chosen);
    const struct qrn_tensor want =
        golden_tensor(&m, &file, "moe_route.0.weights", QRN_F32, 2, chosen);
    struct qrn_moe_route_args a = {
        .logits = golden_tensor(&m, &file, "moe_route.0.logits", QRN_F32, 2,
                                (const int64_t[]){N, EXPERTS}),
        .ids = mem_tensor(&m, QRN_I32, 2, chosen), .weights = mem_tensor(&m, QRN_F64, 2, chosen),
        .normalise = true};
    const struct qrn_tensor exact = a.weights;
    qrn_op(QRN_OP_moe_route)->reference(&a);
    assert_memory_equal(a.ids.data, ids.data, ids.n_bytes);
    assert_true(golden_error(&exact, &want) < 2e-6);
    a.weights = mem_tensor(&m, QRN_F32, 2, chosen);
    plain(&a, EXPERTS, TOP_K);
    const double allowed = 4.0 * golden_error(&a.weights, &exact);
    for (size_t j = 0; j < d.n; j++) {
        const struct qrn_kernel *k;
        for (size_t i = 0; (k = qrn_kernel_at(d.dev[j], QRN_OP_moe_route, i)) != NULL; i++) {
            memset(a.ids.data, 0xff, a.ids.n_bytes);
            assert_int_equal(qrn_kernel_run(d.dev[j], k, &a, NULL), QRN_OK);
            assert_memory_equal(a.ids.data, ids.data, ids.n_bytes);
            const double error = golden_error(&a.weights, &exact);
            if (j == 0)
                print_message("%s: %.3g, plain float32 %.3g\n", k->name, error, allowed / 4.0);
            assert_true(error <= allowed);
        }
    }
    tensor_file_close(&file);
    devices_close(&d);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    const enum qrn_op_id id = QRN_OP_moe_route;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_moe_route_args good = make(&m, &r, 3, 12, 5);
    struct qrn_moe_route_args a = good;
    a.logits = (struct qrn_tensor){0};
    op_test_fails(dev, id, &a, QRN_ERR_ARGUMENT, "moe_route: logits is missing");
    a = good;
    a.logits.dtype = QRN_BF16;
    op_test_fails(dev, id, &a, QRN_ERR_DTYPE, "logits is bf16, wants f32");
    a = good;
    a.ids.dtype = QRN_U32;
    op_test_fails(dev, id, &a, QRN_ERR_DTYPE, "ids is u32, wants i32");
    a = good;
    a.ids.shape[0] = 2;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "ids.shape[0] is 2, wants 3");
    a = good;
    a.weights.shape[1] = 4;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "weights.shape[1] is 4, wants 5 (that of ids)");
    a = good;
    a.logits.shape[1] = 4;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "ids.shape[1] is 5, wants 1 to 4 (experts)");
    a = good;
    a.ids.shape[1] = a.weights.shape[1] = 0;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "ids.shape[1] is 0, wants 1 to 12 (experts)");
    a = good;
    a.logits.n_dims = 1;
    a.logits.stride[0] = 1;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "logits has 1 dimensions, wants 2");
    a = good;
    a.ids.data = a.weights.data;
    op_test_fails(dev, id, &a, QRN_ERR_ARGUMENT, "ids overlaps weights");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
