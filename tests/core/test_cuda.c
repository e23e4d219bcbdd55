/* SPDX-License-Identifier: MIT
 * The CUDA device on the emulated driver: opening, buffers, graphs, a caller's own context, and every
 * failure a status after which nothing is left and the CPU works.  What any GPU can show runs on a
 * real one too (QRN_TEST_CUDA=real). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/timing.h"
#include "support/counting_allocator.h"
#include "support/emulated_faults.h"

static struct qrn_device *open_gpu(void)
{
    struct qrn_error err;
    struct qrn_device *dev = op_test_open_gpu(&err);
    if (!dev) skip();
    return dev;
}

/* The emulator, held open so that it can be asked; NULL without one. */
static void *emulator;

static const char *emulator_path(void)
{
    const char *path = getenv("QRN_TEST_CUDA");
    return path ? path : QRN_TEST_EMULATOR;
}

static void *emulated(const char *symbol)
{
    if (!emulator) skip();
    void *p = dlsym(emulator, symbol);
    assert_non_null(p);
    return p;
}

static struct emulated_counts counts(void)
{
    if (!emulator) skip();
    return emulator_counts(emulator);
}

static void expect_nothing_left(void)
{
    emulator_expect_nothing_left(emulator, "closing");
}

/* Two buffers and a recording that adds them into a third. */
struct work {
    struct qrn_device *dev;
    struct qrn_buffer *x, *y, *sum;
    struct qrn_encoder *enc;
};
enum { N = 1000 };

