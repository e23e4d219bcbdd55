/* SPDX-License-Identifier: MIT
 * ssm_conv: against the reference, in place, ragged, cut in two, bf16, and as ssm_conv_history. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "support/op_test.h"

static const struct {
    int64_t n_seqs, T, C, K; /* ragged: T tokens in all, cut at odd places */
    bool ragged;
    const char *why;
} cases[] = {
    {1, 6, 4, 4, false, "the reference library's first test"},
    {1, 1, 8192, 4, false, "decode, the released models' width"},
    {3, 5, 3, 2, false, "K = 2, several sequences"},
    {2, 37, 17, 5, false, "odd sizes"},
    {2, 2, 65, 4, false, "fewer tokens than taps"},
    {2, 0, 70, 4, false, "no tokens: the state is carried over"},
    {1, 3, 130, 12, false, "many taps"},
    {0, 4, 8, 4, false, "no sequences"},
    {4, 100, 100, 4, true, "ragged"},
    {3, 2, 5, 6, true, "ragged, fewer tokens than sequences"},
    {2, 0, 5, 3, true, "ragged, no tokens"},
    {2, 150, 136, 4, false, "tiles, aligned"},
    {3, 90, 1032, 4, true, "ragged, aligned"},
    {1, 13, 2500, 4, false, "several blocks of channels, the last one short"},
};

struct call {
    int32_t *seq_begin; /* 8 */
    struct qrn_ssm_conv_args args;
};

static struct qrn_tensor filled(struct mem *m, struct rng *r, enum qrn_dtype type, int n_dims,
                                const int64_t *shape)
{
    const struct qrn_tensor t = mem_tensor(m, type, n_dims, shape);
    for (int64_t i = 0; i < qrn_tensor_n_elements(&t); i++) qrn_ref_set_flat(&t, i, rng_normal(r));
    return t;
}

static void make(struct call *c, struct mem *m, struct rng *r, size_t i, enum qrn_dtype type,
                 enum qrn_dtype weight)
{
    const int64_t C = cases[i].C, K = cases[i].K, n_seqs = cases[i].n_seqs, T = cases[i].T;
    const int64_t state[] = {n_seqs, C, K - 1}, taps[] = {C, K};
    const int64_t ragged[] = {T, C}, even[] = {n_seqs, T, C}, *x = cases[i].ragged ? ragged : even;
    const int n_dims = cases[i].ragged ? 2 : 3;
    *c = (struct call){.seq_begin = mem_guarded(m, 8 * sizeof *c->seq_begin),
                       .args = {.x = filled(m, r, type, n_dims, x),
                                .weight = filled(m, r, weight, 2, taps),
                                .state_in = filled(m, r, type, 3, state),
                                .state_out = mem_tensor(m, type, 3, state),
                                .out = mem_tensor(m, type, n_dims, x)}};
    if (!cases[i].ragged) return;
    c->seq_begin[0] = 0;
    for (int64_t s = 1; s <= n_seqs; s++)
        c->seq_begin[s] = s == n_seqs ? (int32_t)T : (int32_t)(T * s * s / (n_seqs * n_seqs));
    c->args.seq_begin = qrn_tensor_1d(QRN_I32, c->seq_begin, n_seqs + 1);
}

static void test_reference(void **state)
{
    static const struct {
        enum qrn_dtype type, weight;
        double tolerance; /* bf16 has 8 bits: half a unit of values up to 4 times the rms */
    } types[] = {{QRN_F32, QRN_F32, 2e-6}, {QRN_BF16, QRN_BF16, 3e-2}, {QRN_BF16, QRN_F32, 3e-2},
                 {QRN_F32, QRN_BF16, 2e-6}};
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_ssm_conv);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t j = 0; j < sizeof types / sizeof *types; j++) {
            struct mem m = {0};
            struct rng r = {i * 10 + j};
            struct call c;
            make(&c, &m, &r, i, types[j].type, types[j].weight);
            for (size_t n = 0; n < d.n; n++)
                op_test_against_reference(d.dev[n], QRN_OP_ssm_conv, &c.args, types[j].tolerance,
                                          cases[i].why);
            op_test_same_bits(QRN_OP_ssm_conv, &c.args, cases[i].why);
            c.args.state_out = c.args.state_in;
            for (size_t n = 0; n < d.n; n++)
                op_test_against_reference(d.dev[n], QRN_OP_ssm_conv, &c.args, types[j].tolerance,
                                          "state in place");
            mem_free_all(&m);
        }
    devices_close(&d);
}

static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {3};
    devices_open_for(&d, 2, QRN_OP_ssm_conv);
    const struct qrn_tensor x = filled(&m, &r, QRN_F32, 3, (const int64_t[]){3, 9, 100});
    const struct qrn_tensor out = filled(&m, &r, QRN_F32, 3, (const int64_t[]){3, 9, 90});
    const struct qrn_tensor states = filled(&m, &r, QRN_F32, 3, (const int64_t[]){6, 80, 5});
    const struct qrn_ssm_conv_args a = {
        .x = qrn_tensor_slice(x, 2, 20, 80), .out = qrn_tensor_slice(out, 2, 10, 80),
        .weight = qrn_tensor_slice(filled(&m, &r, QRN_F32, 2, (const int64_t[]){80, 6}), 1, 1, 4),
        .state_in = qrn_tensor_slice(qrn_tensor_slice(states, 0, 0, 3), 2, 1, 3),
        .state_out = qrn_tensor_slice(qrn_tensor_slice(states, 0, 3, 3), 2, 2, 3)};
    for (size_t n = 0; n < d.n; n++)
        op_test_against_reference(d.dev[n], QRN_OP_ssm_conv, &a, 2e-6, "strided");
    devices_close(&d);
    mem_free_all(&m);
}

