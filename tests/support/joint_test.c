/* SPDX-License-Identifier: MIT
 * What tests of joints share. */
#include "support/joint_test.h"

#include <stdlib.h>
#include <string.h>

#include "support/emulated_faults.h"

enum { MEMORY_BYTES = 48 << 20 };

void joint_test_open(struct joint_test *j, uint64_t seed)
{
    joint_test_open_bytes(j, seed, MEMORY_BYTES);
}

void joint_test_open_bytes(struct joint_test *j, uint64_t seed, size_t n_bytes)
{
    struct qrn_error err;
    *j = (struct joint_test){.n_bytes = n_bytes, .r = {seed}};
    j->joined = op_test_open_gpu(&err);
    if (!j->joined) skip();
    j->apart = op_test_open_gpu_apart(&err);
    assert_int_equal(qrn_buffer_create(j->joined, j->n_bytes, &j->memory, &err), QRN_OK);
    j->first = malloc(j->n_bytes);
    assert_non_null(j->first);
}

void joint_test_close(struct joint_test *j)
{
    free(j->first);
    qrn_buffer_release(j->memory);
    qrn_device_close(j->apart);
    qrn_device_close(j->joined);
}

void *joint_test_at(struct joint_test *j, const void *address)
{
    return j->first + ((const char *)address - (const char *)qrn_buffer_data(j->memory));
}

/* Ends of rows are followed by poison: 64 bytes at least. */
static void *take(struct joint_test *j, size_t n)
{
    const size_t at = j->n_used;
    j->n_used = (at + n + 127) / 64 * 64;
    assert_true(j->n_used <= j->n_bytes);
    memset(j->first + at, 0xff, j->n_used - at);
    return (char *)qrn_buffer_data(j->memory) + at;
}

struct qrn_tensor joint_test_poison(struct joint_test *j, enum qrn_dtype dtype, int n_dims,
                                    const int64_t *shape)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(dtype);
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= shape[i];
    void *data = take(j, (size_t)(n / type->block_elements * type->block_bytes));
    if (n_dims == 1) return qrn_tensor_1d(dtype, data, n);
    struct qrn_tensor t = qrn_tensor_2d(dtype, data, shape[0], n / shape[0]);
    return n_dims == 2 ? t : qrn_tensor_split_last(t, shape[1], shape[2]);
}

struct qrn_tensor joint_test_filled(struct joint_test *j, double scale, int n_dims,
                                    const int64_t *shape)
{
    const struct qrn_tensor t = joint_test_poison(j, QRN_F32, n_dims, shape);
    float *x = joint_test_at(j, t.data);
    for (int64_t i = 0; i < qrn_tensor_n_elements(&t); i++)
        x[i] = (float)(rng_normal(&j->r) * scale);
    return t;
}

struct qrn_tensor joint_test_ints(struct joint_test *j, const int32_t *values, int64_t n)
{
    const struct qrn_tensor t = joint_test_poison(j, QRN_I32, 1, &n);
    memcpy(joint_test_at(j, t.data), values, (size_t)n * sizeof *values);
    return t;
}

struct qrn_tensor joint_test_addresses(struct joint_test *j, const uint64_t *values, int64_t n0,
                                       int64_t n1)
{
    const struct qrn_tensor t = joint_test_poison(j, QRN_ADDRESS, 2, (const int64_t[]){n0, n1});
    memcpy(joint_test_at(j, t.data), values, (size_t)(n0 * n1) * sizeof *values);
    return t;
}

/* Memory after each of two submits; returns the launches of the first. */
static long run_on(struct joint_test *j, struct qrn_device *dev,
                   void (*record)(struct joint_test *j, const void *context), const void *context,
                   char *after[2], const char *what)
{
    struct qrn_error err;
    long n = 0;
    assert_int_equal(qrn_buffer_write(j->memory, 0, j->first, j->n_used, &err), QRN_OK);
    assert_int_equal(qrn_encoder_create(dev, &j->enc, &err), QRN_OK);
    record(j, context);
    for (int i = 0; i < 2; i++) {
        const long before = emulated_launches();
        if (qrn_encoder_submit(j->enc, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        if (i == 0) n = emulated_launches() - before;
        assert_int_equal(qrn_buffer_read(j->memory, 0, after[i], j->n_used, &err), QRN_OK);
    }
    qrn_encoder_destroy(j->enc);
    return n;
}

void joint_test_run(struct joint_test *j, void (*record)(struct joint_test *j, const void *context),
                    const void *context, long n_saved, const char *what)
{
    char *got[2], *want[2];
    for (int i = 0; i < 2; i++) {
        got[i] = malloc(j->n_used);
        want[i] = malloc(j->n_used);
        assert_true(got[i] && want[i]);
    }
    const long n_joined = run_on(j, j->joined, record, context, got, what),
               n_apart = run_on(j, j->apart, record, context, want, what);
    if (n_apart && n_apart - n_joined != n_saved)
        fail_msg("%s: %ld launches of %ld, wants %ld less", what, n_joined, n_apart, n_saved);
    for (int i = 0; i < 2; i++)
        for (size_t b = 0; b < j->n_used; b++)
            if (got[i][b] != want[i][b])
                fail_msg("%s: other bits at byte %zu after submit %d", what, b, i);
    for (int i = 0; i < 2; i++) {
        free(got[i]);
        free(want[i]);
    }
    j->n_used = 0;
}
