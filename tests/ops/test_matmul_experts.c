/* SPDX-License-Identifier: MIT
 * matmul_id of packed weights with bf16 x on a GPU, real or emulated, in any order, where cuda.matmul_id.wgmma
 * decodes weights to registers: all types, experts of no rows and of many, tiles of all widths, rows of x wherever they
 * lie. */
#include <stdio.h>

#include "support/matmul_gpu.h"

static const char kernel_name[] = "cuda.matmul_id.wgmma";

static const struct qrn_kernel *kernel_of(struct qrn_device *dev)
{
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul_id, i)) != NULL; i++)
        if (strcmp(k->name, kernel_name) == 0) return k;
    return NULL;
}

static struct qrn_device *device(void)
{
    struct qrn_device *dev = matmul_device("3", "cuda.matmul.wgmma");
    if (!kernel_of(dev)) skip();
    return dev;
}

static void run(struct qrn_device *dev, const struct qrn_matmul_id_args *a, const char *what)
{
    struct qrn_error err;
    assert_true(kernel_of(dev)->supports(a));
    if (qrn_kernel_run(dev, kernel_of(dev), a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
}

/* So many slots of each expert, in no order; the last number: of none.  Experts lie side by side, or two and two `apart`
 * numbers from each other: those between have no slots. */
enum { EXPERTS = 6 };
struct counts {
    int64_t of[EXPERTS + 1];
    int32_t apart; /* 0: side by side */
};

static int32_t n_experts(const struct counts *counts)
{
    return counts->apart ? EXPERTS / 2 * counts->apart : EXPERTS;
}

/* The number of expert e; of others one that no expert has. */
static int32_t number_of(const struct counts *counts, int32_t e)
{
    if (e < 0) return -1;
    if (e >= EXPERTS) return n_experts(counts) + e - EXPERTS;
    return counts->apart ? e / 2 * counts->apart + e % 2 : e;
}

static void fill_ids(struct rng *r, const struct counts *counts, struct qrn_tensor *ids)
{
    int32_t *id = ids->data;
    int64_t n = 0;
    for (int e = 0; e <= EXPERTS; e++)
        for (int64_t i = 0; i < counts->of[e]; i++)
            id[n++] = number_of(counts, e < EXPERTS ? e : i % 2 ? -1 : EXPERTS + 3);
    assert_int_equal(n, qrn_tensor_n_elements(ids));
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = rng_below(r, i + 1);
        const int32_t other = id[i];
        id[i] = id[j], id[j] = other;
    }
}

/* The same ids as columns of wider rows. */
static struct qrn_tensor widened(struct mem *m, const struct qrn_tensor *ids)
{
    const int64_t n = ids->shape[0], top_k = ids->shape[1];
    const struct qrn_tensor wide = mem_tensor(m, QRN_I32, 2, (const int64_t[]){n, top_k + 1});
    memset(wide.data, 0, wide.n_bytes);
    for (int64_t i = 0; i < n * top_k; i++)
        ((int32_t *)wide.data)[i + i / top_k + 1] = ((const int32_t *)ids->data)[i];
    return qrn_tensor_slice(wide, 1, 1, top_k);
}

/* Twice as far off as with weights rounded once, at most; rows of no expert are NaN. */
static void check_distances(const struct weights *w, const struct qrn_matmul_id_args *a,
                            const struct counts *counts, const char *what)
{
    enum { MOST_K = 1024 };
    const int64_t n = a->out.shape[2], k = a->x.shape[2], n_slots = qrn_tensor_n_elements(&a->ids),
                  each = a->ids.shape[1] / a->x.shape[1];
    static float values[MOST_K], rounded[MOST_K];
    double of_results = 0.0, of_rounding = 0.0, of_all = 0.0;
    assert_true(k <= MOST_K);
    for (int32_t e = -1; e < EXPERTS + 4; e++)
        for (int64_t i = 0; i < n; i++) {
            const bool is_none = e < 0 || e >= EXPERTS;
            if (!is_none) {
                const struct qrn_weight_row from =
                    qrn_weight_row(&w->w, &w->scales, &w->biases, 0, number_of(counts, e), i);
                qrn_weight_decode(&from, 0, k, values);
            }
            for (int64_t j = 0; j < k; j++) rounded[j] = matmul_rounded(values[j]);
            for (int64_t s = 0; s < n_slots; s++) {
                if (((const int32_t *)a->ids.data)[s] != number_of(counts, e)) continue;
                const float got = ((const float *)a->out.data)[s * n + i],
                            *x = (const float *)a->x.data + s / each * k;
                if (is_none) {
                    if (!isnan(got)) fail_msg("%s: slot %d of no expert", what, (int)s);
                    continue;
                }
                double want = 0.0, once = 0.0;
                for (int64_t j = 0; j < k; j++) {
                    want += (double)values[j] * (double)matmul_rounded(x[j]);
                    once += (double)rounded[j] * (double)matmul_rounded(x[j]);
                }
                if (!isfinite(got)) fail_msg("%s: slot %d is not finite", what, (int)s);
                of_results += ((double)got - want) * ((double)got - want);
                of_rounding += (once - want) * (once - want);
                of_all += want * want;
            }
        }
    if (!(sqrt(of_results) <= 2.0 * sqrt(of_rounding) + 1e-6 * sqrt(of_all)))
        fail_msg("%s: off by %g of %g, rounded weights by %g", what, sqrt(of_results), sqrt(of_all),
                 sqrt(of_rounding));
}

/* The bits of a->out: x as bf16 where pieces of 16 bytes begin anywhere, and where they are aligned; ids and out in wider rows. */
static void check_strides(struct mem *m, struct qrn_device *dev, const struct qrn_matmul_id_args *a,
                          const char *what)
{
    const int64_t n_tokens = a->x.shape[0], n_x = a->x.shape[1], k = a->x.shape[2],
                  n = a->out.shape[2], n_slots = qrn_tensor_n_elements(&a->ids);
    struct qrn_matmul_id_args b = *a;
    struct qrn_error err;
    b.ids = widened(m, &a->ids);
    for (int64_t more = 3; more <= 8; more += 5) {
        const struct qrn_tensor wide =
            mem_tensor(m, QRN_BF16, 3, (const int64_t[]){n_tokens, n_x, k + more});
        const struct qrn_cast_args cast = {a->x, qrn_tensor_slice(wide, 2, more, k)};
        if (qrn_cast(dev, &cast, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        b.x = cast.out;
        b.out = qrn_tensor_slice(
            mem_tensor(m, QRN_F32, 3, (const int64_t[]){n_tokens, a->ids.shape[1], n + more}), 2, 1,
            n);
        for (int64_t s = 0; s < n_slots; s++)
            memset((float *)b.out.data + s * (n + more), 0xff, (size_t)n * sizeof(float));
        run(dev, &b, what);
        for (int64_t s = 0; s < n_slots; s++)
            assert_memory_equal((const float *)b.out.data + s * (n + more),
                                (const float *)a->out.data + s * n, (size_t)n * sizeof(float));
    }
}

static void check(struct qrn_device *dev, enum qrn_dtype dtype, const struct counts *counts,
                  int64_t top_k, int64_t n_x, int64_t n, int64_t k, int64_t group,
                  enum qrn_dtype scales_type)
{
    struct mem m = {0};
    struct rng r = {(uint64_t)(counts->of[0] + n + k)};
    int64_t n_slots = 0;
    for (int e = 0; e <= EXPERTS; e++) n_slots += counts->of[e];
    const struct weights w =
        random_weights(&m, &r, weight_type_of(dtype), 3, (const int64_t[]){n_experts(counts), n, k},
                       group, scales_type);
    struct qrn_matmul_id_args a = {
        .w = pack_weights(&m, dev, &w, QRN_ACT_Q8),
        .x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){n_slots / top_k, n_x, k}),
        .ids = mem_tensor(&m, QRN_I32, 2, (const int64_t[]){n_slots / top_k, top_k}),
        .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){n_slots / top_k, top_k, n}),
        .activation = QRN_ACT_BF16,
        .any_order = true,
        .layout = QRN_LAYOUT_PACKED};
    char what[96];
    (void)snprintf(what, sizeof what, "%s, %d slots, N %d, K %d", qrn_dtype_info(dtype)->name,
                   (int)n_slots, (int)n, (int)k);
    fill_ids(&r, counts, &a.ids);
    memset(a.out.data, 0xff, a.out.n_bytes);
    run(dev, &a, what);
    check_distances(&w, &a, counts, what);
    check_strides(&m, dev, &a, what);
    mem_free_all(&m);
}

