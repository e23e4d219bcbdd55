/* SPDX-License-Identifier: MIT
 * Devices, buffers, pools, encoders, the registry, and the host's parts in their place. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu_features.h"
#include "core/pool.h"
#include "support/counting_allocator.h"
#include "support/op_test.h"

static void expect(enum qrn_status got, enum qrn_status want, const struct qrn_error *err,
                   const char *fragment)
{
    if (got != want || !strstr(err->text, fragment))
        fail_msg("wants %s with \"%s\", got %s: %s", qrn_status_name(want), fragment,
                 qrn_status_name(got), err->text);
}

static struct qrn_device *open_device(struct qrn_device_options o)
{
    struct qrn_error err;
    struct qrn_device *dev = NULL;
    if (qrn_device_open(&o, &dev, &err) != QRN_OK) fail_msg("%s", err.text);
    return dev;
}

static void test_open_errors(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev;
    struct qrn_device_options o = {.name = "abacus"};
    expect(qrn_device_open(&o, &dev, &err), QRN_ERR_ARGUMENT, &err, "no device \"abacus\"");
    o = (struct qrn_device_options){.n_threads = -1};
    expect(qrn_device_open(&o, &dev, &err), QRN_ERR_ARGUMENT, &err, "n_threads is -1");
    o = (struct qrn_device_options){.cpu_disable = "avx2,mmx3"};
    expect(qrn_device_open(&o, &dev, &err), QRN_ERR_ARGUMENT, &err, "unknown CPU feature \"mmx3\"");
    o = (struct qrn_device_options){.amx = (enum qrn_amx)2};
    expect(qrn_device_open(&o, &dev, &err), QRN_ERR_ARGUMENT, &err, "amx is 2, wants 0 or 1");
    o = (struct qrn_device_options){.kernels = "rms_norm"};
    expect(qrn_device_open(&o, &dev, &err), QRN_ERR_ARGUMENT, &err,
           "\"rms_norm\" is not op=kernel");
    o = (struct qrn_device_options){.kernels = "add=cpu.rms_norm.generic"};
    expect(qrn_device_open(&o, &dev, &err), QRN_ERR_ARGUMENT, &err, "names no kernel of that op");
#if defined(__x86_64__)
    o = (struct qrn_device_options){.kernels = "add=cpu.add.avx512", .cpu_disable = "avx512f"};
    expect(qrn_device_open(&o, &dev, &err), QRN_ERR_UNSUPPORTED, &err,
           "cannot run on this machine");
#endif
}

static void test_kernels_can_be_chosen(void **state)
{
    (void)state;
    struct qrn_device *dev = open_device(
        (struct qrn_device_options){.kernels = "rms_norm=cpu.rms_norm.generic", .n_threads = 1});
    const struct qrn_kernel *k = NULL;
    float x[4] = {1, 2, 3, 4}, out[4];
    const struct qrn_rms_norm_args a = {.x = qrn_tensor_1d(QRN_F32, x, 4),
                                        .out = qrn_tensor_1d(QRN_F32, out, 4)};
    assert_int_equal(qrn_kernel_choose(dev, QRN_OP_rms_norm, &a, &k, NULL), QRN_OK);
    assert_string_equal(k->name, "cpu.rms_norm.generic");
    qrn_device_close(dev);
}

/* Each op has a kernel that runs anywhere, and every name says backend and op. */
static void test_registry(void **state)
{
    (void)state;
    struct qrn_device *dev = open_device((struct qrn_device_options){.n_threads = 1});
    const char *op;
    size_t n_ops = 0;
    for (; (op = qrn_op_name(n_ops)) != NULL; n_ops++) {
        struct qrn_kernel_info info;
        bool anywhere = false;
        char prefix[64];
        (void)snprintf(prefix, sizeof prefix, "cpu.%s.", op);
        for (size_t k = 0; qrn_kernel_info(dev, n_ops, k, &info); k++) {
            if (strncmp(info.name, prefix, strlen(prefix)) != 0) fail_msg("%s: %s", op, info.name);
            if (info.needs[0] == '\0') {
                anywhere = true;
                assert_true(info.usable);
            }
        }
        if (!anywhere && strcmp(op, "matmul_pack") != 0) fail_msg("%s has no portable kernel", op);
    }
    assert_true(n_ops == QRN_OP_COUNT);
    assert_null(qrn_op_name(n_ops + 7));
    qrn_device_close(dev);
}

