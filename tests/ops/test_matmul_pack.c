/* SPDX-License-Identifier: MIT
 * matmul_pack: every kernel writes, by memcmp, what the portable one writes, and not a byte more;
 * whatever the type, the rows that are left over, and where the rows lie. */
#include <stdio.h>

#include "support/weights.h"

/* Kernel i of dev into guarded memory; NULL past the last. */
static const uint8_t *pack(struct mem *m, struct qrn_device *dev, size_t i,
                           struct qrn_matmul_pack_args *a, const char **name)
{
    struct qrn_error err;
    size_t n_bytes;
    const struct qrn_kernel *k = qrn_kernel_at(dev, QRN_OP_matmul_pack, i);
    if (!k) return NULL;
    *name = k->name;
    a->packed = (struct qrn_tensor){0};
    if (qrn_matmul_packed_bytes(dev, a, &n_bytes, &err) != QRN_OK) fail_msg("%s", err.text);
    if (n_bytes == 0) return NULL;
    a->packed = qrn_tensor_1d(QRN_U8, mem_guarded(m, n_bytes), (int64_t)n_bytes);
    memset(a->packed.data, 0xcd, n_bytes);
    if (!k->supports(a)) fail_msg("%s does not take its own size", k->name);
    if (qrn_kernel_run(dev, k, a, &err) != QRN_OK) fail_msg("%s", err.text);
    return a->packed.data;
}

/* All kernels of all devices against the last one of the first, which is the portable one. */
static void compare(struct mem *m, struct devices *d, struct weights w, const char *what)
{
    struct qrn_matmul_pack_args a = {.w = w.w, .scales = w.scales, .biases = w.biases};
    const uint8_t *want = NULL, *got;
    const char *name = "";
    for (size_t i = 0; (got = pack(m, d->dev[0], i, &a, &name)) != NULL; i++) want = got;
    if (!want) return;
    if (!strstr(name, "interleaved")) fail_msg("the last kernel is %s", name);
    for (size_t dev = 0; dev < d->n; dev++)
        for (size_t i = 0; (got = pack(m, d->dev[dev], i, &a, &name)) != NULL; i++)
            if (memcmp(got, want, a.packed.n_bytes) != 0) {
                size_t at = 0;
                while (got[at] == want[at]) at++;
                fail_msg("%s, %s: byte %zu of %zu is %d, wants %d", name, what, at,
                         a.packed.n_bytes, got[at], want[at]);
            }
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        int64_t e, n, k, group;
        enum qrn_dtype scales_type;
    } cases[] = {{0, 16, 256, 32, QRN_F32},
                 {0, 49, 768, 64, QRN_BF16},
                 {3, 33, 512, 128, QRN_F16},
                 {0, 5, 256, 32, QRN_F32},
                 {2, 32, 1280, 64, QRN_F32}};
    struct devices d;
    devices_open(&d, 3);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            struct mem m = {0};
            struct rng r = {31 * t + c};
            const int64_t shape[] = {cases[c].e, cases[c].n, cases[c].k};
            const int skip = shape[0] ? 0 : 1;
            char what[64];
            (void)snprintf(what, sizeof what, "%s, case %zu",
                           qrn_dtype_info(weight_types[t].dtype)->name, c);
            compare(&m, &d,
                    random_weights(&m, &r, t, 3 - skip, shape + skip, cases[c].group,
                                   cases[c].scales_type),
                    what);
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* Plain types take any K. */
static void test_odd_columns(void **state)
{
    (void)state;
    static const int64_t columns[] = {1, 2, 31, 33, 63, 100};
    struct devices d;
    devices_open(&d, 2);
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
            struct mem m = {0};
            struct rng r = {7 * t + c};
            compare(&m, &d,
                    random_weights(&m, &r, t, 2, (const int64_t[]){40, columns[c]}, 32, QRN_F32),
                    qrn_dtype_info(weight_types[t].dtype)->name);
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* Pieces of QRN_PACK_ROWS rows, one after the other, are the whole. */
static void test_pieces(void **state)
{
    (void)state;
    enum { N = 3 * QRN_PACK_ROWS + 21 };
    struct devices d;
    devices_open(&d, 2);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        struct mem m = {0};
        struct rng r = {3 * t};
        const char *name;
        const struct weights w =
            random_weights(&m, &r, t, 2, (const int64_t[]){N, 512}, 64, QRN_BF16);
        struct qrn_matmul_pack_args a = {.w = w.w, .scales = w.scales, .biases = w.biases};
        const uint8_t *want = pack(&m, d.dev[0], 0, &a, &name);
        const size_t n_bytes = a.packed.n_bytes;
        size_t done = 0;
        for (int64_t first = 0, n; want && first < N; first += n) {
            n = N - first < QRN_PACK_ROWS ? N - first : QRN_PACK_ROWS;
            a.w = qrn_tensor_slice(w.w, 0, first, n);
            if (w.scales.n_dims) {
                a.scales = qrn_tensor_slice(w.scales, 0, first, n);
                a.biases = qrn_tensor_slice(w.biases, 0, first, n);
            }
            const uint8_t *got = pack(&m, d.dev[0], 0, &a, &name);
            if (done + a.packed.n_bytes > n_bytes ||
                memcmp(got, want + done, a.packed.n_bytes) != 0)
                fail_msg("%s, %s: rows from %d on", name, qrn_dtype_info(w.w.dtype)->name,
                         (int)first);
            done += a.packed.n_bytes;
        }
        if (want) assert_int_equal(done, n_bytes);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* A part of wider rows. */
static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    devices_open(&d, 2);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        struct mem m = {0};
        struct rng r = {5 * t};
        struct weights w = random_weights(&m, &r, t, 2, (const int64_t[]){35, 1024}, 32, QRN_F32);
        w.w = qrn_tensor_slice(w.w, 1, 256, 512);
        if (w.scales.n_dims) {
            w.scales = qrn_tensor_slice(w.scales, 1, 8, 16);
            w.biases = qrn_tensor_slice(w.biases, 1, 8, 16);
        }
        compare(&m, &d, w, qrn_dtype_info(weight_types[t].dtype)->name);
        mem_free_all(&m);
    }
    devices_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_odd_columns),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_strided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
