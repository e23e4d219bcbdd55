/* SPDX-License-Identifier: MIT
 * matmul: a row of out is a function of its x row and the weights alone.  For every kernel of every
 * device, rows of M at once equal rows one by one, packed weights equal those in rows, any number
 * of threads equals one, activations rounded before equal those rounded inside; by memcmp. */
#include <stdio.h>
#include <stdlib.h>

#include "support/sanitized.h"
#include "support/weights.h"

enum { MOST_ROWS = 300 };

/* Every kernel of dev that takes a, each against want (NULL: the first one's result is want). */
static size_t run_kernels(struct qrn_device *dev, const struct qrn_matmul_args *a, const char *only,
                          const void *want, const char *what)
{
    size_t n_run = 0;
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul, i)) != NULL; i++) {
        struct qrn_error err;
        if (strcmp(k->name, only) != 0 || (k->supports && !k->supports(a))) continue;
        memset(a->out.data, 0xff, a->out.n_bytes);
        if (qrn_kernel_run(dev, k, a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        if (want && memcmp(want, a->out.data, a->out.n_bytes) != 0)
            fail_msg("%s, %s, %d threads: M %d differs from rows one by one", k->name, what,
                     dev->n_threads, (int)a->x.shape[0]);
        n_run++;
    }
    return n_run;
}

/* The weights of a as dev packs them, or absent. */
static struct qrn_tensor pack(struct mem *m, struct qrn_device *dev,
                              const struct qrn_matmul_args *a)
{
    const struct weights w = {.w = a->w, .scales = a->scales, .biases = a->biases};
    return pack_weights(m, dev, &w, a->activation);
}

/* x as rounded rows, apart from each other in memory. */
static struct qrn_tensor rounded(struct mem *m, struct qrn_device *dev, struct qrn_tensor x)
{
    const struct qrn_tensor wide =
        mem_tensor(m, QRN_Q8_ACT, 2, (const int64_t[]){x.shape[0], x.shape[1] + 256});
    const struct qrn_cast_args cast = {x, qrn_tensor_slice(wide, 1, 128, x.shape[1])};
    struct qrn_error err;
    if (qrn_cast(dev, &cast, &err) != QRN_OK) fail_msg("%s", err.text);
    return cast.out;
}

/* One kernel, rows one by one with one thread and weights in rows: what all else must equal. */
static void check_kernel(struct qrn_device *const devs[3], const char *kernel,
                         const struct qrn_matmul_args *all, const struct qrn_matmul_args *packed,
                         const struct qrn_tensor *acts, const char *what)
{
    const int64_t n = all->out.shape[1];
    struct mem m = {0};
    float *want = mem_guarded(&m, all->out.n_bytes);
    struct qrn_matmul_args a = *all;
    const bool rows = a.layout == QRN_LAYOUT_ROWS;
    for (int64_t r = 0; r < all->x.shape[0]; r++) {
        a.x = qrn_tensor_slice(all->x, 0, r, 1);
        a.out = qrn_tensor_2d(QRN_F32, want + r * n, 1, n);
        if (run_kernels(devs[0], &a, kernel, NULL, what) == 0) {
            mem_free_all(&m);
            return;
        }
    }
    static const int64_t some[] = {34, 67, 300, 560}; /* 560: walked in two parts */
    /* Portable C has no tiles: fewer numbers of rows, as where all is slow. */
    const bool slow = SANITIZED || strstr(kernel, "generic") != NULL;
    for (int64_t i = 0; i < 33 + 4; i++) {
        const int64_t n_rows = i < 33 ? i + 1 : some[i - 33];
        if (n_rows > all->x.shape[0]) break;
        if (slow && n_rows != 2 && n_rows != 9 && n_rows < 67) continue;
        for (int threads = 0; threads < 3; threads++) {
            if (threads != i % 3 && ((n_rows != 33 && n_rows != 67) || slow)) continue;
            for (int layout = 0; layout < 2; layout++) {
                a = layout ? *packed : *all;
                if (!a.w.n_dims || (layout && !rows)) continue;
                a.x = qrn_tensor_slice(all->x, 0, 0, n_rows);
                a.out = qrn_tensor_2d(QRN_F32, all->out.data, n_rows, n);
                run_kernels(devs[threads], &a, kernel, want, what);
                if (!acts->n_dims) continue;
                a.x = qrn_tensor_slice(*acts, 0, 0, n_rows);
                run_kernels(devs[threads], &a, kernel, want, what);
            }
        }
    }
    mem_free_all(&m);
}

static void check_type(struct devices *d, size_t i_type, bool q8, int64_t n_rows, int64_t n,
                       int64_t k, int64_t group, enum qrn_dtype scales_type)
{
    struct mem m = {0};
    struct rng r = {i_type};
    const struct weights w =
        random_weights(&m, &r, i_type, 2, (const int64_t[]){n, k}, group, scales_type);
    const struct qrn_matmul_args all = {
        .w = w.w,
        .scales = w.scales,
        .biases = w.biases,
        .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){n_rows, k}),
        .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
        .activation = q8 ? QRN_ACT_Q8 : QRN_ACT_F32};
    char what[96];
    snprintf(what, sizeof what, "%s %s, N %d, K %d", qrn_dtype_info(w.w.dtype)->name,
             q8 ? "q8" : "f32", (int)n, (int)k);
    /* The first device has the kernels of all; panels of each are in test_layouts too. */
    for (size_t i = 0; i < (SANITIZED ? 1 : d[0].n); i++) {
        struct qrn_device *const devs[3] = {d[0].dev[i], d[1].dev[i], d[2].dev[i]};
        struct qrn_matmul_args packed = all;
        const struct qrn_tensor acts =
            q8 && k % 128 == 0 ? rounded(&m, devs[0], all.x) : (struct qrn_tensor){0};
        const struct qrn_kernel *kernel;
        packed.w = pack(&m, devs[1], &all);
        packed.layout = QRN_LAYOUT_PACKED;
        packed.scales = packed.biases = (struct qrn_tensor){0};
        for (size_t j = 0; (kernel = qrn_kernel_at(devs[0], QRN_OP_matmul, j)) != NULL; j++)
            check_kernel(devs, kernel->name, &all, &packed, &acts, what);
    }
    mem_free_all(&m);
}