/* A kernel stands behind all others where what it wants is not there, and can still run. */
static void test_unwanted_come_last(void **state)
{
    (void)state;
    struct qrn_device *dev = open_device((struct qrn_device_options){.cpu_disable = "bf16_dots"});
    const bool has_dots = dev->features & QRN_CPU_AVX512_BF16;
    bool seen = false;
    for (int op = 0; op < QRN_OP_COUNT; op++) {
        const struct qrn_kernel *k;
        bool last = false;
        for (size_t i = 0; (k = qrn_kernel_at(dev, (enum qrn_op_id)op, i)) != NULL; i++) {
            const bool unwanted = (k->wants & ~dev->features) != 0;
            if (last && !unwanted) fail_msg("%s stands behind one that is not wanted", k->name);
            last = unwanted;
            seen = seen || strcmp(k->name, "cpu.matmul.avx512bf16") == 0;
        }
        if (has_dots && op == QRN_OP_matmul) assert_true(last);
    }
    assert_true(seen == has_dots);
    qrn_device_close(dev);
}

static void test_buffers(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = open_device((struct qrn_device_options){.n_threads = 1});
    struct qrn_buffer *whole, *part, *inner, *none;
    expect(qrn_buffer_create(dev, 0, &none, &err), QRN_ERR_ARGUMENT, &err, "0 bytes");
    assert_int_equal(qrn_buffer_create(dev, 1000, &whole, &err), QRN_OK);
    char *bytes = qrn_buffer_data(whole);
    assert_int_equal((uintptr_t)bytes % 64, 0);
    for (int i = 0; i < 1000; i++) assert_int_equal(bytes[i], 0);
    /* slices of slices count from their parent, and know their own size */
    assert_int_equal(qrn_buffer_slice(whole, 100, 300, &part, &err), QRN_OK);
    assert_int_equal(qrn_buffer_slice(part, 40, 60, &inner, &err), QRN_OK);
    assert_ptr_equal(qrn_buffer_data(inner), bytes + 140);
    assert_int_equal(qrn_buffer_size(inner), 60);
    expect(qrn_buffer_slice(part, 250, 51, &none, &err), QRN_ERR_ARGUMENT, &err,
           "a slice of 51 bytes at 250 does not lie in a buffer of 300");
    expect(qrn_buffer_slice(part, SIZE_MAX, 2, &none, &err), QRN_ERR_ARGUMENT, &err,
           "does not lie");
    struct qrn_tensor t;
    assert_int_equal(qrn_buffer_tensor(inner, 20, QRN_F32, 2, (const int64_t[]){2, 5}, &t, &err),
                     QRN_OK);
    assert_ptr_equal(t.data, bytes + 160);
    assert_int_equal(t.n_bytes, 40);
    expect(qrn_buffer_tensor(inner, 20, QRN_F32, 2, (const int64_t[]){2, 6}, &t, &err),
           QRN_ERR_SHAPE, &err, "does not fit into the 40 bytes after 20");
    expect(qrn_buffer_tensor(inner, 0, QRN_Q4_0, 1, (const int64_t[]){33}, &t, &err), QRN_ERR_SHAPE,
           &err, "rows of 33 are no whole blocks of 32");
    expect(qrn_buffer_tensor(inner, 0, QRN_F32, 2, (const int64_t[]){INT64_MAX, 8}, &t, &err),
           QRN_ERR_SHAPE, &err, "does not fit");
    /* a slice keeps its parents alive */
    qrn_buffer_release(whole);
    qrn_buffer_release(part);
    memset(qrn_buffer_data(inner), 1, 60);
    qrn_buffer_release(inner);
    qrn_device_close(dev);
}

