/* SPDX-License-Identifier: MIT
 * gdn_open_chunk: against the plain recurrence in float64; views, sizes and errors. */
#include <stdlib.h>

#include "ops/gdn_sequences.h"

static void test_reference(void **state)
{
    static const int32_t positions[] = {0, 62, 64, 127, 300};
    static const int64_t lengths[] = {1, 3, 0, 65, 5};
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gdn_open_chunk);
    for (size_t i = 0; i < N_SHAPES * 2; i++) {
        const struct shape *z = &shapes[i % N_SHAPES];
        const enum decay decay = i < N_SHAPES ? MILD : STRONG;
        struct mem m = {0};
        struct rng r = {i + 1};
        struct call *c = make_call(&m);
        const struct tokens w = make_tokens(&m, &r, z, 74, decay);
        const int64_t shape[] = {74, z->n_v_heads, z->d_v};
        for (int s = 0; s < 5; s++) {
            struct sequence q = make_sequence(&m, z, false), start_of = make_sequence(&m, z, false);
            start(&start_of, z, i * 10 + (uint64_t)s);
            q.position = positions[s];
            fill_rows(&r, z, &q, decay);
            call_add(c, s, &q, lengths[s]);
            c->state[s][0] = (uintptr_t)start_of.state[0]; /* apart: every run begins alike */
        }
        call_finish(c, 5, &w, mem_tensor(&m, QRN_F32, 3, shape));
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_gdn_open_chunk, &c->args, 1e-5, z->why);
        op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, z->why);
        c->args.settled = true;
        op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, z->why);
        mem_free_all(&m);
    }
    devices_close(&d);
}

static double error_of(const float *got, const double *want, int64_t n)
{
    double worst = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double e = fabs((double)got[i] - want[i]);
        if (!(e <= worst)) worst = e;
        squares += want[i] * want[i];
    }
    return worst / sqrt(squares / (double)n);
}

/* 200 tokens from S0 to a state three edges on, against float64. */
static void test_state(void **state)
{
    enum { T = 200, EDGE = 192 };
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gdn_open_chunk); /* the first has the kernels of all */
    for (size_t i = 0; i < N_SHAPES * 3; i++) {
        const struct shape *z = &shapes[i % N_SHAPES];
        struct mem m = {0};
        struct rng r = {i + 31};
        const struct tokens w = make_tokens(&m, &r, z, T, (enum decay)(i / N_SHAPES));
        const int64_t shape[] = {T, z->n_v_heads, z->d_v};
        const int64_t n_out = T * z->n_v_heads * z->d_v, n_state = z->n_v_heads * z->d_k * z->d_v;
        struct sequence s = make_sequence(&m, z, true);
        struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3, shape);
        double *S = calloc((size_t)(n_state + n_out), sizeof *S), *want = S + n_state;
        start(&s, z, i);
        for (int64_t j = 0; j < n_state; j++) S[j] = (double)s.state[0][j];
        recurrence(S, &w, EDGE, 1.5, want);
        struct qrn_device *const last = d.dev[d.n - 1];
        const struct qrn_kernel *k;
        for (size_t n = 0;; n++) {
            struct qrn_device *dev = d.dev[0];
            k = qrn_kernel_at(dev, QRN_OP_gdn_open_chunk, n);
            if (!k && is_gpu(last) && i % N_SHAPES) {
                dev = last;
                k = qrn_kernel_at(dev, QRN_OP_gdn_open_chunk, 0);
            }
            if (!k) break;
            start(&s, z, i);
            feed(dev, k, &w, &s, T, out);
            const double e_out = error_of(out.data, want, EDGE * z->n_v_heads * z->d_v);
            const double e_state = error_of(s.state[0], S, n_state);
            if (!(e_out <= 1e-5 && e_state <= 1e-5))
                fail_msg("%s, %s, decay %zu: out %.3g, state %.3g of the rms, 1e-5 allowed",
                         k->name, z->why, i / N_SHAPES, e_out, e_state);
            if (is_gpu(dev)) break;
        }
        free(S);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* Views into one row of a fused projection; offsets of a layer. */
