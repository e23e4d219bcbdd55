/* SPDX-License-Identifier: MIT
 * cuBLASLt as a part of a device, emulated: how it is named and found, every failure of it a
 * status with its function and number, products that it has nothing for, and nothing left when the
 * device is closed. */
#include <stdio.h>
#include <stdlib.h>

#include "support/blas_test.h"
#include "support/counting_allocator.h"
#include "support/emulated_faults.h"

/* The emulator, held open so that it can be asked; NULL without one. */
static void *emulator;

static const char *emulator_path(void)
{
    const char *path = getenv("QRN_TEST_CUDA");
    return path ? path : QRN_TEST_EMULATOR;
}

static struct qrn_device_options options(void)
{
    if (!emulator || !blas_is_emulated()) skip();
    return (struct qrn_device_options){
        .name = "cuda", .cuda_driver = emulator_path(), .cuda_blas = op_test_blas()};
}

static void set_fault(const char *value)
{
    emulated_set("QRN_EMULATED_BLAS_FAILS", value);
}

static void expect_nothing_left(void)
{
    const struct emulated_blas_counts b = blas_counts();
    emulator_expect_nothing_left(emulator, "closing");
    if (b.handles || b.descriptions)
        fail_msg("left: %ld handles, %ld descriptions", b.handles, b.descriptions);
}

/* --- one product, in buffers --- */

enum { M = 70, N = 36, K = 64 };

struct work {
    struct qrn_device *dev;
    struct qrn_buffer *w, *x, *out;
    struct qrn_encoder *enc;
    struct qrn_matmul_args args;
    float want[M * N]; /* as the emulated library sums */
};

static enum qrn_status make_operand(struct work *w, enum qrn_dtype dtype, int64_t n_rows, int64_t n,
                                    const void *data, struct qrn_buffer **buffer,
                                    struct qrn_tensor *tensor, struct qrn_error *err)
{
    const size_t n_bytes = (size_t)(n_rows * n) * (dtype == QRN_BF16 ? 2 : 4);
    QRN_TRY(qrn_buffer_create(w->dev, n_bytes, buffer, err));
    if (data) QRN_TRY(qrn_buffer_write(*buffer, 0, data, n_bytes, err));
    return qrn_buffer_tensor(*buffer, 0, dtype, 2, (const int64_t[]){n_rows, n}, tensor, err);
}

static enum qrn_status make_work(struct work *w, const struct qrn_device_options *o,
                                 struct qrn_error *err)
{
    static float x[M * K];
    static uint16_t weights[N * K];
    struct rng r = {1};
    *w = (struct work){.args = {.activation = QRN_ACT_BF16, .any_order = true}};
    for (int i = 0; i < M * K; i++) x[i] = (float)rng_normal(&r);
    for (int i = 0; i < N * K; i++) weights[i] = qrn_float_to_bf16((float)rng_normal(&r));
    for (int i = 0; i < M * N; i++)
        for (int k = 0; k < K; k++)
            w->want[i] +=
                qrn_bf16_to_float(weights[i % N * K + k]) * matmul_rounded(x[i / N * K + k]);
    QRN_TRY(qrn_device_open(o, &w->dev, err));
    QRN_TRY(make_operand(w, QRN_BF16, N, K, weights, &w->w, &w->args.w, err));
    QRN_TRY(make_operand(w, QRN_F32, M, K, x, &w->x, &w->args.x, err));
    QRN_TRY(make_operand(w, QRN_F32, M, N, NULL, &w->out, &w->args.out, err));
    QRN_TRY(qrn_encoder_create(w->dev, &w->enc, err));
    qrn_encode_matmul(w->enc, &w->args);
    return QRN_OK;
}

static void end_work(struct work *w)
{
    qrn_encoder_destroy(w->enc);
    qrn_buffer_release(w->w);
    qrn_buffer_release(w->x);
    qrn_buffer_release(w->out);
    qrn_device_close(w->dev);
}

