/* SPDX-License-Identifier: MIT
 * ssm_conv_history: against the reference, cut into calls, and after going back. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"

enum { MAX_SEQS = 5 };

struct call {
    uint64_t history[MAX_SEQS];
    int32_t seq_begin[MAX_SEQS + 1], position[MAX_SEQS];
    struct qrn_ssm_conv_history_args args;
};

static const struct {
    int64_t C, K, n_history, lengths[MAX_SEQS];
    int32_t positions[MAX_SEQS];
    const char *why;
} cases[] = {
    {8192, 4, 67, {1}, {70}, "decode, the released models' width"},
    {100, 4, 3, {1, 1, 1, 1, 1}, {0, 1, 2, 3, 1000}, "decode of five, smallest ring"},
    {64, 4, 3, {2, 5, 0, 1, 70}, {0, 2, 5, 62, 64}, "ragged, ring as small as may be"},
    {17, 2, 1, {1, 2, 3, 0, 9}, {0, 1, 2, 3, 4}, "K = 2"},
    {3, 5, 9, {4, 3, 30, 1, 1}, {0, 3, 7, 8, 9}, "K = 5, ring longer than needed"},
    {1, 9, 8, {3, 1, 1, 20, 8}, {0, 1, 7, 8, 9}, "K = 9, fewer tokens than taps"},
    {130, 3, 66, {200, 0, 0, 0, 0}, {31, 0, 0, 0, 0}, "more tokens than the ring holds"},
    {132, 4, 67, {200, 1, 70, 65, 3}, {31, 5, 64, 0, 2}, "4 taps, more tokens than the ring holds"},
    {20, 4, 3, {33, 8, 9, 40, 31}, {2, 1, 0, 7, 9}, "4 taps, long prompts, smallest ring"},
};

static struct call *make(struct mem *m, struct rng *r, size_t i)
{
    struct call *c = mem_guarded(m, sizeof *c);
    memset(c, 0, sizeof *c);
    int n = 0;
    for (; n < MAX_SEQS && (n == 0 || cases[i].lengths[1]); n++) {
        const int64_t shape[] = {cases[i].n_history, cases[i].C};
        c->history[n] = (uintptr_t)mem_filled(m, r, 1.0, 2, shape).data;
        c->position[n] = cases[i].positions[n];
        c->seq_begin[n + 1] = c->seq_begin[n] + (int32_t)cases[i].lengths[n];
    }
    const int64_t T = c->seq_begin[n], shape[] = {T, cases[i].C}, taps[] = {cases[i].C, cases[i].K};
    c->args =
        (struct qrn_ssm_conv_history_args){.x = mem_filled(m, r, 1.0, 2, shape),
                                           .weight = mem_filled(m, r, 1.0, 2, taps),
                                           .seq_begin = qrn_tensor_1d(QRN_I32, c->seq_begin, n + 1),
                                           .position = qrn_tensor_1d(QRN_I32, c->position, n),
                                           .history = qrn_tensor_1d(QRN_ADDRESS, c->history, n),
                                           .out = mem_tensor(m, QRN_F32, 2, shape),
                                           .n_history = cases[i].n_history};
    return c;
}

/* A ring is written over, so every kernel gets a fresh one. */
static void against_reference(struct qrn_device *dev, struct call *c, const char *why)
{
    const struct qrn_kernel *k;
    const struct qrn_ssm_conv_history_args *a = &c->args;
    const int64_t n_out = a->x.shape[0] * a->x.shape[1], n_seqs = a->position.shape[0];
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_ssm_conv_history, i)) != NULL; i++) {
        struct mem m = {0};
        struct qrn_ssm_conv_history_args fresh = *a, want = *a;
        uint64_t *history = mem_guarded(&m, MAX_SEQS * sizeof *history);
        const size_t bytes = (size_t)(a->n_history * a->x.shape[1]) * sizeof(float);
        for (int64_t s = 0; s < n_seqs; s++) {
            void *ring = mem_guarded(&m, bytes);
            memcpy(ring, (void *)(uintptr_t)c->history[s], bytes);
            history[s] = (uintptr_t)ring - 16;
        }
        fresh.history.data = history;
        fresh.history_offset = 16;
        want.out = mem_tensor(&m, QRN_F64, 2, a->out.shape);
        qrn_op(QRN_OP_ssm_conv_history)->reference(&want);
        memset(a->out.data, 0xff, a->out.n_bytes);
        struct qrn_error err;
        if (k->supports && !k->supports(&fresh)) {
            mem_free_all(&m);
            continue;
        }
        if (qrn_kernel_run(dev, k, &fresh, &err) != QRN_OK) fail_msg("%s: %s", why, err.text);
        for (int64_t e = 0; e < n_out; e++) {
            const double got = qrn_ref_get_flat(&a->out, e), x = qrn_ref_get_flat(&want.out, e);
            if (!(fabs(got - x) <= 5e-6))
                fail_msg("%s, %s: out %g, wants %g", k->name, why, got, x);
        }
        for (int64_t s = 0; s < n_seqs; s++) { /* the ring: what was there, then the new rows */
            float *ring = (float *)(uintptr_t)c->history[s],
                  *got = (float *)(uintptr_t)(history[s] + 16);
            float *old = mem_guarded(&m, bytes);
            memcpy(old, ring, bytes);
            for (int64_t t = c->seq_begin[s]; t < c->seq_begin[s + 1]; t++)
                memcpy(old + (c->position[s] + t - c->seq_begin[s]) % a->n_history * a->x.shape[1],
                       (float *)a->x.data + t * a->x.stride[0],
                       (size_t)a->x.shape[1] * sizeof(float));
            if (memcmp(old, got, bytes) != 0)
                fail_msg("%s, %s: history of %d", k->name, why, (int)s);
        }
        mem_free_all(&m);
    }
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_ssm_conv_history);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct call *c = make(&m, &r, i);
        for (size_t j = 0; j < d.n; j++) against_reference(d.dev[j], c, cases[i].why);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* tokens begin .. end - 1 of x, in calls of split; threads too must not change a bit. */
