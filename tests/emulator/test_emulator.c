/* SPDX-License-Identifier: MIT
 * The emulator itself: threads that meet, those that never can, fragments of matrices; and that it
 * takes real binaries only. */
#include "support/op_test.h"

#ifdef QRN_CUDA
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/half.h"
#include "emulator/driver_test.h"
#include "emulator/kernels.h"

/* Of kernels.cu and kernels_sm90a.cu, embedded by the build. */
extern const unsigned char qrn_cuda_image_kernels[], qrn_cuda_image_kernels_sm90a[];

static void test_never_ends(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *text;
        unsigned n_threads;
    } cases[] = {
        {"qrn_test_leaves_barrier", "waits at __syncthreads: but other threads have ended", 64},
        {"qrn_test_diverges", "and nothing goes on", 64},
        {"qrn_test_lane_ended", "waits at __shfl_xor_sync: for a lane that has ended", 64},
        {"qrn_test_short_warp", "waits at __shfl_xor_sync: for lanes that the block does not have",
         40},
    };
    if (is_real()) skip(); /* it would wait for ever, or not */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int reverse = 0; reverse < 2; reverse++) {
            struct test t;
            assert_int_equal(setenv("QRN_EMULATED_REVERSE", reverse ? "1" : "0", 1), 0);
            begin(&t, qrn_cuda_image_kernels);
            struct qrn_test_params p = {t.memory};
            assert_int_equal(launch(&t, cases[i].kernel, cases[i].n_threads, 0, &p),
                             CUDA_ERROR_LAUNCH_FAILED);
            const char *text = qrn_cuda_text(&t.d, CUDA_ERROR_LAUNCH_FAILED);
            if (!strstr(text, cases[i].text) || !strstr(text, cases[i].kernel))
                fail_msg("%s", text);
            assert_int_equal(launch(&t, "qrn_test_shuffles", 64, 0, &p), CUDA_ERROR_LAUNCH_FAILED);
            end(&t);
        }
    assert_int_equal(unsetenv("QRN_EMULATED_REVERSE"), 0);
}

static void test_shuffles(void **state)
{
    (void)state;
    struct test t;
    begin(&t, qrn_cuda_image_kernels);
    struct qrn_test_params p = {t.memory};
    GOOD(launch(&t, "qrn_test_shuffles", 64, 0, &p));
    for (int i = 0; i < 64; i++) {
        const int lane = i % 32;
        const float want[8] = {5.0f,
                               (float)(lane / 8 * 8 + 3),
                               (float)(lane ^ 9),
                               (float)(lane < 2 ? lane : lane - 2),
                               (float)(lane % 16 >= 14 ? lane : lane + 2),
                               (float)0x9249,
                               lane < 16 ? 120.0f : 376.0f,
                               2016.0f};
        for (int k = 0; k < 8; k++) assert_float_equal(t.memory[8 * i + k], want[k], 0.0f);
    }
    end(&t);
}

/* Memory of the device is poisoned when it is new, and faults where the host touches it. */
static void test_memory(void **state)
{
    (void)state;
    struct test t;
    CUdeviceptr p;
    if (is_real()) skip();
    begin(&t, qrn_cuda_image_kernels);
    GOOD(t.d.memory_alloc(&p, sizeof(float)));
    GOOD(t.d.copy_to_host(t.memory, p, sizeof(float), t.stream));
    GOOD(t.d.stream_synchronize(t.stream));
    assert_true(isnan(t.memory[0]));
    GOOD(t.d.memory_set(p, 0, sizeof(float), t.stream));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        const volatile float *device = (const float *)(uintptr_t)p;
        _exit(*device == 0.0f ? 1 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) <= 2);
    GOOD(t.d.memory_free(p));
    end(&t);
}