static void open_all(struct devices d[3])
{
    for (int i = 0; i < 3; i++) devices_open(&d[i], i + 1);
}

static void close_all(struct devices d[3])
{
    for (int i = 0; i < 3; i++) devices_close(&d[i]);
}

/* Every type, N odd, more than one chunk of groups, more than one of columns. */
static void test_types(void **state)
{
    (void)state;
    struct devices d[3];
    open_all(d);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (int q8 = 0; q8 < 2; q8++) {
            if (q8 && !qrn_has_integer_form(weight_types[t].dtype)) continue;
            check_type(d, t, q8, 67, 75, 768, 64, QRN_BF16);
            if (qrn_dtype_info(weight_types[t].dtype)->block_elements <= 32)
                check_type(d, t, q8, 67, 17, 480, 32, QRN_F32); /* the last block of x is short */
            if (qrn_is_mlx(weight_types[t].dtype)) {
                check_type(d, t, q8, 67, 17, 960, 64, QRN_F32);
                check_type(d, t, q8, 67, 17, 1280, 128, QRN_F16);
            }
        }
    close_all(d);
}

static void test_many_rows(void **state)
{
    (void)state;
    static const enum qrn_dtype types[] = {QRN_F32,  QRN_BF16, QRN_Q4_0,
                                           QRN_Q8_0, QRN_Q4_K, QRN_Q6_K};
    struct devices d[3];
    open_all(d);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
            if (weight_types[t].dtype == types[i])
                check_type(d, t, qrn_has_integer_form(types[i]), MOST_ROWS, 151, 1280, 32, QRN_F32);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        if (weight_types[t].dtype == QRN_Q4_0 || weight_types[t].dtype == QRN_Q6_K)
            check_type(d, t, true, 560, 40, 768, 32, QRN_F32);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) /* so many outputs pass by the caches */
        if (weight_types[t].dtype == QRN_Q4_0 && !SANITIZED)
            check_type(d, t, true, 560, 1904, 64, 32, QRN_F32); /* rows of 119 lines */
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) { /* one group: lanes share the rows */
        if (weight_types[t].dtype == QRN_F32 || weight_types[t].dtype == QRN_F16)
            check_type(d, t, false, MOST_ROWS, 16, 515, 32, QRN_F32);
        if (weight_types[t].dtype == QRN_Q5_1 || weight_types[t].dtype == QRN_Q5_K)
            check_type(d, t, true, MOST_ROWS, 16, 768, 32, QRN_F32);
    }
    close_all(d);
}