static void feed(struct qrn_device *dev, const struct call *whole, uint64_t ring, int64_t begin,
                 int64_t end, int64_t split)
{
    for (int64_t t = begin; t < end; t += split) {
        const int64_t n = end - t < split ? end - t : split;
        struct mem m = {0};
        struct {
            uint64_t ring;
            int32_t seq_begin[2], position;
        } *in = mem_guarded(&m, sizeof *in);
        in->ring = ring;
        in->seq_begin[0] = 0;
        in->seq_begin[1] = (int32_t)n;
        in->position = (int32_t)t;
        struct qrn_ssm_conv_history_args a = whole->args;
        a.x = qrn_tensor_slice(a.x, 0, t, n);
        a.out = qrn_tensor_slice(a.out, 0, t, n);
        a.seq_begin = qrn_tensor_1d(QRN_I32, in->seq_begin, 2);
        a.position = qrn_tensor_1d(QRN_I32, &in->position, 1);
        a.history = qrn_tensor_1d(QRN_ADDRESS, &in->ring, 1);
        assert_int_equal(qrn_ssm_conv_history(dev, &a, NULL), QRN_OK);
        mem_free_all(&m);
    }
}

static void test_splits_and_rollback(void **state)
{
    enum { T = 150, C = 70, BACK = 64 };
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct devices d;
        devices_open_for(&d, n_threads, QRN_OP_ssm_conv_history);
        for (size_t j = 0; j < d.n; j++) {
            struct mem m = {0};
            struct rng r = {7};
            struct call *c = make(&m, &r, 2);
            c->args.x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){T, C});
            c->args.weight = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){C, 4});
            c->args.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){T, C});
            c->args.n_history = 3 + BACK;
            float *ring = mem_guarded(&m, sizeof(float) * (3 + BACK) * C);
            void *want = mem_guarded(&m, c->args.out.n_bytes);
            memset(ring, 0xff,
                   sizeof(float) * (3 + BACK) * C); /* nothing before position 0 is read */
            feed(d.dev[j], c, (uintptr_t)ring, 0, T, 1);
            memcpy(want, c->args.out.data, c->args.out.n_bytes);
            static const int64_t splits[] = {2, 3, 7, 63, 64, 65, T};
            for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
                memset(c->args.out.data, 0xff, c->args.out.n_bytes);
                feed(d.dev[j], c, (uintptr_t)ring, 0, T, splits[i]);
                assert_memory_equal(want, c->args.out.data, c->args.out.n_bytes);
            }
            struct call wrong = *c;
            wrong.args.x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){T, C});
            feed(d.dev[j], &wrong, (uintptr_t)ring, T - BACK, T, 5);
            feed(d.dev[j], c, (uintptr_t)ring, T - BACK, T, 9);
            assert_memory_equal(want, c->args.out.data, c->args.out.n_bytes);
            mem_free_all(&m);
        }
        devices_close(&d);
    }
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    struct call *c = make(&m, &r, 4);
    struct qrn_ssm_conv_history_args a = c->args;
#define FAILS(status, text)                                        \
    op_test_fails(dev, QRN_OP_ssm_conv_history, &a, status, text); \
    a = c->args
    a.x.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "ssm_conv_history: x is missing");
    a.x.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "x is bf16, wants f32");
    a.weight.shape[0] = 2;
    FAILS(QRN_ERR_SHAPE, "weight.shape[0] is 2, wants 3");
    a.weight.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "weight.shape[1] is 1, wants 2 or more");
    a.x.shape[1] = a.out.shape[1] = a.weight.shape[0] = 0;
    FAILS(QRN_ERR_SHAPE, "x.shape[1] is 0, wants 1 or more");
    a.out.shape[0] = 1;
    FAILS(QRN_ERR_SHAPE, "out.shape[0] is 1, wants 39 (that of x)");
    a.position.dtype = QRN_U32;
    FAILS(QRN_ERR_DTYPE, "position is u32, wants i32");
    a.history.shape[0] = 4;
    FAILS(QRN_ERR_SHAPE, "history.shape[0] is 4, wants 5");
    a.history.dtype = QRN_U64;
    FAILS(QRN_ERR_DTYPE, "history is u64, wants address");
    a.n_history = 3;
    FAILS(QRN_ERR_ARGUMENT, "n_history is 3, wants 4 or more");
    a.history_offset = 2;
    FAILS(QRN_ERR_ARGUMENT, "history_offset is 2, wants a multiple of 4");
    a.out = a.x;
    FAILS(QRN_ERR_ARGUMENT, "out overlaps x");
    c->position[1] = -5;
    FAILS(QRN_ERR_ARGUMENT, "position[1] is -5, wants 0 to 2147483644");
    c->position[1] = 0;
    c->seq_begin[1] = 8;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[2] is 7, wants 8 or more");
    c->seq_begin[1] = 4;
    c->history[2] = 0;
    FAILS(QRN_ERR_ARGUMENT, "history[2] is 0, wants a multiple of 4, not 0");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_splits_and_rollback),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