/* Work that is done late still sees what was there when it was queued, as far as it may. */
static void test_late(void **state)
{
    (void)state;
    struct test t;
    CUdeviceptr p;
    if (is_real()) skip();
    assert_int_equal(setenv("QRN_EMULATED_LATE", "1", 1), 0);
    begin(&t, qrn_cuda_image_kernels);
    GOOD(t.d.memory_alloc(&p, 64));
    t.memory[0] = 1.0f;
    GOOD(t.d.copy_to_device(p, t.memory, sizeof(float), t.stream));
    t.memory[0] = 2.0f; /* too early: shared memory is read when the copy is done */
    GOOD(t.d.copy_to_host(t.memory + 1, p, sizeof(float), t.stream));
    assert_float_equal(t.memory[1], 0.0f, 0.0f);
    GOOD(t.d.stream_synchronize(t.stream));
    assert_float_equal(t.memory[1], 2.0f, 0.0f);
    const float own = 3.0f;
    GOOD(t.d.copy_to_device(p, &own, sizeof own, t.stream));
    GOOD(t.d.copy_to_host(t.memory + 1, p, sizeof(float), t.stream));
    GOOD(t.d.memory_free(p)); /* waits */
    assert_float_equal(t.memory[1], 3.0f, 0.0f);
    end(&t);
    assert_int_equal(unsetenv("QRN_EMULATED_LATE"), 0);
}

static double half_value(int type, uint16_t h)
{
    return (double)(type ? qrn_f16_to_float(h) : qrn_bf16_to_float(h));
}

static uint16_t half_of(int type, double x)
{
    return type ? qrn_float_to_f16((float)x) : qrn_float_to_bf16((float)x);
}

static void expect_product(const float *c, const double a[16][32], const double b[32][8], int n_k)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double sum = 0.0;
            for (int k = 0; k < n_k; k++) sum += a[i][k] * b[k][j];
            assert_float_equal(c[8 * i + j], (float)sum, 1e-5f);
        }
}