static void test_pool(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = open_device((struct qrn_device_options){.n_threads = 1});
    struct qrn_pool *pool;
    struct qrn_buffer *a, *b, *c;
    assert_int_equal(qrn_pool_create(dev, 10000, &pool, &err), QRN_OK);
    assert_int_equal(qrn_pool_acquire(pool, 4000, &a, &err), QRN_OK);
    assert_int_equal(qrn_buffer_size(a), 4000);
    memset(qrn_buffer_data(a), 0x55, 4000);
    void *first = qrn_buffer_data(a);
    qrn_buffer_release(a);
    assert_true(qrn_pool_stats(pool).free_bytes >= 4000);
    assert_int_equal(qrn_pool_acquire(pool, 3990, &b, &err), QRN_OK); /* the same memory, zeroed */
    assert_ptr_equal(qrn_buffer_data(b), first);
    assert_int_equal(qrn_buffer_size(b), 3990);
    for (int i = 0; i < 3990; i++) assert_int_equal(((char *)qrn_buffer_data(b))[i], 0);
    expect(qrn_pool_acquire(pool, 7000, &c, &err), QRN_ERR_LIMIT, &err,
           "of a budget of 10000 are in use");
    expect(qrn_pool_acquire(pool, 0, &c, &err), QRN_ERR_ARGUMENT, &err, "0 bytes");
    /* what is kept makes room when another size is wanted */
    qrn_buffer_release(b);
    assert_int_equal(qrn_pool_acquire(pool, 7000, &c, &err), QRN_OK);
    assert_int_equal(qrn_pool_stats(pool).free_bytes, 0);
    assert_true(qrn_pool_stats(pool).peak_bytes <= 10000);
    qrn_pool_trim(pool);
    qrn_pool_destroy(pool); /* a buffer in use outlives its pool */
    memset(qrn_buffer_data(c), 7, 7000);
    qrn_buffer_release(c);
    qrn_device_close(dev);
}

/* One budget for two devices; what is kept of one is nothing for the other, but makes room for it. */
static void test_pool_of_two(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *devs[2];
    struct qrn_pool *pool;
    struct qrn_buffer *a, *b, *c;
    for (int i = 0; i < 2; i++) devs[i] = open_device((struct qrn_device_options){.n_threads = 1});
    assert_int_equal(qrn_pool_create(devs[0], 10000, &pool, &err), QRN_OK);
    assert_int_equal(qrn_pool_acquire(pool, 4000, &a, &err), QRN_OK);
    void *first = qrn_buffer_data(a);
    qrn_buffer_release(a);
    assert_int_equal(qrn_pool_acquire_on(pool, devs[1], 4000, QRN_POOL_ZEROS, &b, &err), QRN_OK);
    assert_ptr_not_equal(qrn_buffer_data(b), first);
    assert_int_equal(qrn_pool_acquire(pool, 4000, &a, &err), QRN_OK);
    assert_ptr_equal(qrn_buffer_data(a), first);
    expect(qrn_buffer_copy(a, 0, b, 0, 16, &err), QRN_ERR_ARGUMENT, &err, "of another");
    expect(qrn_pool_acquire_on(pool, devs[1], 4000, QRN_POOL_ZEROS, &c, &err), QRN_ERR_LIMIT, &err,
           "of a budget of 10000 are in use");
    qrn_buffer_release(a);
    assert_int_equal(qrn_pool_acquire_on(pool, devs[1], 5000, QRN_POOL_ANYTHING, &c, &err), QRN_OK);
    assert_int_equal(qrn_pool_stats(pool).free_bytes, 0);
    qrn_buffer_release(b);
    qrn_buffer_release(c);
    qrn_pool_destroy(pool);
    for (int i = 0; i < 2; i++) qrn_device_close(devs[i]);
}