/* Reads what was made, and leaves something else there. */
static enum qrn_status take(struct work *w, float *got, struct qrn_error *err)
{
    static const float nothing[M * N];
    QRN_TRY(qrn_buffer_read(w->out, 0, got, sizeof w->want, err));
    return qrn_buffer_write(w->out, 0, nothing, sizeof nothing, err);
}

/* Directly, queued by a first submit, recorded by a second one, replayed. */
static enum qrn_status do_work(struct work *w, struct qrn_error *err)
{
    static float got[M * N];
    for (int i = 0; i < 4; i++) {
        QRN_TRY(i ? qrn_encoder_submit(w->enc, err) : qrn_matmul(w->dev, &w->args, err));
        QRN_TRY(take(w, got, err));
        assert_memory_equal(got, w->want, sizeof w->want);
    }
    return QRN_OK;
}

static void expect_it_works(const struct qrn_device_options *o)
{
    struct work w;
    struct qrn_error err;
    const long n = blas_counts().products;
    if (make_work(&w, o, &err) != QRN_OK || do_work(&w, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_int_equal(blas_counts().products - n, 4);
    end_work(&w);
    expect_nothing_left();
}

/* --- naming it --- */

static void expect_device(const struct qrn_device_options *o, const char *bits)
{
    struct qrn_error err;
    struct qrn_device *dev;
    if (qrn_device_open(o, &dev, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_string_equal(qrn_device_bits(dev), bits);
    assert_int_equal(matmul_kernel(dev, blas_kernel) != NULL, strstr(bits, "cublaslt") != NULL);
    qrn_device_close(dev);
    expect_nothing_left();
}

static void expect_no_device(const struct qrn_device_options *o, const char *text)
{
    struct qrn_error err;
    struct qrn_device *dev;
    expect_status(qrn_device_open(o, &dev, &err), QRN_ERR_UNSUPPORTED, &err, text);
    expect_nothing_left();
}

static void test_names(void **state)
{
    (void)state;
    struct qrn_device_options o = options();
    expect_device(&o, "cuda sm_90 cublaslt 130000");
    o.cuda_blas = "";
    expect_device(&o, "cuda sm_90");
    o.cuda_blas = NULL;
    expect_device(&o, "cuda sm_90");
    emulated_set("QRN_CUDA_BLAS", op_test_blas());
    expect_device(&o, "cuda sm_90 cublaslt 130000");
    o.cuda_blas = ""; /* it counts more */
    expect_device(&o, "cuda sm_90");
    o.cuda_blas = NULL;
    emulated_set("QRN_CUDA_BLAS", "");
    expect_device(&o, "cuda sm_90");
    emulated_set("QRN_CUDA_BLAS", "/nor/here.so");
    expect_no_device(&o, "no cuBLASLt: /nor/here.so");
    emulated_set("QRN_CUDA_BLAS", NULL);
    /* By its usual name the library would be found now, as it is loaded: it is for the system's
     * driver only. */
    void *loaded = dlopen(op_test_blas(), RTLD_NOW), *again = dlopen("libcublasLt.so.13", RTLD_NOW);
    assert_ptr_equal(loaded, again);
    emulated_set("QRN_EMULATED_SM", "80");
    expect_device(&o, "cuda sm_80");
    o.cuda_blas = "libcublasLt.so.13";
    expect_device(&o, "cuda sm_80 cublaslt 130000");
    emulated_set("QRN_EMULATED_SM", NULL);
    (void)dlclose(again);
    (void)dlclose(loaded);
}

static void test_wrong_libraries(void **state)
{
    (void)state;
    struct qrn_device_options o = options();
    char incomplete[4096];
    o.cuda_blas = "/there/is/no/libcublasLt.so.13";
    expect_no_device(&o, "no cuBLASLt: /there/is/no/libcublasLt.so.13");
    const char *path = emulator_path();
    (void)snprintf(incomplete, sizeof incomplete, "%.*s/libcuda_incomplete.so",
                   (int)(strrchr(path, '/') - path), path);
    o.cuda_blas = incomplete;
    expect_no_device(&o, "libcuda_incomplete.so, has no entry point cublasLtGetVersion");
    o.cuda_blas = op_test_blas();
    emulated_set("QRN_EMULATED_BLAS_VERSION", "111103");
    expect_no_device(&o, "cuBLASLt is too old: needs 12.0, ");
    emulated_set("QRN_EMULATED_BLAS_VERSION", NULL);
    expect_it_works(&o);
}

/* --- failures --- */

/* What is called when a device is opened, whichever of it fails. */
static void test_opening_fails(void **state)
{
    (void)state;
    static const char *const functions[] = {"cublasLtCreate",
                                            "cublasLtMatmulDescCreate",
                                            "cublasLtMatrixLayoutCreate",
                                            "cublasLtMatmulPreferenceCreate",
                                            "cublasLtMatmulDescSetAttribute",
                                            "cublasLtMatmulPreferenceSetAttribute"};
    const struct qrn_device_options o = options();
    struct qrn_error err;
    struct qrn_device *dev;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (int no_memory = 0; no_memory < 2; no_memory++) {
            char fault[80];
            (void)snprintf(fault, sizeof fault, "%s %d", functions[i], no_memory ? 3 : 14);
            set_fault(fault);
            expect_status(qrn_device_open(&o, &dev, &err),
                          no_memory ? QRN_ERR_MEMORY : QRN_ERR_DEVICE, &err,
                          no_memory ? "cuBLASLt's status 3" : "cuBLASLt's status 14");
            expect_nothing_left();
        }
    set_fault(NULL);
    expect_it_works(&o);
}

/* Whatever fails of a product, the call says so and the next one works. */
static void test_products_fail(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *text;
        enum qrn_status status;
    } cases[] = {
        {"cublasLtMatmul 13", "cuda, cublasLtMatmul: cuBLASLt's status 13", QRN_ERR_DEVICE},
        {"cublasLtMatmul 3", "cuda, cublasLtMatmul: cuBLASLt's status 3", QRN_ERR_MEMORY},
        {"cublasLtMatmulAlgoGetHeuristic 14",
         "cuda, cublasLtMatmulAlgoGetHeuristic: cuBLASLt's status 14", QRN_ERR_DEVICE},
        {"cublasLtMatrixLayoutSetAttribute 7",
         "cuda, cublasLtMatrixLayoutSetAttribute: cuBLASLt's status 7", QRN_ERR_DEVICE},
    };
    const struct qrn_device_options o = options();
    struct qrn_error err;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int n_before = 0; n_before < 2; n_before++) { /* queued, then recorded */
            struct work w;
            if (n_before && strstr(cases[c].fault, "Heuristic")) continue; /* it is known by then */
            if (make_work(&w, &o, &err) != QRN_OK) fail_msg("%s", err.text);
            if (n_before) assert_int_equal(qrn_encoder_submit(w.enc, &err), QRN_OK);
            set_fault(cases[c].fault);
            if (!n_before)
                expect_status(qrn_matmul(w.dev, &w.args, &err), cases[c].status, &err,
                              cases[c].text);
            expect_status(qrn_encoder_submit(w.enc, &err), cases[c].status, &err, cases[c].text);
            set_fault(NULL);
            if (do_work(&w, &err) != QRN_OK) fail_msg("%s", err.text);
            end_work(&w);
            expect_nothing_left();
        }
}

/* What the library has no algorithm for is a product all the same, by the kernel that takes all of
 * its types. */
static void test_no_algorithm(void **state)
{
    (void)state;
    static const char *const faults[] = {"cublasLtMatmulAlgoGetHeuristic 15",
                                         "cublasLtMatmulAlgoGetHeuristic 0"};
    struct qrn_device_options o = options(), plain = o;
    struct qrn_error err;
    struct work w, other;
    plain.kernels = "matmul=cuda.matmul.bf16";
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (make_work(&other, &plain, &err) != QRN_OK) fail_msg("%s", err.text);
        assert_int_equal(qrn_matmul(other.dev, &other.args, &err), QRN_OK);
        if (make_work(&w, &o, &err) != QRN_OK) fail_msg("%s", err.text);
        assert_int_equal(take(&other, w.want, &err), QRN_OK);
        set_fault(faults[i]);
        const struct emulated_blas_counts before = blas_counts();
        if (do_work(&w, &err) != QRN_OK) fail_msg("%s", err.text);
        assert_int_equal(blas_counts().products, before.products);
        /* that, too, is kept */
        assert_int_equal(blas_counts().searches, before.searches + 1);
        set_fault(NULL);
        end_work(&w);
        end_work(&other);
        expect_nothing_left();
    }
}

/* At whatever launch the device is lost, rounding or a product; the library may notice, or not. */
static void test_lost(void **state)
{
    (void)state;
    static const char lost[] = "the device is lost: an illegal memory access was encountered";
    const struct qrn_device_options o = options();
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
            /* What is queued without waiting may get the library's word first. */
            if (i == 1 || !strstr(err.text, "cublasLtMatmul: cuBLASLt's status 13"))
                expect_status(status, QRN_ERR_DEVICE, &err, lost);
            expect_status(qrn_matmul(w.dev, &w.args, &err), QRN_ERR_DEVICE, &err, lost);
            expect_status(qrn_encoder_submit(w.enc, &err), QRN_ERR_DEVICE, &err, lost);
            n_lost++;
        }
        end_work(&w);
        expect_nothing_left();
        if (status == QRN_OK) break;
    }
    assert_int_equal(n_lost, 2 * 4);
    expect_it_works(&o);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct qrn_device_options o = options();
    struct counting_allocator c;
    struct qrn_error err;
    counting_allocator_init(&c);
    size_t n_failed = 0;
    for (int is_host = 0; is_host < 2; is_host++) {
        if (is_host) o.host = counting_host(&c);
        for (size_t i = 1;; i++) {
            char n[20];
            struct work w;
            (void)snprintf(n, sizeof n, "%zu", i);
            counting_allocator_reset(&c);
            if (is_host)
                c.fail_at = i;
            else
                emulated_set("QRN_EMULATED_FAIL_ALLOC", n);
            enum qrn_status status = make_work(&w, &o, &err);
            emulated_set("QRN_EMULATED_FAIL_ALLOC", NULL);
            if (status == QRN_OK) status = do_work(&w, &err);
            end_work(&w);
            expect_nothing_left();
            assert_int_equal(c.live_bytes, 0);
            assert_int_equal(c.n_bad_frees, 0);
            if (status == QRN_OK) break;
            expect_status(status, QRN_ERR_MEMORY, &err, "");
            n_failed++;
        }
    }
    assert_true(n_failed > 4 + 10);
}

