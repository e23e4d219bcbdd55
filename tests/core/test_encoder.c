/* SPDX-License-Identifier: MIT
 * Recordings on any number of lanes, with threads that come late or never, equal the same ops called
 * one by one. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/op_test.h"

enum { N_FLOATS = 60000, N_OPS = 120, N_EXPERTS = 8 };

/* What the ops work on: floats that they overwrite, ids that route and matmul_id pass on. */
struct arena {
    float data[N_FLOATS];
    float weights[N_EXPERTS][32][32];
    int32_t ids[4][2];
};

struct target { /* recorded, or called at once */
    struct qrn_device *dev;
    struct qrn_encoder *enc;
};

static void emit(const struct target *t, enum qrn_op_id op, const void *args)
{
    struct qrn_error err;
    if (t->enc)
        qrn_op_record(t->enc, op, args);
    else if (qrn_op_call(t->dev, op, args, &err) != QRN_OK)
        fail_msg("%s", err.text);
}

static struct qrn_tensor piece(struct arena *a, struct rng *r, int64_t n)
{
    return qrn_tensor_1d(QRN_F32, a->data + rng_below(r, (N_FLOATS - n) / 64) * 64, n);
}

static bool apart(const struct qrn_tensor *a, const struct qrn_tensor *b)
{
    const float *x = a->data, *y = b->data;
    return x + a->shape[a->n_dims - 1] <= y || y + b->shape[b->n_dims - 1] <= x;
}

/* Three pieces of n floats, none of which shares anything with another. */
static void pieces(struct arena *a, struct rng *r, int64_t n, struct qrn_tensor p[3])
{
    do {
        for (int i = 0; i < 3; i++) p[i] = piece(a, r, n);
    } while (!apart(&p[0], &p[1]) || !apart(&p[0], &p[2]) || !apart(&p[1], &p[2]));
}

/* Ids that one op of the recording writes and another checks and follows. */
static void emit_experts(const struct target *t, struct arena *a, struct rng *r)
{
    struct qrn_tensor p[3];
    pieces(a, r, 4 * 64, p);
    const struct qrn_tensor ids = qrn_tensor_2d(QRN_I32, a->ids, 4, 2);
    const struct qrn_tensor logits = qrn_tensor_2d(QRN_F32, p[0].data, 4, N_EXPERTS);
    const struct qrn_tensor chosen = qrn_tensor_2d(QRN_F32, p[2].data, 4, 2);
    emit(t, QRN_OP_moe_route,
         &(const struct qrn_moe_route_args){.logits = logits, .ids = ids, .weights = chosen});
    emit(t, QRN_OP_matmul_id,
         &(const struct qrn_matmul_id_args){
             .w = qrn_tensor_3d(QRN_F32, a->weights, N_EXPERTS, 32, 32),
             .x = qrn_tensor_3d(QRN_F32, p[0].data, 4, 1, 32),
             .ids = ids,
             .out = qrn_tensor_3d(QRN_F32, p[1].data, 4, 2, 32)});
}

static void emit_ops(const struct target *t, struct arena *a, uint64_t seed)
{
    struct rng r = {seed};
    for (int i = 0; i < N_OPS; i++) {
        static const int64_t sizes[] = {1, 64, 100, 1000, 9000, 12000};
        struct qrn_tensor p[3];
        pieces(a, &r, sizes[rng_below(&r, 6)], p);
        switch (rng_below(&r, 4)) {
        case 0:
            emit(t, QRN_OP_sigmoid_mul,
                 &(const struct qrn_sigmoid_mul_args){.x = p[0], .gate = p[1], .out = p[2]});
            break;
        case 1:
            emit(t, QRN_OP_rms_norm,
                 &(const struct qrn_rms_norm_args){
                     .x = p[0], .residual = p[1], .sum = p[1], .out = p[2], .eps = 1e-3f});
            break;
        case 2:
            emit(t, QRN_OP_softmax,
                 &(const struct qrn_softmax_args){.x = p[0], .out = p[1], .scale = 2.0f});
            break;
        default:
            emit_experts(t, a, &r);
        }
    }
}

static void fill(struct arena *a, uint64_t seed)
{
    struct rng r = {seed};
    for (int i = 0; i < N_FLOATS; i++) a->data[i] = (float)rng_normal(&r);
    float *w = &a->weights[0][0][0];
    for (int i = 0; i < N_EXPERTS * 32 * 32; i++) w[i] = (float)rng_normal(&r);
}

/* Threads of the host that begin late: thread i after i * delay_us. */
struct late {
    int delay_us;
};
struct job {
    void (*fn)(void *arg, int i);
    void *arg;
    int i, delay_us;
    pthread_t thread;
};

static void *job_main(void *p)
{
    struct job *j = p;
    const struct timespec t = {0, (long)j->delay_us * j->i * 1000};
    (void)nanosleep(&t, NULL);
    j->fn(j->arg, j->i);
    return NULL;
}