static void test_strided(void **state)
{
    (void)state;
    const struct shape *z = &shapes[1];
    enum { T = 70 };
    struct devices d;
    struct mem m = {0};
    struct rng r = {17};
    struct call *c = make_call(&m);
    devices_open_for(&d, 2, QRN_OP_gdn_open_chunk);
    const int64_t K = z->n_k_heads * z->d_k, V = z->n_v_heads * z->d_v, H = z->n_v_heads;
    struct tokens w = make_tokens(&m, &r, z, T, MILD);
    const struct qrn_tensor wide = mem_filled(&m, &r, 0.1, 2, (const int64_t[]){T, 2 * K + V + 3});
    const struct qrn_tensor gates = mem_filled(&m, &r, 0.0, 2, (const int64_t[]){T, 2 * H + 1});
    for (int64_t i = 0; i < T * (2 * H + 1); i++)
        ((float *)gates.data)[i] = (i & 1) ? -0.25f : -0.125f;
    const struct qrn_tensor out = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){T, V + 8});
    w.q = qrn_tensor_split_last(qrn_tensor_slice(wide, 1, 0, K), z->n_k_heads, z->d_k);
    w.k = qrn_tensor_split_last(qrn_tensor_slice(wide, 1, K, K), z->n_k_heads, z->d_k);
    w.v = qrn_tensor_split_last(qrn_tensor_slice(wide, 1, 2 * K, V), H, z->d_v);
    w.g = qrn_tensor_slice(gates, 1, 0, H);
    w.beta = qrn_tensor_slice(gates, 1, H, H);
    struct sequence s = make_sequence(&m, z, false), from = make_sequence(&m, z, false);
    start(&from, z, 3);
    call_add(c, 0, &s, T);
    c->state[0][0] = (uintptr_t)from.state[0];
    for (int i = 0; i < 3; i++) c->state[0][i] -= 4096;
    for (int i = 0; i < 2; i++) c->rows[0][i] -= 128;
    call_finish(c, 1, &w, qrn_tensor_split_last(qrn_tensor_slice(out, 1, 5, V), H, z->d_v));
    c->args.state_offset = 4096;
    c->args.rows_offset = 128;
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_gdn_open_chunk, &c->args, 1e-5, "strided");
    devices_close(&d);
    mem_free_all(&m);
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(qrn_gdn_state_bytes(32, 128, 128), 32 * 128 * 128 * 4);
    assert_int_equal(qrn_gdn_state_bytes(1, 1, 1), 64);
    assert_int_equal(qrn_gdn_rows_bytes(1, 1, 1, 1), 512 + 256 + 256);
    assert_int_equal(qrn_gdn_rows_bytes(16, 32, 128, 128),
                     32 * 512 + 16 * 128 * 256 + 32 * 64 * 512);
    assert_int_equal(qrn_gdn_state_bytes(0, 128, 128), 0);
    assert_int_equal(qrn_gdn_state_bytes(INT64_MAX, 128, 128), 0);
    assert_int_equal(qrn_gdn_rows_bytes(1, INT64_MAX / 2, 1, 1), 0);
}