static struct qrn_add_args add_of(const struct work *w)
{
    const struct qrn_buffer *b[] = {w->x, w->y, w->sum};
    struct qrn_tensor t[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(qrn_buffer_tensor(b[i], 0, QRN_F32, 1, (const int64_t[]){N}, &t[i], NULL),
                         QRN_OK);
    return (struct qrn_add_args){t[0], t[1], t[2]};
}

static enum qrn_status make_work(struct work *w, const struct qrn_device_options *o,
                                 struct qrn_error *err)
{
    *w = (struct work){0};
    QRN_TRY(qrn_device_open(o, &w->dev, err));
    QRN_TRY(qrn_buffer_create(w->dev, N * sizeof(float), &w->x, err));
    QRN_TRY(qrn_buffer_create(w->dev, N * sizeof(float), &w->y, err));
    QRN_TRY(qrn_buffer_create(w->dev, N * sizeof(float), &w->sum, err));
    QRN_TRY(qrn_encoder_create(w->dev, &w->enc, err));
    return QRN_OK;
}

static void end_work(struct work *w)
{
    qrn_encoder_destroy(w->enc);
    qrn_buffer_release(w->x);
    qrn_buffer_release(w->y);
    qrn_buffer_release(w->sum);
    qrn_device_close(w->dev);
}

static enum qrn_status fill(struct work *w, float x, float y, struct qrn_error *err)
{
    float values[N];
    for (int i = 0; i < N; i++) values[i] = x + (float)i;
    QRN_TRY(qrn_buffer_write(w->x, 0, values, sizeof values, err));
    for (int i = 0; i < N; i++) values[i] = y;
    return qrn_buffer_write(w->y, 0, values, sizeof values, err);
}

static void expect_sum(struct work *w, float want)
{
    float got[N];
    struct qrn_error err;
    if (qrn_buffer_read(w->sum, 0, got, sizeof got, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < N; i++) assert_float_equal(got[i], want + (float)i, 0.0f);
}

/* All that the device does: directly, recorded, replayed, read back. */
static enum qrn_status do_work(struct work *w, struct qrn_error *err)
{
    const struct qrn_add_args a = add_of(w);
    QRN_TRY(fill(w, 1.0f, 2.0f, err));
    QRN_TRY(qrn_add(w->dev, &a, err));
    float got[N];
    QRN_TRY(qrn_buffer_read(w->sum, 0, got, sizeof got, err));
    qrn_encode_add(w->enc, &a);
    QRN_TRY(qrn_encoder_submit(w->enc, err));
    QRN_TRY(qrn_encoder_submit(w->enc, err));
    return qrn_buffer_read(w->sum, 0, got, sizeof got, err);
}

static void expect_cpu_works(void)
{
    struct work w;
    struct qrn_error err;
    if (make_work(&w, NULL, &err) != QRN_OK || do_work(&w, &err) != QRN_OK)
        fail_msg("%s", err.text);
    expect_sum(&w, 3.0f);
    end_work(&w);
}

/* --- what any device shows --- */

static void check_buffers(struct qrn_device *dev)
{
    struct qrn_error err;
    struct qrn_buffer *a, *b, *part;
    char in[100], out[100];
    for (int i = 0; i < 100; i++) in[i] = (char)(i + 1);
    assert_int_equal(qrn_buffer_create(dev, 100, &a, &err), QRN_OK);
    assert_int_equal(qrn_buffer_create(dev, 100, &b, &err), QRN_OK);
    assert_int_equal((uintptr_t)qrn_buffer_data(a) % 64, 0);
    assert_int_equal(qrn_buffer_read(a, 0, out, 100, &err), QRN_OK);
    for (int i = 0; i < 100; i++) assert_int_equal(out[i], 0);
    assert_int_equal(qrn_buffer_write(a, 30, in, 70, &err), QRN_OK);
    assert_int_equal(qrn_buffer_slice(a, 40, 50, &part, &err), QRN_OK);
    assert_int_equal(qrn_buffer_copy(b, 1, part, 2, 48, &err), QRN_OK);
    assert_int_equal(qrn_buffer_read(b, 0, out, 100, &err), QRN_OK);
    for (int i = 0; i < 100; i++) assert_int_equal(out[i], i < 1 || i >= 49 ? 0 : i - 1 + 13);
    assert_int_equal(qrn_buffer_copy(a, 0, a, 50, 50, &err), QRN_OK);
    assert_int_equal(qrn_buffer_read(a, 0, out, 1, &err), QRN_OK);
    assert_int_equal(out[0], 21);
    assert_int_equal(qrn_buffer_write(a, 100, in, 0, &err), QRN_OK);
    expect_status(qrn_buffer_write(a, 31, in, 70, &err), QRN_ERR_ARGUMENT, &err,
                  "70 bytes at 31 do not lie in a buffer of 100");
    expect_status(qrn_buffer_read(part, 1, out, 50, &err), QRN_ERR_ARGUMENT, &err,
                  "50 bytes at 1 do not lie in a buffer of 50");
    expect_status(qrn_buffer_read(part, SIZE_MAX, out, 2, &err), QRN_ERR_ARGUMENT, &err,
                  "do not lie");
    expect_status(qrn_buffer_copy(b, 60, a, 0, 41, &err), QRN_ERR_ARGUMENT, &err,
                  "copying to a buffer");
    expect_status(qrn_buffer_copy(b, 0, a, 60, 41, &err), QRN_ERR_ARGUMENT, &err,
                  "copying from a buffer");
    expect_status(qrn_buffer_copy(a, 0, part, 0, 50, &err), QRN_ERR_ARGUMENT, &err,
                  "overlaps itself");
    qrn_buffer_release(part);
    qrn_buffer_release(b);
    qrn_buffer_release(a);
}

static void test_buffers(void **state)
{
    (void)state;
    struct qrn_device *cpu;
    assert_int_equal(qrn_device_open(NULL, &cpu, NULL), QRN_OK);
    check_buffers(cpu);
    qrn_device_close(cpu);
    struct qrn_device *dev = open_gpu();
    check_buffers(dev);
    qrn_device_close(dev);
}

static void test_two_devices(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *gpu = open_gpu(), *cpu;
    struct qrn_buffer *a, *b;
    assert_int_equal(qrn_device_open(NULL, &cpu, NULL), QRN_OK);
    assert_int_equal(qrn_buffer_create(cpu, 64, &a, &err), QRN_OK);
    assert_int_equal(qrn_buffer_create(gpu, 64, &b, &err), QRN_OK);
    expect_status(qrn_buffer_copy(b, 0, a, 0, 64, &err), QRN_ERR_ARGUMENT, &err,
                  "from a buffer of device cpu");
    qrn_buffer_release(a);
    qrn_buffer_release(b);
    qrn_device_close(cpu);
    qrn_device_close(gpu);
}

static void test_pool(void **state)
{
    (void)state;
    struct qrn_device *dev = open_gpu();
    struct qrn_pool *pool;
    struct qrn_buffer *b;
    char bytes[1000];
    assert_int_equal(qrn_pool_create(dev, 10000, &pool, NULL), QRN_OK);
    for (int i = 0; i < 2; i++) { /* the second time the same memory, zeroed */
        assert_int_equal(qrn_pool_acquire(pool, sizeof bytes, &b, NULL), QRN_OK);
        assert_int_equal(qrn_buffer_read(b, 0, bytes, sizeof bytes, NULL), QRN_OK);
        for (size_t k = 0; k < sizeof bytes; k++) assert_int_equal(bytes[k], 0);
        memset(bytes, 7, sizeof bytes);
        assert_int_equal(qrn_buffer_write(b, 0, bytes, sizeof bytes, NULL), QRN_OK);
        qrn_buffer_release(b);
    }
    qrn_pool_destroy(pool);
    qrn_device_close(dev);
}

/* Replays see what buffers hold now; ranges are graphs of their own; ops may be added after. */
static void check_replays(struct work *w)
{
    struct qrn_error err;
    const struct qrn_add_args a = add_of(w);
    const struct qrn_add_args twice = {a.out, a.y, a.out};
    qrn_encode_add(w->enc, &a);
    qrn_encode_add(w->enc, &twice);
    for (int i = 0; i < 4; i++) {
        if (fill(w, (float)i, 10.0f, &err) != QRN_OK) fail_msg("%s", err.text);
        if (qrn_encoder_submit(w->enc, &err) != QRN_OK) fail_msg("%s", err.text);
        expect_sum(w, (float)i + 20.0f);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(qrn_encoder_submit_range(w->enc, 0, 1, &err), QRN_OK);
        expect_sum(w, 13.0f);
    }
    assert_int_equal(qrn_encoder_submit_range(w->enc, 1, 2, &err), QRN_OK);
    expect_sum(w, 23.0f);
    qrn_encode_add(w->enc, &twice);
    assert_int_equal(qrn_encoder_submit(w->enc, &err), QRN_OK);
    expect_sum(w, 33.0f);
    qrn_encoder_reset(w->enc);
    qrn_encode_add(w->enc, &a);
    assert_int_equal(qrn_encoder_submit(w->enc, &err), QRN_OK);
    expect_sum(w, 13.0f);
}

static void test_replays(void **state)
{
    (void)state;
    struct qrn_error err;
    struct work w;
    qrn_device_close(open_gpu());
    const char *path = emulator_path();
    const struct qrn_device_options o = {.name = "cuda",
                                         .cuda_driver = strcmp(path, "real") == 0 ? "" : path};
    const struct emulated_counts before = emulator ? counts() : (struct emulated_counts){0};
    if (make_work(&w, &o, &err) != QRN_OK) fail_msg("%s", err.text);
    check_replays(&w);
    if (emulator) { /* two ops four times, the first one twice; others once */
        assert_int_equal(counts().captures - before.captures, 2);
        assert_int_equal(counts().graph_launches - before.graph_launches, 4);
        assert_int_equal(counts().graph_execs, 0);
    }
    end_work(&w);
    if (emulator) expect_nothing_left();
}

/* --- what the emulator can be asked for --- */

static struct qrn_device_options emulated_options(void)
{
    if (!emulator) skip();
    return (struct qrn_device_options){.name = "cuda", .cuda_driver = emulator_path()};
}

static void test_opening(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev;
    struct qrn_device_options o = emulated_options();
    char incomplete[500];
    o.cuda_driver = "/there/is/no/libcuda.so.1";
    expect_status(qrn_device_open(&o, &dev, &err), QRN_ERR_UNSUPPORTED, &err,
                  "no NVIDIA driver: /there/is");
    emulated_set("QRN_CUDA_DRIVER", "/nor/here.so");
    o.cuda_driver = NULL;
    expect_status(qrn_device_open(&o, &dev, &err), QRN_ERR_UNSUPPORTED, &err,
                  "no NVIDIA driver: /nor/here");
    emulated_set("QRN_CUDA_DRIVER", NULL);
    const char *path = emulator_path();
    (void)snprintf(incomplete, sizeof incomplete, "%.*s/libcuda_incomplete.so",
                   (int)(strrchr(path, '/') - path), path);
    o.cuda_driver = incomplete;
    expect_status(qrn_device_open(&o, &dev, &err), QRN_ERR_UNSUPPORTED, &err,
                  "the NVIDIA driver 13.0 has no entry point cuGetErrorName");
    o.cuda_driver = path;
    emulated_set("QRN_EMULATED_DRIVER_VERSION", "11080");
    expect_status(qrn_device_open(&o, &dev, &err), QRN_ERR_UNSUPPORTED, &err,
                  "needs driver 12.0, found 11.8");
    emulated_set("QRN_EMULATED_DRIVER_VERSION", NULL);
    o.cuda_device = 3;
    expect_status(qrn_device_open(&o, &dev, &err), QRN_ERR_ARGUMENT, &err,
                  "cuda_device is 3, wants 0 to 0");
    o.cuda_device = 0;
    emulated_set("QRN_EMULATED_SM", "75");
    expect_status(qrn_device_open(&o, &dev, &err), QRN_ERR_UNSUPPORTED, &err,
                  "compute capability 7.5, needs 8.0");
    emulated_set("QRN_EMULATED_SM", "90");
    assert_int_equal(qrn_device_open(&o, &dev, &err), QRN_OK);
    assert_string_equal(qrn_device_bits(dev), "cuda sm_90");
    assert_string_equal(qrn_device_name(dev), "cuda");
    assert_int_equal(qrn_device_n_threads(dev), 1);
    qrn_device_close(dev);
    emulated_set("QRN_EMULATED_SM", NULL);
    expect_nothing_left();
    expect_cpu_works();
}

/* A context and a stream of the caller's are used and left alone, and so is the caller's stack. */
static void test_callers_context(void **state)
{
    (void)state;
    int (*create)(void **, unsigned, int), (*destroy)(void *), (*stream)(void **, unsigned);
    void *p[] = {emulated("cuCtxCreate_v2"), emulated("cuCtxDestroy_v2"),
                 emulated("cuStreamCreate")};
    memcpy(&create, &p[0], sizeof create);
    memcpy(&destroy, &p[1], sizeof destroy);
    memcpy(&stream, &p[2], sizeof stream);
    struct qrn_device_options o = emulated_options();
    struct qrn_error err;
    struct work w;
    assert_int_equal(create(&o.cuda_context, 0, 0), 0); /* it is current now */
    assert_int_equal(stream(&o.cuda_stream, 0), 0);
    if (make_work(&w, &o, &err) != QRN_OK || do_work(&w, &err) != QRN_OK) fail_msg("%s", err.text);
    expect_sum(&w, 3.0f);
    assert_int_equal(counts().depth, 1);
    assert_int_equal(counts().streams, 1);
    end_work(&w);
    assert_int_equal(counts().depth, 1);
    assert_int_equal(counts().streams, 1);
    int (*stream_destroy)(void *);
    void *q = emulated("cuStreamDestroy_v2");
    memcpy(&stream_destroy, &q, sizeof q);
    assert_int_equal(stream_destroy(o.cuda_stream), 0);
    assert_int_equal(destroy(o.cuda_context), 0);
    expect_nothing_left();
}

/* Whatever allocation of the device's memory fails, and then whatever one of the host's. */
static void test_out_of_memory(void **state)
{
    (void)state;
    const struct qrn_device_options o = emulated_options();
    struct qrn_error err;
    int n_failed = 0;
    for (int i = 1;; i++) {
        char n[20];
        struct work w;
        (void)snprintf(n, sizeof n, "%d", i);
        emulated_set("QRN_EMULATED_FAIL_ALLOC", n);
        enum qrn_status status = make_work(&w, &o, &err);
        emulated_set("QRN_EMULATED_FAIL_ALLOC", NULL);
        if (status == QRN_OK) status = do_work(&w, &err);
        end_work(&w);
        expect_nothing_left();
        if (status == QRN_OK) break;
        expect_status(status, QRN_ERR_MEMORY, &err, "");
        n_failed++;
    }
    assert_int_equal(n_failed, 3);
    expect_cpu_works();
}

static void test_out_of_host_memory(void **state)
{
    (void)state;
    struct qrn_device_options o = emulated_options();
    struct counting_allocator c;
    struct qrn_error err;
    counting_allocator_init(&c);
    o.host = counting_host(&c);
    size_t n_failed = 0;
    for (size_t i = 1;; i++) {
        struct work w;
        counting_allocator_reset(&c);
        c.fail_at = i;
        enum qrn_status status = make_work(&w, &o, &err);
        if (status == QRN_OK) status = do_work(&w, &err);
        end_work(&w);
        expect_nothing_left();
        assert_int_equal(c.live_bytes, 0);
        assert_int_equal(c.n_bad_frees, 0);
        if (status == QRN_OK) break;
        expect_status(status, QRN_ERR_MEMORY, &err, "");
        n_failed++;
    }
    assert_true(n_failed > 10);
}

/* At whatever launch the device is lost, that call and all that follow say so; nothing is left when
 * it is closed, and a device that is opened then works. */
static void test_lost(void **state)
{
    (void)state;
    const struct qrn_device_options o = emulated_options();
    struct qrn_error err;
    int n_lost = 0;
    for (int i = 1;; i++) {
        char n[20];
        struct work w;
        (void)snprintf(n, sizeof n, "%d", i);
        emulated_set("QRN_EMULATED_LOSE_AT_LAUNCH", n);
        if (make_work(&w, &o, &err) != QRN_OK) fail_msg("%s", err.text);
        emulated_set("QRN_EMULATED_LOSE_AT_LAUNCH", NULL);
        const enum qrn_status status = do_work(&w, &err);
        if (status != QRN_OK) {
            static const char lost[] =
                "the device is lost: an illegal memory access was encountered";
            struct qrn_buffer *b = NULL;
            struct qrn_add_args a = add_of(&w);
            float value = 1.0f;
            expect_status(status, QRN_ERR_DEVICE, &err, lost);
            expect_status(qrn_add(w.dev, &a, &err), QRN_ERR_DEVICE, &err, lost);
            expect_status(qrn_buffer_create(w.dev, 64, &b, &err), QRN_ERR_DEVICE, &err, lost);
            expect_status(qrn_buffer_write(w.x, 0, &value, 4, &err), QRN_ERR_DEVICE, &err, lost);
            expect_status(qrn_buffer_read(w.x, 0, &value, 4, &err), QRN_ERR_DEVICE, &err, lost);
            expect_status(qrn_buffer_copy(w.x, 0, w.y, 0, 4, &err), QRN_ERR_DEVICE, &err, lost);
            qrn_encoder_reset(w.enc);
            qrn_encode_add(w.enc, &a);
            expect_status(qrn_encoder_submit(w.enc, &err), QRN_ERR_DEVICE, &err, lost);
            n_lost++;
            expect_cpu_works();
        }
        end_work(&w);
        expect_nothing_left();
        if (status == QRN_OK) break;
    }
    assert_int_equal(n_lost, 3); /* directly, recorded, as a graph */
}

/* A recording of two calls that is timed, and copies; all of it also fails as it should. */
static enum qrn_status time_all(struct work *w, double ns[3], struct qrn_error *err)
{
    const struct qrn_add_args a = add_of(w);
    const void *const args[] = {&a, &a};
    const struct qrn_kernel *kernel;
    struct qrn_timing *timing;
    QRN_TRY(fill(w, 1.0f, 2.0f, err));
    QRN_TRY(qrn_kernel_choose(w->dev, QRN_OP_add, &a, &kernel, err));
    QRN_TRY(qrn_timing_create(w->dev, kernel, args, 2, &timing, err));
    enum qrn_status status = qrn_timing_run(timing, false, &ns[0], err);
    if (status == QRN_OK) status = qrn_timing_run(timing, true, &ns[1], err);
    qrn_timing_destroy(timing);
    if (status != QRN_OK) return status;
    return qrn_time_copies(w->dev, qrn_buffer_data(w->y), qrn_buffer_data(w->x), N * sizeof(float),
                           3, &ns[2], err);
}

static void test_timing(void **state)
{
    (void)state;
    double ns[3] = {0.0};
    struct qrn_error err;
    struct work w;
    const struct qrn_device_options o = emulated_options();
    if (make_work(&w, &o, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_true(qrn_device_has_clock(w.dev));
    if (time_all(&w, ns, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 3; i++) assert_true(ns[i] > 0.0 && ns[i] < 1e10);
    expect_sum(&w, 3.0f);
    end_work(&w);
    expect_nothing_left();
    for (int i = 1; i <= 4; i++) { /* two calls step by step, the same as a graph */
        char n[16];
        (void)snprintf(n, sizeof n, "%d", i);
        emulated_set("QRN_EMULATED_LOSE_AT_LAUNCH", n);
        if (make_work(&w, &o, &err) != QRN_OK) fail_msg("%s", err.text);
        emulated_set("QRN_EMULATED_LOSE_AT_LAUNCH", NULL);
        expect_status(time_all(&w, ns, &err), QRN_ERR_DEVICE, &err, "the device is lost");
        end_work(&w);
        expect_nothing_left();
    }
    expect_cpu_works();
}

/* A launch that was given memory of the host which is not shared fails, as it would on a GPU.  The
 * emulator takes numbers whose lower half is below 2^24 for no addresses. */
static void test_foreign_memory(void **state)
{
    (void)state;
    const struct qrn_device_options o = emulated_options();
    struct qrn_error err;
    struct work w;
    enum { LOW = 1 << 24 };
    char *memory = malloc(2 * LOW);
    assert_non_null(memory);
    if (make_work(&w, &o, &err) != QRN_OK) fail_msg("%s", err.text);
    struct qrn_add_args a = add_of(&w);
    a.out = qrn_tensor_1d(QRN_F32, memory + ((uint32_t)(uintptr_t)memory < LOW ? LOW : 0), N);
    expect_status(qrn_add(w.dev, &a, &err), QRN_ERR_DEVICE, &err,
                  "that was not shared with the device");
    end_work(&w);
    free(memory);
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers),        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_pool),           cmocka_unit_test(test_replays),
        cmocka_unit_test(test_opening),        cmocka_unit_test(test_callers_context),
        cmocka_unit_test(test_out_of_memory),  cmocka_unit_test(test_out_of_host_memory),
        cmocka_unit_test(test_lost),           cmocka_unit_test(test_timing),
        cmocka_unit_test(test_foreign_memory),
    };
    const char *path = emulator_path();
    if (strchr(path, '/')) emulator = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