/* Plain types have tails in K. */
static void test_tails(void **state)
{
    (void)state;
    static const int64_t ks[] = {1, 7, 33, 100, 515};
    struct devices d[3];
    open_all(d);
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
            check_type(d, t, false, 34, 37, ks[i], 32, QRN_F32);
    close_all(d);
}

/* The kernels with FMA have one expression for each activation: the same bits. */
static void check_agreement(struct qrn_device *dev, const struct qrn_matmul_args *rows)
{
    struct mem m = {0};
    struct qrn_matmul_args packed = *rows;
    const struct qrn_kernel *k;
    void *want = NULL;
    packed.w = pack(&m, dev, rows);
    packed.scales = packed.biases = (struct qrn_tensor){0};
    packed.layout = QRN_LAYOUT_PACKED;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul, i)) != NULL; i++) {
        if (k->needs == 0) continue; /* portable C multiplies, then adds */
        for (int layout = 0; layout < 2; layout++) {
            const struct qrn_matmul_args *a = layout ? &packed : rows;
            if (!a->w.n_dims || !run_kernels(dev, a, k->name, want, k->name)) continue;
            if (want) continue;
            want = mem_guarded(&m, a->out.n_bytes);
            memcpy(want, a->out.data, a->out.n_bytes);
        }
    }
    mem_free_all(&m);
}

/* Codes and small integers of blocks all at an end of their ranges, in each row at others.  Small integers are among the
 * first 16 bytes of a block or from byte 192 on. */
static void make_extreme(struct qrn_tensor *w, size_t i_type)
{
    static const uint8_t integers[] = {0xff, 0x7f, 0x80}, codes[] = {0xff, 0x00, 0x77, 0x88};
    const struct qrn_dtype_info *info = qrn_dtype_info(w->dtype);
    const int *half = weight_types[i_type].half;
    const int64_t row_bytes = w->shape[1] / info->block_elements * info->block_bytes;
    if (half[0] < 0 && !qrn_is_mlx(w->dtype)) return;
    for (int64_t i = 0; i < w->shape[0] * row_bytes; i++) {
        const int64_t n = i / row_bytes, at = i % info->block_bytes;
        bool is_half = false;
        for (int h = 0; h < 2; h++)
            is_half = is_half || (half[h] >= 0 && (at == half[h] || at == half[h] + 1));
        if (!is_half)
            ((uint8_t *)w->data)[i] = (at < 16 || at >= 192) ? integers[n % 3] : codes[n / 3 % 4];
    }
}

/* Equal activations are all rounded to the largest code: with extreme weights the largest sums.  Of small ones one in 128
 * is large: sums are small.  Those of the first rows are small, if `mixed`, the others equal. */
static void fill_rows(const struct qrn_tensor *x, int64_t k, bool mixed)
{
    float *at = x->data;
    for (int64_t i = 0; i < x->shape[0] * k; i++) {
        const bool small = mixed && i / k < 14;
        at[i] = !small || i % 128 == i / k % 128 ? 1.0f : (float)(i % 7 - 3) * 0.03f;
    }
}

