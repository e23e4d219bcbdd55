/* SPDX-License-Identifier: MIT
 * gdn_chunk_out: against the reference; all six stages against the plain recurrence. */
#include <math.h>
#include <string.h>

#include "support/gdn_stages.h"

static void test_reference(void **state)
{
    (void)state;
    /* bf16: half a unit in 8 bits of values up to a few times the rms */
    stages_test(QRN_OP_gdn_chunk_out, offsetof(struct stages, chunk_out), 6e-6, 6e-2);
}

static double error_of(const struct qrn_tensor *got, const struct qrn_tensor *want, double *rms)
{
    const int64_t n = qrn_tensor_n_elements(got);
    double worst = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double w = qrn_ref_get_flat(want, i), e = fabs(qrn_ref_get_flat(got, i) - w);
        if (!(e <= worst)) worst = e;
        squares += w * w;
    }
    *rms = sqrt(squares / (double)n);
    return worst / *rms;
}

/* The float64 recurrence tells the order of decay and prediction apart, and a zero from a small
 * number, because |out| is about 1. */
static void test_pipeline(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gdn_chunk_out);
    for (size_t i = 0; i < n_stages_cases; i++) {
        const struct stages_case *c = &stages_cases[i];
        if (c->n_tokens == 0) continue;
        struct mem m = {0};
        struct stages s;
        stages_make(&s, &m, c, i + 100);
        const struct qrn_gated_delta_net_args want = {
            .q = s.q, .k = s.k, .v = s.v, .g = s.g, .beta = s.beta, .seq_begin = s.cumsum.seq_begin,
            .state_in = s.state_in, .state_out = mem_tensor(&m, QRN_F64, 4, s.state_in.shape),
            .out = mem_tensor(&m, QRN_F64, 3, s.out.shape), .scale = 1.5f,
            .gate_sign = QRN_GATE_LOG_DECAY, .head_map = c->map};
        qrn_op(QRN_OP_gated_delta_net)->reference(&want);
        for (size_t j = 0; j < d.n; j++) {
            double rms, state_rms;
            memset(s.out.data, 0xff, s.out.n_bytes);
            stages_run(&s, d.dev[j]);
            const double e = error_of(&s.out, &want.out, &rms);
            const double e_state = error_of(&s.state_out, &want.state_out, &state_rms);
            /* in f32 a G of -60 is off by 4e-6, and so are the decays behind it */
            const double f32 = c->G_type == QRN_F64 || c->decay == STAGES_MILD ? 1e-5 : 1e-4;
            const double allowed = c->type == QRN_BF16 ? 6e-2 : f32;
            if (!(e <= allowed && e_state <= allowed))
                fail_msg("%s: out %.3g, state %.3g of the rms, %.3g allowed", c->why, e, e_state,
                         allowed);
            if (c->n_tokens > 1) assert_true(rms > 0.1 && rms < 10.0);
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct stages s;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    stages_make(&s, &m, &stages_cases[2], 1);
    struct qrn_gdn_chunk_out_args a = s.chunk_out;
#define FAILS(status, text)                                     \
    op_test_fails(dev, QRN_OP_gdn_chunk_out, &a, status, text); \
    a = s.chunk_out
    a.q.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_chunk_out: q is missing");
    a.k.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "k is bf16, wants f32");
    a.k.shape[0] = 100;
    FAILS(QRN_ERR_SHAPE, "k.shape[0] is 100, wants 200");
    a.v_new.shape[0] = 100;
    FAILS(QRN_ERR_SHAPE, "v_new.shape[0] is 100, wants 200");
    a.out.shape[2] = 31;
    FAILS(QRN_ERR_SHAPE, "out.shape[2] is 31, wants 32");
    a.h.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "h.shape[1] is 1, wants 2");
    a.h.shape[0] = 4;
    FAILS(QRN_ERR_SHAPE, "h.shape[0] is 4, wants the 5 chunks or more");
    a.G.dtype = QRN_I32;
    FAILS(QRN_ERR_DTYPE, "G is i32, wants f32 or f64");
    a.scale = INFINITY;
    FAILS(QRN_ERR_ARGUMENT, "scale is inf, wants a finite number");
    a.head_map = (enum qrn_head_map)0;
    FAILS(QRN_ERR_ARGUMENT, "head_map is 0, wants QRN_HEADS_BLOCK (1) or QRN_HEADS_TILED (2)");
    s.seq_begin[4] = 199;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[4] is 199, wants 200 (the tokens)");
    s.seq_begin[4] = 200;
    s.seq_begin[1] = 100;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[2] is 50, wants 100 or more");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