/* Groups of scales of all kinds, k that ends in a panel's midst, rows of weights that end in a group's. */
static void test_types(void **state)
{
    (void)state;
    static const struct counts few = {{5, 0, 9, 1, 0, 12, 5}};
    struct qrn_device *dev = device();
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const enum qrn_dtype type = weight_types[t].dtype;
        if (!qrn_has_integer_form(type)) continue;
        const int64_t k = qrn_dtype_info(type)->block_elements <= 32 ? 288 : 512;
        check(dev, type, &few, 2, 1 + (int64_t)(t % 2), 60 + 6 * (int64_t)t, k, 32, QRN_F32);
        if (qrn_is_mlx(type)) check(dev, type, &few, 4, 1, 70, 384, 128, QRN_BF16);
    }
    check(dev, QRN_MLX_Q4, &few, 4, 4, 77, 448, 64, QRN_F16);
    qrn_device_close(dev);
}

/* Tiles of all widths, one after the other in a block; one expert has all rows. */
static void test_widths(void **state)
{
    (void)state;
    static const struct counts ragged = {{1, 127, 0, 300, 129, 128, 3}},
                               narrow = {{33, 70, 90, 0, 100, 65, 2}},
                               one = {{0, 0, 520, 0, 0, 0, 0}}, none = {{0, 0, 0, 0, 0, 0, 8}};
    struct qrn_device *dev = device();
    check(dev, QRN_Q4_0, &ragged, 8, 1, 300, 64, 32, QRN_F32);
    check(dev, QRN_Q8_0, &narrow, 4, 4, 131, 160, 32, QRN_F32);
    check(dev, QRN_Q4_K, &one, 8, 1, 37, 256, 32, QRN_F32);
    check(dev, QRN_Q4_0, &one, 2, 2, 9, 32, 32, QRN_F32);
    check(dev, QRN_Q4_0, &none, 8, 1, 40, 64, 32, QRN_F32);
    qrn_device_close(dev);
}

/* More experts than the block that cuts their slots has threads. */
static void test_many_experts(void **state)
{
    (void)state;
    static const struct counts far = {{5, 7, 140, 130, 1, 70, 7}, 86},
                               farther = {{1, 2, 100, 0, 64, 65, 0}, 200};
    struct qrn_device *dev = device();
    check(dev, QRN_Q4_0, &far, 8, 1, 40, 64, 32, QRN_F32);
    check(dev, QRN_Q8_0, &farther, 8, 8, 33, 32, 32, QRN_F32);
    qrn_device_close(dev);
}

/* Rings go round. */
static void test_long_rows(void **state)
{
    (void)state;
    static const struct counts few = {{5, 20, 0, 0, 0, 7, 0}};
    struct qrn_device *dev = device();
    check(dev, QRN_Q4_0, &few, 8, 1, 530, 1024, 32, QRN_F32);
    check(dev, QRN_Q8_0, &few, 8, 8, 258, 992, 32, QRN_F32);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_many_experts),
        cmocka_unit_test(test_long_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