/* In a context and on a stream of the caller's. */
static void test_callers_context(void **state)
{
    (void)state;
    struct qrn_device_options o = options();
    struct qrn_error err;
    struct work w;
    int (*create)(void **, unsigned, int), (*destroy)(void *), (*stream)(void **, unsigned),
        (*stream_destroy)(void *);
    void *p[] = {dlsym(emulator, "cuCtxCreate_v2"), dlsym(emulator, "cuCtxDestroy_v2"),
                 dlsym(emulator, "cuStreamCreate"), dlsym(emulator, "cuStreamDestroy_v2")};
    memcpy(&create, &p[0], sizeof create);
    memcpy(&destroy, &p[1], sizeof destroy);
    memcpy(&stream, &p[2], sizeof stream);
    memcpy(&stream_destroy, &p[3], sizeof stream_destroy);
    assert_int_equal(create(&o.cuda_context, 0, 0), 0);
    assert_int_equal(stream(&o.cuda_stream, 0), 0);
    if (make_work(&w, &o, &err) != QRN_OK || do_work(&w, &err) != QRN_OK) fail_msg("%s", err.text);
    end_work(&w);
    assert_int_equal(emulator_counts(emulator).depth, 1);
    assert_int_equal(stream_destroy(o.cuda_stream), 0);
    assert_int_equal(destroy(o.cuda_context), 0);
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),         cmocka_unit_test(test_wrong_libraries),
        cmocka_unit_test(test_opening_fails), cmocka_unit_test(test_products_fail),
        cmocka_unit_test(test_no_algorithm),  cmocka_unit_test(test_lost),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_callers_context),
    };
    emulator = emulator_open();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