/* One call and two calls; and the model's form of the op: the same bits. */
static void test_same_bits_cut(void **state)
{
    enum { T = 40, C = 150, K = 4 };
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_ssm_conv);
    for (size_t n = 0; n < d.n; n++) {
        struct mem m = {0};
        struct rng r = {n};
        const int64_t rows[] = {T, C}, one[] = {1, C, K - 1};
        struct {
            uint64_t address;
            int32_t all[2], part[2], position;
        } *in = mem_guarded(&m, sizeof *in);
        in->all[0] = in->part[0] = in->position = 0;
        in->all[1] = T;
        struct qrn_ssm_conv_args a = {.x = mem_filled(&m, &r, 1.0, 2, rows),
                                      .out = mem_tensor(&m, QRN_F32, 2, rows),
                                      .weight = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){C, K}),
                                      .state_in = mem_filled(&m, &r, 0.0, 3, one),
                                      .state_out = mem_tensor(&m, QRN_F32, 3, one),
                                      .seq_begin = qrn_tensor_1d(QRN_I32, in->all, 2)};
        assert_int_equal(qrn_ssm_conv(d.dev[n], &a, NULL), QRN_OK);
        const struct qrn_tensor want = a.out, state_want = a.state_out, x = a.x;
        a.out = mem_tensor(&m, QRN_F32, 2, rows);
        const struct qrn_tensor got = a.out;
        a.state_out = a.state_in;
        for (int t = 0; t < T;) { /* 1, 2, 3, ... tokens */
            const int step = t == 0 ? 1 : t % 7 + 1, count = T - t < step ? T - t : step;
            in->part[1] = count;
            a.x = qrn_tensor_slice(x, 0, t, count);
            a.out = qrn_tensor_slice(got, 0, t, count);
            a.seq_begin = qrn_tensor_1d(QRN_I32, in->part, 2);
            assert_int_equal(qrn_ssm_conv(d.dev[n], &a, NULL), QRN_OK);
            t += count;
        }
        assert_memory_equal(got.data, want.data, want.n_bytes);
        assert_memory_equal(a.state_out.data, state_want.data, state_want.n_bytes);
        void *ring = mem_guarded(&m, sizeof(float) * K * C);
        in->address = (uintptr_t)ring;
        const struct qrn_ssm_conv_history_args h = {
            .x = x, .weight = a.weight, .out = got, .seq_begin = qrn_tensor_1d(QRN_I32, in->all, 2),
            .position = qrn_tensor_1d(QRN_I32, &in->position, 1),
            .history = qrn_tensor_1d(QRN_ADDRESS, &in->address, 1), .n_history = K};
        memset(got.data, 0xff, got.n_bytes);
        assert_int_equal(qrn_ssm_conv_history(d.dev[n], &h, NULL), QRN_OK);
        assert_memory_equal(got.data, want.data, want.n_bytes);
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct call c;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    make(&c, &m, &r, 3, QRN_F32, QRN_F32);
    struct qrn_ssm_conv_args a = c.args;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_ssm_conv, &a, status, text); a = c.args
    a.weight.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "ssm_conv: weight is missing");
    a.x.n_dims = 2;
    a.x.stride[1] = 1;
    FAILS(QRN_ERR_SHAPE, "x has 2 dimensions, wants 3");
    a.weight.shape[0] = 16;
    FAILS(QRN_ERR_SHAPE, "weight.shape[0] is 16, wants 17");
    a.weight.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "weight.shape[1] is 1, wants 2 or more");
    a.x.shape[2] = 0;
    FAILS(QRN_ERR_SHAPE, "x.shape[2] is 0, wants 1 or more");
    a.state_in.shape[2] = 3;
    FAILS(QRN_ERR_SHAPE, "state_in.shape[2] is 3, wants 4");
    a.state_out.shape[0] = 1;
    FAILS(QRN_ERR_SHAPE, "state_out.shape[0] is 1, wants 2 (that of state_in)");
    a.out.shape[1] = 36;
    FAILS(QRN_ERR_SHAPE, "out.shape[1] is 36, wants 37 (that of x)");
    a.x.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "x is f16, wants f32 or bf16");
    a.weight.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "weight is f16, wants f32 or bf16");
    a.state_in.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "state_in is bf16, wants f32");
    a.out.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "out is bf16, wants f32");
    a.out = a.x;
    FAILS(QRN_ERR_ARGUMENT, "out overlaps x");
    a.state_out = a.state_in;
    a.state_out.data = (float *)a.state_in.data - 1;
    FAILS(QRN_ERR_ARGUMENT, "state_out overlaps state_in");
    make(&c, &m, &r, 8, QRN_F32, QRN_F32);
    a = c.args;
    a.seq_begin.shape[0] = 4;
    FAILS(QRN_ERR_SHAPE, "state_in.shape[0] is 4, wants 3");
    c.seq_begin[4] = 99;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[4] is 99, wants 100 (the tokens)");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_same_bits_cut),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
