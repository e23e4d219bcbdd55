/* SPDX-License-Identifier: MIT
 * gated_delta_net: against the reference for any sizes, both signs, both maps, ragged, in place. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"

static const struct {
    int64_t T, n_k_heads, n_v_heads, d_k, d_v, n_seqs; /* n_seqs 0: seq_begin absent */
    enum qrn_gate_sign sign;
    enum qrn_head_map map;
    double g; /* largest size of g */
    const char *why;
} cases[] = {
    {1, 2, 4, 128, 128, 0, QRN_GATE_LOG_DECAY, QRN_HEADS_BLOCK, 0.1, "decode"},
    {6, 2, 6, 8, 8, 2, QRN_GATE_POSITIVE, QRN_HEADS_TILED, 0.1, "the reference library's own"},
    {70, 1, 2, 128, 64, 0, QRN_GATE_LOG_DECAY, QRN_HEADS_TILED, 5.0, "strong decay"},
    {9, 1, 1, 1, 1, 0, QRN_GATE_LOG_DECAY, QRN_HEADS_BLOCK, 0.1, "smallest"},
    {7, 1, 2, 20, 23, 3, QRN_GATE_LOG_DECAY, QRN_HEADS_BLOCK, 1.0, "no vector width divides it"},
    {5, 2, 2, 256, 200, 2, QRN_GATE_POSITIVE, QRN_HEADS_BLOCK, 1.0, "both above 128"},
    {33, 1, 3, 77, 2, 5, QRN_GATE_POSITIVE, QRN_HEADS_TILED, 30.0, "states die and come back"},
    {5, 1, 2, 300, 9, 2, QRN_GATE_LOG_DECAY, QRN_HEADS_TILED, 1.0, "d_k above 256"},
    {0, 1, 2, 16, 16, 2, QRN_GATE_LOG_DECAY, QRN_HEADS_BLOCK, 1.0,
     "no tokens: the state is copied"},
};

struct call {
    int32_t *seq_begin; /* 8 */
    struct qrn_gated_delta_net_args args;
};