static void test_errors(void **state)
{
    (void)state;
    enum { T = 3 };
    const struct shape *z = &shapes[1];
    struct mem m = {0};
    struct rng r = {5};
    struct call *c = make_call(&m);
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct tokens w = make_tokens(&m, &r, z, T, MILD);
    struct sequence s = make_sequence(&m, z, false);
    start(&s, z, 1);
    s.position = 62;
    call_add(c, 0, &s, T);
    call_finish(c, 1, &w, mem_tensor(&m, QRN_F32, 3, (const int64_t[]){T, z->n_v_heads, z->d_v}));
    struct qrn_gdn_open_chunk_args a = c->args;
#define FAILS(status, text)                                      \
    op_test_fails(dev, QRN_OP_gdn_open_chunk, &a, status, text); \
    a = c->args
    a.k.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_open_chunk: k is missing");
    a.q.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "q is f16, wants f32 or bf16");
    a.q.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "k is f32, wants bf16");
    a.acts = QRN_ACT_Q8;
    FAILS(QRN_ERR_ARGUMENT, "acts is 1, wants QRN_ACT_F32 (0) or QRN_ACT_BF16 (2)");
    a.k.shape[2] = 32;
    FAILS(QRN_ERR_SHAPE, "k.shape[2] is 32, wants 64 (that of q)");
    a.v.shape[0] = 2;
    FAILS(QRN_ERR_SHAPE, "v.shape[0] is 2, wants 3");
    a.q.shape[2] = a.k.shape[2] = 0;
    FAILS(QRN_ERR_SHAPE, "q.shape[2] is 0, wants 1 or more");
    a.g.shape[1] = 5;
    FAILS(QRN_ERR_SHAPE, "g.shape[1] is 5, wants 6");
    a.v.shape[1] = a.out.shape[1] = a.g.shape[1] = a.beta.shape[1] = 5;
    FAILS(QRN_ERR_SHAPE, "5 value heads, wants a multiple of the 2 key heads");
    a.head_map = (enum qrn_head_map)0;
    FAILS(QRN_ERR_ARGUMENT, "head_map is 0, wants QRN_HEADS_BLOCK (1) or QRN_HEADS_TILED (2)");
    a.scale = INFINITY;
    FAILS(QRN_ERR_ARGUMENT, "scale is inf, wants a finite number");
    a.seq_begin.dtype = QRN_F32;
    FAILS(QRN_ERR_DTYPE, "seq_begin is f32, wants i32");
    a.position.shape[0] = 0;
    FAILS(QRN_ERR_SHAPE, "position.shape[0] is 0, wants 1");
    a.state.shape[1] = 2;
    FAILS(QRN_ERR_SHAPE, "state.shape[1] is 2, wants 3");
    a.rows.dtype = QRN_I64;
    FAILS(QRN_ERR_DTYPE, "rows is i64, wants address");
    a.rows_offset = 4;
    FAILS(QRN_ERR_ARGUMENT, "rows_offset 4, want multiples of 8");
    a.out = a.v;
    FAILS(QRN_ERR_ARGUMENT, "out overlaps v");
    c->seq_begin[1] = 2;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[1] is 2, wants 3 (the tokens)");
    c->seq_begin[1] = -1;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[1] is -1, wants 0 or more");
    c->seq_begin[1] = 3;
    c->seq_begin[0] = 1;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[0] is 1, wants 0");
    c->seq_begin[0] = 0;
    c->position[0] = -1;
    FAILS(QRN_ERR_ARGUMENT, "position[0] is -1, wants 0 to 2147483644");
    c->position[0] = 62;
    c->rows[0][1] = 0; /* chunk 1 is entered by the third token */
    FAILS(QRN_ERR_ARGUMENT, "rows[0][1] is 0, wants a multiple of 8, not 0");
    c->rows[0][1] = (uintptr_t)s.rows[1];
    c->state[0][2] = 4;
    FAILS(QRN_ERR_ARGUMENT, "state[0][2] is 0x4, wants a multiple of 8, not 0");
    c->state[0][2] = (uintptr_t)s.state[1];
    c->state[0][1] = 0; /* chunk 2 is not reached */
    c->position[0] = 61;
    c->rows[0][1] = 0;
    assert_int_equal(qrn_gdn_open_chunk(dev, &a, NULL), QRN_OK);
    c->state[0][0] = 0;
    FAILS(QRN_ERR_ARGUMENT, "state[0][0] is 0, wants");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_state),
        cmocka_unit_test(test_strided),   cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