/* y = 2 x, z = y * y, y = z + x: in order although recorded at once, and again with other numbers. */
static void test_encoder(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct qrn_error err;
    struct qrn_device *dev = open_device((struct qrn_device_options){.n_threads = 3});
    struct qrn_encoder *enc;
    float x[N], y[N], z[N];
    const struct qrn_tensor tx = qrn_tensor_1d(QRN_F32, x, N), ty = qrn_tensor_1d(QRN_F32, y, N),
                            tz = qrn_tensor_1d(QRN_F32, z, N);
    assert_int_equal(qrn_encoder_create(dev, &enc, &err), QRN_OK);
    assert_int_equal(qrn_encoder_submit(enc, &err), QRN_OK); /* nothing */
    qrn_encode_add(enc, &(const struct qrn_add_args){.x = tx, .y = tx, .out = ty});
    qrn_encode_mul(enc, &(const struct qrn_mul_args){.x = ty, .y = ty, .out = tz});
    qrn_encode_add(enc, &(const struct qrn_add_args){.x = tz, .y = tx, .out = ty});
    assert_int_equal(qrn_encoder_n_ops(enc), 3);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++) x[i] = (float)(i + round);
        assert_int_equal(qrn_encoder_submit(enc, &err), QRN_OK);
        assert_int_equal(qrn_encoder_wait(enc, &err), QRN_OK);
        for (int i = 0; i < N; i++)
            if (y[i] != 4.0f * x[i] * x[i] + x[i])
                fail_msg("round %d: y[%d] is %g", round, i, (double)y[i]);
    }
    /* the first failure sticks, says where, and goes with a reset */
    qrn_encode_add(enc, &(const struct qrn_add_args){.x = tx, .y = tx});
    qrn_encode_add(enc, &(const struct qrn_add_args){.x = tx, .y = tx, .out = tz});
    expect(qrn_encoder_submit(enc, &err), QRN_ERR_ARGUMENT, &err,
           "op 3 of the recording: add: out is missing");
    qrn_encoder_reset(enc);
    assert_int_equal(qrn_encoder_n_ops(enc), 0);
    assert_int_equal(qrn_encoder_submit(enc, &err), QRN_OK);
    qrn_encoder_destroy(enc);
    qrn_device_close(dev);
}

/* A host's own threads: started for each run, all at once. */
struct call {
    void (*fn)(void *arg, int i);
    void *arg;
    int i;
};

static void *call_thread(void *p)
{
    const struct call *c = p;
    c->fn(c->arg, c->i);
    return NULL;
}

static void host_run(void *user, int n, void (*fn)(void *arg, int i), void *arg)
{
    pthread_t threads[8];
    struct call calls[8];
    ++*(int *)user;
    for (int i = 1; i < n; i++) {
        calls[i] = (struct call){fn, arg, i};
        assert_int_equal(pthread_create(&threads[i], NULL, call_thread, &calls[i]), 0);
    }
    fn(arg, 0);
    for (int i = 1; i < n; i++) pthread_join(threads[i], NULL);
}

static void test_host_threads_and_memory(void **state)
{
    (void)state;
    struct counting_allocator counting;
    int n_runs = 0;
    const struct qrn_thread_pool pool = {.run = host_run, .n_threads = 4, .user = &n_runs};
    counting_allocator_init(&counting);
    struct qrn_device *dev = open_device(
        (struct qrn_device_options){.threads = &pool, .host = counting_host(&counting)});
    assert_int_equal(qrn_device_n_threads(dev), 4);
    assert_true(counting.live_blocks > 0);
    float x[3][5] = {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}, {0, 1, 0, 1, 0}}, out[3][5];
    const struct qrn_rms_norm_args a = {.x = qrn_tensor_2d(QRN_F32, x, 3, 5),
                                        .out = qrn_tensor_2d(QRN_F32, out, 3, 5),
                                        .eps = 1e-6f};
    assert_int_equal(qrn_rms_norm(dev, &a, NULL), QRN_OK);
    assert_int_equal(n_runs, 1);
    assert_true(fabsf(out[0][4] - 5.0f / sqrtf(11.0f)) < 1e-5f);
    qrn_device_close(dev);
    assert_int_equal(counting.live_blocks, 0);
    assert_int_equal(counting.n_bad_frees, 0);
}

/* The caller's rounding and flushing of subnormals are its own again after a call. */
static void test_float_mode(void **state)
{
    (void)state;
    struct qrn_device *dev = open_device((struct qrn_device_options){.n_threads = 1});
    volatile float tiny = 1e-40f;
    float x[1] = {1e-40f}, out[1];
    const struct qrn_add_args a = {.x = qrn_tensor_1d(QRN_F32, x, 1),
                                   .y = qrn_tensor_1d(QRN_F32, x, 1),
                                   .out = qrn_tensor_1d(QRN_F32, out, 1)};
    assert_int_equal(qrn_add(dev, &a, NULL), QRN_OK);
    assert_true(out[0] == 0.0f);     /* flushed inside */
    assert_true(tiny * 0.5f > 0.0f); /* not outside */
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_errors),
        cmocka_unit_test(test_kernels_can_be_chosen),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_unwanted_come_last),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_of_two),
        cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_host_threads_and_memory),
        cmocka_unit_test(test_float_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