static void make(struct call *c, struct mem *m, struct rng *r, size_t i)
{
    const int64_t T = cases[i].T, H = cases[i].n_v_heads,
                  n_seqs = cases[i].n_seqs ? cases[i].n_seqs : 1;
    const int64_t keys[] = {T, cases[i].n_k_heads, cases[i].d_k}, values[] = {T, H, cases[i].d_v};
    const int64_t state[] = {n_seqs, H, cases[i].d_v, cases[i].d_k};
    const double norm = 1.0 / sqrt((double)cases[i].d_k);
    *c = (struct call){.seq_begin = mem_guarded(m, 8 * sizeof *c->seq_begin), .args = {
        .q = mem_filled(m, r, norm, 3, keys), .k = mem_filled(m, r, norm, 3, keys),
        .v = mem_filled(m, r, 1.0, 3, values), .g = mem_tensor(m, QRN_F32, 2, values),
        .beta = mem_tensor(m, QRN_F32, 2, values), .state_in = mem_filled(m, r, 0.5, 4, state),
        .state_out = mem_tensor(m, QRN_F32, 4, state), .out = mem_tensor(m, QRN_F32, 3, values),
        .scale = 1.5f, .gate_sign = cases[i].sign, .head_map = cases[i].map}};
    const double sign = cases[i].sign == QRN_GATE_POSITIVE ? 1.0 : -1.0;
    for (int64_t j = 0; j < T * H; j++) {
        ((float *)c->args.g.data)[j] = (float)(sign * rng_uniform(r, 0.0, cases[i].g));
        ((float *)c->args.beta.data)[j] = (float)rng_uniform(r, 0.05, 0.95);
    }
    c->seq_begin[0] = 0;
    for (int64_t s = 1; s <= n_seqs; s++)
        c->seq_begin[s] = s == n_seqs ? (int32_t)T : (int32_t)(T * s * s / (n_seqs * n_seqs));
    if (cases[i].n_seqs) c->args.seq_begin = qrn_tensor_1d(QRN_I32, c->seq_begin, n_seqs + 1);
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gated_delta_net);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct call c;
        make(&c, &m, &r, i);
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_gated_delta_net, &c.args, 5e-6,
                                      cases[i].why);
        op_test_same_bits(QRN_OP_gated_delta_net, &c.args, cases[i].why);
        c.args.state_out = c.args.state_in;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_gated_delta_net, &c.args, 5e-6,
                                      "state in place");
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* Token by token and at once, alone and together: the same bits. */
static void test_cut(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 3, QRN_OP_gated_delta_net);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t j = 0; j < d.n; j++) {
            struct mem m = {0};
            struct rng r = {i};
            struct call c;
            make(&c, &m, &r, i);
            assert_int_equal(qrn_gated_delta_net(d.dev[j], &c.args, NULL), QRN_OK);
            struct qrn_gated_delta_net_args a = c.args;
            a.out = mem_tensor(&m, QRN_F32, 3, c.args.out.shape);
            a.seq_begin = (struct qrn_tensor){0};
            const struct qrn_gated_delta_net_args one = a;
            for (int64_t s = 0; s < one.state_in.shape[0]; s++)
                for (int64_t t = c.seq_begin[s]; t < c.seq_begin[s + 1]; t++) {
                    const struct qrn_tensor *const from[] = {&one.q, &one.k,    &one.v,
                                                             &one.g, &one.beta, &one.out};
                    struct qrn_tensor *const to[] = {&a.q, &a.k, &a.v, &a.g, &a.beta, &a.out};
                    for (int n = 0; n < 6; n++) *to[n] = qrn_tensor_slice(*from[n], 0, t, 1);
                    a.state_in = a.state_out = qrn_tensor_slice(one.state_in, 0, s, 1);
                    assert_int_equal(qrn_gated_delta_net(d.dev[j], &a, NULL), QRN_OK);
                }
            if (memcmp(one.out.data, c.args.out.data, one.out.n_bytes) != 0 ||
                memcmp(one.state_in.data, c.args.state_out.data, one.state_in.n_bytes) != 0)
                fail_msg("%s, %s: token by token is not the same", qrn_device_bits(d.dev[j]),
                         cases[i].why);
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
    make(&c, &m, &r, 4);
    struct qrn_gated_delta_net_args a = c.args;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_gated_delta_net, &a, status, text); a = c.args
    a.beta.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gated_delta_net: beta is missing");
    a.v.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "v is bf16, wants f32");
    a.k.shape[2] = 16;
    FAILS(QRN_ERR_SHAPE, "k.shape[2] is 16, wants 20 (that of q)");
    a.v.shape[2] = 0;
    FAILS(QRN_ERR_SHAPE, "v.shape[2] is 0, wants 1 or more");
    a.beta.shape[0] = 6;
    FAILS(QRN_ERR_SHAPE, "beta.shape[0] is 6, wants 7");
    a.state_in.shape[3] = 19;
    FAILS(QRN_ERR_SHAPE, "state_in.shape[3] is 19, wants 20");
    a.state_out.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "state_out.shape[1] is 1, wants 2 (that of state_in)");
    a.q.shape[1] = a.k.shape[1] = 0;
    FAILS(QRN_ERR_SHAPE, "2 value heads, wants a multiple of the 0 key heads");
    a.gate_sign = (enum qrn_gate_sign)0;
    FAILS(QRN_ERR_ARGUMENT,
          "gate_sign is 0, wants QRN_GATE_LOG_DECAY (1) or QRN_GATE_POSITIVE (2)");
    a.head_map = (enum qrn_head_map)3;
    FAILS(QRN_ERR_ARGUMENT, "head_map is 3, wants QRN_HEADS_BLOCK (1) or QRN_HEADS_TILED (2)");
    a.scale = NAN;
    FAILS(QRN_ERR_ARGUMENT, "scale is nan, wants a finite number");
    a.seq_begin.n_dims = 0;
    FAILS(QRN_ERR_SHAPE, "state_in.shape[0] is 3, wants 1");
    a.out = a.v;
    FAILS(QRN_ERR_ARGUMENT, "out overlaps v");
    c.seq_begin[2] = 8;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[3] is 7, wants 8 or more");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