static void late_run(void *user, int n, void (*fn)(void *arg, int i), void *arg)
{
    const struct late *late = user;
    struct job jobs[8];
    for (int i = 1; i < n; i++) {
        jobs[i] = (struct job){.fn = fn, .arg = arg, .i = i, .delay_us = late->delay_us};
        if (pthread_create(&jobs[i].thread, NULL, job_main, &jobs[i]) != 0) abort();
    }
    fn(arg, 0);
    for (int i = 1; i < n; i++) pthread_join(jobs[i].thread, NULL);
}

static void check(const struct qrn_device_options *o, uint64_t seed, int n_runs)
{
    struct qrn_error err;
    struct arena *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
    struct target now = {0}, recorded = {0};
    if (!want || !got) abort();
    if (qrn_device_open(&(const struct qrn_device_options){.n_threads = 1}, &now.dev, &err) !=
            QRN_OK ||
        qrn_device_open(o, &recorded.dev, &err) != QRN_OK ||
        qrn_encoder_create(recorded.dev, &recorded.enc, &err) != QRN_OK)
        fail_msg("%s", err.text);
    emit_ops(&recorded, got, seed);
    fill(want, seed);
    emit_ops(&now, want, seed);
    for (int run = 0; run < n_runs; run++) {
        memset(got->ids, 0, sizeof got->ids);
        fill(got, seed);
        if (qrn_encoder_submit(recorded.enc, &err) != QRN_OK) fail_msg("%s", err.text);
        if (memcmp(want, got, sizeof *want) != 0)
            fail_msg("recording %d on %d threads differs (run %d)", (int)seed,
                     qrn_device_n_threads(recorded.dev), run);
    }
    qrn_encoder_destroy(recorded.enc);
    qrn_device_close(recorded.dev);
    qrn_device_close(now.dev);
    free(want);
    free(got);
}

static void test_random_recordings(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (int n = 1; n <= 4; n++)
            check(&(const struct qrn_device_options){.n_threads = n}, seed, 3);
}

/* Lanes of threads that are not there yet are taken over by others. */
static void test_late_threads(void **state)
{
    (void)state;
    static struct late delays[] = {{0}, {50}, {200}, {3000}};
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++)
        for (int n = 2; n <= 4; n++) {
            const struct qrn_thread_pool pool = {
                .run = late_run, .n_threads = n, .user = &delays[i]};
            check(&(const struct qrn_device_options){.threads = &pool}, 100 + i, 3);
        }
}

/* Ids that a step of the recording makes are looked at when they are there, all others before
 * anything runs. */
static void test_bad_ids(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct qrn_error err;
        struct target t = {0};
        float x[64] = {0}, w[4][32] = {{0}}, out[64] = {0};
        int32_t ids[2] = {0, 0}, from[2] = {0, 7};
        const struct qrn_device_options o = {.n_threads = n_threads};
        if (qrn_device_open(&o, &t.dev, &err) != QRN_OK) fail_msg("%s", err.text);
        for (int made = 0; made < 2; made++) {
            if (qrn_encoder_create(t.dev, &t.enc, &err) != QRN_OK) fail_msg("%s", err.text);
            const struct qrn_tensor tx = qrn_tensor_1d(QRN_F32, x, 64);
            emit(&t, QRN_OP_add, &(const struct qrn_add_args){.x = tx, .y = tx, .out = tx});
            if (made)
                emit(&t, QRN_OP_copy,
                     &(const struct qrn_copy_args){.x = qrn_tensor_1d(QRN_I32, from, 2),
                                                   .out = qrn_tensor_1d(QRN_I32, ids, 2)});
            emit(&t, QRN_OP_embedding,
                 &(const struct qrn_embedding_args){.table = qrn_tensor_2d(QRN_F32, w, 4, 32),
                                                    .ids = qrn_tensor_1d(QRN_I32, ids, 2),
                                                    .out = qrn_tensor_2d(QRN_F32, out, 2, 32)});
            ids[1] = made ? 0 : 7;
            x[0] = 1.0f;
            assert_int_equal(qrn_encoder_submit(t.enc, &err), QRN_ERR_ARGUMENT);
            assert_non_null(strstr(err.text, "id 1 is 7"));
            assert_true(x[0] == (made ? 2.0f : 1.0f));
            from[1] = ids[1] = 1;
            assert_int_equal(qrn_encoder_submit(t.enc, &err), QRN_OK);
            from[1] = 7;
            qrn_encoder_destroy(t.enc);
        }
        qrn_device_close(t.dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_recordings),
        cmocka_unit_test(test_late_threads),
        cmocka_unit_test(test_bad_ids),
    };
    return cmocka_run_group_tests_name("encoder", tests, NULL, NULL);
}