/* One row may meet codes in registers, 15 fill tiles of 8, 4, 2 and 1, 26 a panel and a tile. */
static void test_kernels_agree(void **state)
{
    (void)state;
    static const int64_t numbers[] = {1, 15, 26};
    struct devices d;
    devices_open(&d, 2);
    for (size_t i = 0; i < N_WEIGHT_TYPES * 3 * 2 * 4; i++) {
        const size_t t = i / 24;
        const int64_t n_rows = numbers[i / 8 % 3];
        const bool q8 = i / 4 % 2, filled = i % 4, extreme = i % 4 >= 2, mixed = i % 4 == 3;
        struct mem m = {0};
        struct rng r = {t};
        if (q8 && !qrn_has_integer_form(weight_types[t].dtype)) continue;
        struct weights w = random_weights(&m, &r, t, 2, (const int64_t[]){37, 768}, 64, QRN_F16);
        if (extreme && qrn_has_integer_form(weight_types[t].dtype)) make_extreme(&w.w, t);
        const struct qrn_matmul_args rows = {
            .w = w.w,
            .scales = w.scales,
            .biases = w.biases,
            .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){n_rows, 768}),
            .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){n_rows, 37}),
            .activation = q8 ? QRN_ACT_Q8 : QRN_ACT_F32};
        if (filled) fill_rows(&rows.x, 768, mixed);
        check_agreement(d.dev[0], &rows);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* More columns than a tile of some rows meets at once. */
static void test_long_rows(void **state)
{
    (void)state;
    enum { M = 7, N = 17, K = 16384 + 768 };
    struct devices d;
    devices_open(&d, 2);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        struct mem m = {0};
        struct rng r = {t};
        if (!qrn_has_integer_form(weight_types[t].dtype)) continue;
        const struct weights w = random_weights(&m, &r, t, 2, (const int64_t[]){N, K}, 128, QRN_F16);
        const struct qrn_matmul_args rows = {.w = w.w,
                                             .scales = w.scales,
                                             .biases = w.biases,
                                             .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){M, K}),
                                             .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){M, N}),
                                             .activation = QRN_ACT_Q8};
        check_agreement(d.dev[0], &rows);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* The layouts of a device may be mixed: what it picks for rows and for packed weights agrees; so do
 * devices of one bits id. */
static void test_layouts(void **state)
{
    (void)state;
    enum { M = 3, N = 33 };
    float before[M * N];
    struct devices d;
    devices_open(&d, 2);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (int q8 = 0; q8 < 2; q8++)
            for (size_t i = 0; i < d.n; i++) {
                struct mem m = {0};
                struct rng r = {t};
                struct qrn_error err;
                const struct weights w =
                    random_weights(&m, &r, t, 2, (const int64_t[]){N, 512}, 64, QRN_BF16);
                struct qrn_matmul_args a = {
                    .w = w.w,
                    .scales = w.scales,
                    .biases = w.biases,
                    .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){M, 512}),
                    .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){M, N}),
                    .activation = q8 ? QRN_ACT_Q8 : QRN_ACT_F32};
                void *want = mem_guarded(&m, a.out.n_bytes);
                if (qrn_matmul(d.dev[i], &a, &err) != QRN_OK) fail_msg("%s", err.text);
                memcpy(want, a.out.data, a.out.n_bytes);
                if (i > 0 &&
                    strcmp(qrn_device_bits(d.dev[i]), qrn_device_bits(d.dev[i - 1])) == 0 &&
                    memcmp(want, before, sizeof before) != 0)
                    fail_msg("%s, %s: a device with fewer features gives other bits",
                             qrn_device_bits(d.dev[i]), qrn_dtype_info(w.w.dtype)->name);
                memcpy(before, want, sizeof before);
                a.w = pack(&m, d.dev[i], &a);
                a.scales = a.biases = (struct qrn_tensor){0};
                a.layout = QRN_LAYOUT_PACKED;
                if (a.w.n_dims) {
                    if (qrn_matmul(d.dev[i], &a, &err) != QRN_OK) fail_msg("%s", err.text);
                    if (memcmp(want, a.out.data, a.out.n_bytes) != 0)
                        fail_msg("%s, %s: packed weights give other bits than rows",
                                 qrn_device_bits(d.dev[i]), qrn_dtype_info(w.w.dtype)->name);
                }
                mem_free_all(&m);
            }
    devices_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),         cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_tails),         cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_kernels_agree),
        cmocka_unit_test(test_long_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