/* With 10 bits behind the point. */
static float tf32_of(double x)
{
    const float f = (float)x;
    uint32_t bits;
    float y;
    memcpy(&bits, &f, sizeof bits);
    bits &= 0xffffe000u;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static void test_fragments(void **state)
{
    (void)state;
    struct test t;
    struct rng r = {1};
    begin(&t, qrn_cuda_image_kernels);
    uint8_t *a = (uint8_t *)t.memory, *b = a + 512;
    struct qrn_test_mma_params p = {a, b, t.memory + 256, 0, 16};
    for (p.type = 0; p.type < 4; p.type++) {
        double x[16][32] = {{0}}, y[32][8] = {{0}};
        const int n_k = p.type == 2 ? 32 : p.type == 3 ? 8 : 16;
        for (int i = 0; i < 24 * n_k; i++) { /* rows of a, columns of b */
            const double value = p.type == 2 ? (double)(rng_below(&r, 256) - 128) : rng_normal(&r);
            const uint16_t h = half_of(p.type, value);
            const float f = tf32_of(value),
                        more = f * (1.0f + 0x1p-11f); /* the last bits are forgotten */
            double *to = i < 16 * n_k ? &x[i / n_k][i % n_k] : &y[i % n_k][i / n_k - 16];
            *to = p.type == 2 ? value : p.type == 3 ? (double)f : half_value(p.type, h);
            if (p.type == 2)
                a[i] = (uint8_t)(int8_t)value;
            else if (p.type == 3)
                memcpy(a + 4 * i, &more, 4);
            else
                memcpy(a + 2 * i, &h, 2);
        }
        GOOD(launch(&t, "qrn_test_mma", 32, 0, &p));
        expect_product(p.c, (const double(*)[32])x, (const double(*)[8])y, n_k);
    }
    end(&t);
}

static void test_ldmatrix(void **state)
{
    (void)state;
    struct test t;
    struct rng r = {2};
    begin(&t, qrn_cuda_image_kernels);
    uint8_t *a = (uint8_t *)t.memory, *b = a + 512;
    struct qrn_test_mma_params p = {a, b, t.memory + 256, 0, 13};
    double x[16][32] = {{0}}, y[32][8] = {{0}};
    for (int i = 0; i < 256 + 128; i++) { /* both by rows; of b the last three are not there */
        const uint16_t h = half_of(0, rng_normal(&r));
        memcpy(a + 2 * i, &h, 2);
        if (i < 256)
            x[i / 16][i % 16] = half_value(0, h);
        else if (i < 256 + 13 * 8)
            y[(i - 256) / 8][i % 8] = half_value(0, h);
    }
    GOOD(launch(&t, "qrn_test_ldmatrix", 32, 0, &p));
    expect_product(p.c, (const double(*)[32])x, (const double(*)[8])y, 16);
    end(&t);
}

static void test_refuses(void **state)
{
    (void)state;
    static const char text[16] = "no binary";
    struct test t;
    CUmodule m;
    CUfunction f;
    if (is_real()) skip();
    begin(&t, qrn_cuda_image_kernels);
    assert_int_equal(t.d.module_load(&m, text), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(t.d.module_function(&f, t.module, "qrn_no_such"), CUDA_ERROR_NOT_FOUND);
    GOOD(t.d.module_function(&f, t.module, "qrn_test_shuffles"));
    assert_int_equal(launch_blocks(&t, f, 0, 32, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_blocks(&t, f, 1, 1025, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    GOOD(t.d.context_pop(&t.context));
    assert_int_equal(t.d.module_load(&m, qrn_cuda_image_kernels), CUDA_ERROR_INVALID_CONTEXT);
    GOOD(t.d.context_push(t.context));
    end(&t);
}

/* --- blocks that wait for each other --- */

enum { N_BLOCKS = 4, N_ROUNDS = 30, N_RING_WORDS = N_BLOCKS * N_ROUNDS, WORDS_AT = 4096 };

struct ring {
    struct test t;
    CUfunction function;
    struct qrn_test_ring_params p;
    uint32_t want[N_BLOCKS];
};

static void want_of_ring(struct ring *r, unsigned n_blocks)
{
    for (unsigned i = 0; i < n_blocks; i++) r->want[i] = i + 1;
    for (int round = 0; round < r->p.n_rounds; round++) {
        uint32_t seen[N_BLOCKS];
        memcpy(seen, r->want, sizeof seen);
        for (unsigned i = 0; i < n_blocks; i++) {
            uint32_t *number = &r->want[i];
            for (unsigned k = 0; k < n_blocks; k++) *number = 5 * *number + seen[k];
            *number += r->p.data[QRN_TEST_RING_DATA * i + (unsigned)round];
            *number |= 1;
        }
    }
}

static void begin_ring(struct ring *r, const char *kernel)
{
    struct rng rng = {3};
    begin(&r->t, qrn_cuda_image_kernels_sm90a);
    GOOD(r->t.d.module_function(&r->function, r->t.module, kernel));
    uint32_t *data = (uint32_t *)(void *)r->t.memory, *words = data + WORDS_AT;
    for (int i = 0; i < N_BLOCKS * QRN_TEST_RING_DATA; i++)
        data[i] = (uint32_t)rng_below(&rng, 1 << 30);
    r->p = (struct qrn_test_ring_params){words, data, words + N_RING_WORDS, N_ROUNDS, -1};
}

static CUresult launch_ring(struct ring *r, unsigned n_blocks, bool together)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                   .value.cooperative = together};
    const CUlaunchConfig c = {.gridDimX = n_blocks,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = QRN_TEST_RING_THREADS,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .sharedMemBytes = 4 * QRN_TEST_RING_DATA,
                              .hStream = r->t.stream,
                              .attrs = &attribute,
                              .numAttrs = 1};
    void *params = &r->p;
    return r->t.d.launch(&c, r->function, &params, NULL);
}

static void expect_ring(struct ring *r, unsigned n_blocks)
{
    GOOD(r->t.d.stream_synchronize(r->t.stream));
    want_of_ring(r, n_blocks);
    assert_memory_equal(r->p.out, r->want, n_blocks * sizeof *r->want);
}

static void clear_words(struct ring *r)
{
    memset(r->p.words, 0, (N_RING_WORDS + N_BLOCKS) * sizeof *r->p.words);
}

/* One block alone waits for itself. */
static void test_together(void **state)
{
    (void)state;
    struct ring r;
    static const char *const slow[] = {"-1", "0", "1"};
    if (is_not_hopper()) skip();
    for (int i = 0; i < 6; i++) {
        assert_int_equal(setenv("QRN_EMULATED_REVERSE", i % 2 ? "1" : "0", 1), 0);
        assert_int_equal(setenv("QRN_EMULATED_SLOW_WARP", slow[i / 2], 1), 0);
        begin_ring(&r, "qrn_test_ring");
        GOOD(launch_ring(&r, N_BLOCKS, true));
        expect_ring(&r, N_BLOCKS);
        clear_words(&r);
        GOOD(launch_ring(&r, 1, false));
        expect_ring(&r, 1);
        end(&r.t);
    }
    assert_int_equal(unsetenv("QRN_EMULATED_REVERSE"), 0);
    assert_int_equal(unsetenv("QRN_EMULATED_SLOW_WARP"), 0);
}

static void test_together_in_graph(void **state)
{
    (void)state;
    struct ring r;
    CUgraph graph;
    CUgraphExec exec;
    if (is_not_hopper()) skip();
    begin_ring(&r, "qrn_test_ring");
    GOOD(r.t.d.capture_begin(r.t.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    GOOD(launch_ring(&r, N_BLOCKS, true));
    GOOD(r.t.d.capture_end(r.t.stream, &graph));
    GOOD(r.t.d.graph_instantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        clear_words(&r);
        GOOD(r.t.d.graph_launch(exec, r.t.stream));
        expect_ring(&r, N_BLOCKS);
    }
    GOOD(r.t.d.graph_exec_destroy(exec));
    GOOD(r.t.d.graph_destroy(graph));
    end(&r.t);
}

static void test_too_many_together(void **state)
{
    (void)state;
    struct ring r;
    if (is_not_hopper()) skip();
    begin_ring(&r, "qrn_test_ring");
    assert_int_equal(launch_ring(&r, is_real() ? 1 << 20 : N_BLOCKS + 1, true),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    GOOD(launch_ring(&r, N_BLOCKS, true)); /* and nothing is lost */
    expect_ring(&r, N_BLOCKS);
    end(&r.t);
}

static void test_waits_for_ever(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *text;
        unsigned n_blocks;
        bool together;
        int32_t mute;
    } cases[] = {
        {"qrn_test_ring",
         "block (0, 0, 0), thread 34 waits for what others write: and nothing goes on", 4, true, 2},
        {"qrn_test_ring", "block (0, 0, 0), thread 33 waits for what others write", 2, false, -1},
        {"qrn_test_never_told", "block (1, 0, 0), thread 0 waits for what others write", 3, true,
         -1},
        {"qrn_test_never_told", "block (1, 0, 0), thread 0 waits for what others write", 2, false,
         -1},
    };
    if (is_real()) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ring r;
        begin_ring(&r, cases[i].kernel);
        r.p.mute = cases[i].mute;
        GOOD(launch_ring(&r, cases[i].n_blocks, cases[i].together));
        assert_int_equal(r.t.d.stream_synchronize(r.t.stream), CUDA_ERROR_LAUNCH_FAILED);
        const char *text = qrn_cuda_text(&r.t.d, CUDA_ERROR_LAUNCH_FAILED);
        if (!strstr(text, cases[i].text) || !strstr(text, cases[i].kernel)) fail_msg("%s", text);
        end(&r.t);
    }
}

/* --- clusters --- */

enum { N_CLUSTER_BLOCKS = 8, N_OUT = N_CLUSTER_BLOCKS * QRN_TEST_CLUSTER_THREADS };

struct cluster_of {
    unsigned x, y;
    bool none, cooperative;
};

static CUresult launch_clusters(struct test *t, unsigned n_blocks, struct cluster_of of,
                                struct qrn_test_cluster_params *p)
{
    CUfunction f;
    CUlaunchAttribute attributes[] = {
        {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = of.cooperative},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {of.x, of.y, 1}}};
    GOOD(t->d.module_function(&f, t->module, "qrn_test_cluster"));
    const CUlaunchConfig c = {.gridDimX = n_blocks,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = QRN_TEST_CLUSTER_THREADS,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .sharedMemBytes =
                                  QRN_TEST_CLUSTER_ROUNDS * (4 * QRN_TEST_CLUSTER_THREADS + 8),
                              .hStream = t->stream,
                              .attrs = attributes,
                              .numAttrs = of.none ? 1 : 2};
    void *params = p;
    return t->d.launch(&c, f, &params, NULL);
}

static void expect_clusters(const float *out, int n_cluster)
{
    float x[N_OUT], before[N_OUT];
    for (int i = 0; i < N_OUT; i++) x[i] = (float)i;
    for (int round = 0; round < QRN_TEST_CLUSTER_ROUNDS; round++) {
        memcpy(before, x, sizeof x);
        for (int i = 0; i < N_OUT; i++) {
            const int block = i / QRN_TEST_CLUSTER_THREADS, first = block - block % n_cluster,
                      from = first + (block - first + n_cluster - 1) % n_cluster;
            x[i] = 0.5f * before[i] +
                   before[from * QRN_TEST_CLUSTER_THREADS + (i % QRN_TEST_CLUSTER_THREADS ^ 1)];
        }
    }
    assert_memory_equal(out, x, sizeof x);
}

static void test_clusters(void **state)
{
    (void)state;
    static const char *const slow[] = {"-1", "0", "1"};
    if (is_not_hopper()) skip();
    for (int i = 0; i < 6; i++)
        for (unsigned n = 1; n <= N_CLUSTER_BLOCKS; n *= 2) {
            struct test t;
            assert_int_equal(setenv("QRN_EMULATED_REVERSE", i % 2 ? "1" : "0", 1), 0);
            assert_int_equal(setenv("QRN_EMULATED_SLOW_WARP", slow[i / 2], 1), 0);
            begin(&t, qrn_cuda_image_kernels_sm90a);
            struct qrn_test_cluster_params p = {t.memory, (int32_t)n, QRN_TEST_NO_FAULT};
            GOOD(
                launch_clusters(&t, N_CLUSTER_BLOCKS, (struct cluster_of){n, 1, false, false}, &p));
            GOOD(t.d.stream_synchronize(t.stream));
            expect_clusters(t.memory, (int)n);
            end(&t);
        }
    assert_int_equal(unsetenv("QRN_EMULATED_REVERSE"), 0);
    assert_int_equal(unsetenv("QRN_EMULATED_SLOW_WARP"), 0);
}

static void test_no_clusters(void **state)
{
    (void)state;
    static const struct {
        unsigned n_blocks;
        struct cluster_of of;
        CUresult result;
    } cases[] = {
        {32, {16, 1, false, false}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {8, {0, 1, false, false}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {6, {4, 1, false, false}, CUDA_ERROR_INVALID_VALUE},
        {8, {2, 2, false, false}, CUDA_ERROR_NOT_SUPPORTED},
        {4, {2, 1, false, true}, CUDA_ERROR_NOT_SUPPORTED},
    };
    if (is_real()) skip(); /* it may have other words, or know how */
    struct test t;
    begin(&t, qrn_cuda_image_kernels_sm90a);
    struct qrn_test_cluster_params p = {t.memory, 1, QRN_TEST_NO_FAULT};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(launch_clusters(&t, cases[i].n_blocks, cases[i].of, &p), cases[i].result);
    end(&t);
}

static void test_cluster_goes_wrong(void **state)
{
    (void)state;
    static const struct {
        enum qrn_test_fault fault;
        bool none, reverse;
        const char *text;
    } cases[] = {
        {QRN_TEST_IS_ABSENT, false, false, "waits for its cluster: and nothing goes on"},
        {QRN_TEST_DOES_NOT_WAIT, false, false, "has ended and not waited for its cluster"},
        {QRN_TEST_ARRIVES_TWICE, false, false, "arrives at its cluster's barrier twice"},
        {QRN_TEST_NEVER_ARRIVES, false, false,
         "waits at its cluster's barrier without having arrived"},
        {QRN_TEST_SENDS_EARLY, false, false, "before it knows that that has begun"},
        {QRN_TEST_SENDS_OUT, false, false, "sends to block 4 of its cluster, which there is not"},
        {QRN_TEST_IS_MUTE, false, false, "waits for a barrier's phase: and nothing goes on"},
        {QRN_TEST_LEAVES, false, false, "has ended and not waited for what others sent"},
        {QRN_TEST_LEAVES, false, true, "sends to block 2 of its cluster, which has ended"},
        {QRN_TEST_NO_FAULT, true, false, "but the launch has none"},
    };
    if (is_real()) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test t;
        assert_int_equal(setenv("QRN_EMULATED_REVERSE", cases[i].reverse ? "1" : "0", 1), 0);
        begin(&t, qrn_cuda_image_kernels_sm90a);
        struct qrn_test_cluster_params p = {t.memory, 4, cases[i].fault};
        GOOD(launch_clusters(&t, 8, (struct cluster_of){4, 1, cases[i].none, false}, &p));
        assert_int_equal(t.d.stream_synchronize(t.stream), CUDA_ERROR_LAUNCH_FAILED);
        const char *text = qrn_cuda_text(&t.d, CUDA_ERROR_LAUNCH_FAILED);
        if (!strstr(text, cases[i].text)) fail_msg("%s", text);
        end(&t);
    }
    assert_int_equal(unsetenv("QRN_EMULATED_REVERSE"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_ends),
        cmocka_unit_test(test_shuffles),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_together_in_graph),
        cmocka_unit_test(test_too_many_together),
        cmocka_unit_test(test_waits_for_ever),
        cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_no_clusters),
        cmocka_unit_test(test_cluster_goes_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 0; /* nothing to emulate */
}
#endif
