/* SPDX-License-Identifier: MIT
 * Memory of made-up calls: on the device, filled from the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "bench_cases.h"
#include "core/device_impl.h"
#include "formats/blocks.h"

/* Where the device's memory is not the host's, so much is made on the host and copied again and
 * again. */
#define PATTERN_BYTES ((size_t)16 << 20)

struct bench_block {
    struct bench_block *next;
    size_t n_bytes;
    void *data; /* of the device */
    struct qrn_buffer *buffer;
    int32_t *numbers; /* the host's copy of ints; or NULL */
};

void bench_memory_free(struct bench_memory *m)
{
    for (struct bench_block *b = m->blocks, *next; b; b = next) {
        next = b->next;
        qrn_buffer_release(b->buffer);
        free(b->numbers);
        free(b);
    }
    m->blocks = NULL;
}

void *bench_bytes(struct bench_memory *m, size_t n_bytes)
{
    if (m->status != QRN_OK) return NULL;
    struct bench_block *b = calloc(1, sizeof *b);
    if (!b) {
        m->status = qrn_fail_memory(&m->err, sizeof *b, "a case of the bench");
        return NULL;
    }
    m->status = qrn_buffer_create(m->dev, n_bytes ? n_bytes : 1, &b->buffer, &m->err);
    if (m->status != QRN_OK) {
        free(b);
        return NULL;
    }
    b->next = m->blocks;
    b->n_bytes = n_bytes;
    b->data = qrn_buffer_data(b->buffer);
    m->blocks = b;
    m->n_bytes += n_bytes;
    return b->data;
}

/* --- from the host to the device --- */

static void write_bytes(struct bench_memory *m, void *to, const void *from, size_t n_bytes)
{
    if (m->status != QRN_OK || !to) return;
    m->status = qrn_device_upload(m->dev, to, from, n_bytes, &m->err);
    if (m->status == QRN_OK) m->status = qrn_device_wait(m->dev, &m->err);
}

/* n_bytes of the device from a pattern that is repeated. */
static void write_pattern(struct bench_memory *m, char *to, size_t n_bytes, const void *pattern,
                          size_t n_pattern)
{
    for (size_t at = 0; to && at < n_bytes && m->status == QRN_OK; at += n_pattern)
        write_bytes(m, to + at, pattern, n_bytes - at < n_pattern ? n_bytes - at : n_pattern);
}

/* Memory of the host for the first of n_bytes: the device's own, or a pattern of whole units. */
static void *pattern_begin(struct bench_memory *m, void *to, size_t n_bytes, size_t unit,
                           size_t *n_pattern)
{
    *n_pattern = n_bytes;
    if (!to || qrn_device_host_reads(m->dev)) return to;
    const size_t n = PATTERN_BYTES < unit ? unit : PATTERN_BYTES / unit * unit;
    if (n < n_bytes) *n_pattern = n;
    void *pattern = malloc(*n_pattern ? *n_pattern : 1);
    if (!pattern) m->status = qrn_fail_memory(&m->err, *n_pattern, "a case of the bench");
    return pattern;
}

static void pattern_end(struct bench_memory *m, void *to, size_t n_bytes, void *pattern,
                        size_t n_pattern)
{
    if (pattern == to) return;
    write_pattern(m, to, n_bytes, pattern, n_pattern);
    free(pattern);
}

/* --- values --- */

static int n_dims_of(int64_t n1, int64_t n2)
{
    return n2 > 0 ? 3 : n1 > 0 ? 2 : 1;
}

static struct qrn_tensor view(enum qrn_dtype dtype, void *data, int64_t n0, int64_t n1, int64_t n2)
{
    switch (n_dims_of(n1, n2)) {
    case 1:
        return qrn_tensor_1d(dtype, data, n0);
    case 2:
        return qrn_tensor_2d(dtype, data, n0, n1);
    default:
        return qrn_tensor_3d(dtype, data, n0, n1, n2);
    }
}

static size_t count(int64_t n0, int64_t n1, int64_t n2)
{
    return (size_t)n0 * (size_t)(n1 > 0 ? n1 : 1) * (size_t)(n2 > 0 ? n2 : 1);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t element_bytes(enum qrn_dtype dtype)
{
    return (size_t)qrn_dtype_info(dtype)->block_bytes;
}

static void fill_values(void *out, enum qrn_dtype dtype, size_t n, float low, float high)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n; i++) {
        const float x = low + (high - low) * ((float)(next_random(&state) >> 40) * 0x1p-24f);
        if (dtype == QRN_F32) ((float *)out)[i] = x;
        if (dtype == QRN_BF16) ((uint16_t *)out)[i] = qrn_float_to_bf16(x);
        if (dtype == QRN_F16) ((uint16_t *)out)[i] = qrn_float_to_f16(x);
    }
}

static void fill_device(struct bench_memory *m, void *to, enum qrn_dtype dtype, size_t n, float low,
                        float high)
{
    size_t n_pattern;
    const size_t size = element_bytes(dtype);
    void *pattern = pattern_begin(m, to, n * size, size, &n_pattern);
    if (!pattern) return;
    fill_values(pattern, dtype, n_pattern / size, low, high);
    pattern_end(m, to, n * size, pattern, n_pattern);
}

struct qrn_tensor bench_uniform(struct bench_memory *m, enum qrn_dtype dtype, float low, float high,
                                int64_t n0, int64_t n1, int64_t n2)
{
    void *data = bench_bytes(m, element_bytes(dtype) * count(n0, n1, n2));
    if (data) fill_device(m, data, dtype, count(n0, n1, n2), low, high);
    return view(dtype, data, n0, n1, n2);
}

struct qrn_tensor bench_floats(struct bench_memory *m, float scale, int64_t n0, int64_t n1,
                               int64_t n2)
{
    if (scale != 0.0f) return bench_uniform(m, QRN_F32, -scale, scale, n0, n1, n2);
    return view(QRN_F32, bench_bytes(m, sizeof(float) * count(n0, n1, n2)), n0, n1, n2);
}

struct qrn_tensor bench_output(struct bench_memory *m, enum qrn_dtype dtype, int64_t n0, int64_t n1,
                               int64_t n2)
{
    const size_t n_bytes = element_bytes(dtype) * count(n0, n1, n2);
    void *data = bench_bytes(m, n_bytes);
    size_t n_pattern;
    void *pattern = data ? pattern_begin(m, data, n_bytes, 4, &n_pattern) : NULL;
    if (pattern) {
        memset(pattern, 0xff, n_pattern);
        pattern_end(m, data, n_bytes, pattern, n_pattern);
    }
    return view(dtype, data, n0, n1, n2);
}

/* --- numbers, which the host keeps a copy of --- */

/* Number i: first + (i / each + i % each * apart) * factor % modulus */
struct sequence_of_ints {
    int64_t first, each, apart, factor, modulus;
};

static struct qrn_tensor ints(struct bench_memory *m, int64_t n0, int64_t n1,
                              struct sequence_of_ints x)
{
    const size_t n = count(n0, n1, 0);
    int32_t *data = bench_bytes(m, sizeof *data * n), *numbers = malloc(sizeof *data * (n + 1));
    if (data && numbers) {
        for (size_t i = 0; i < n; i++) {
            const int64_t at = (int64_t)i / x.each + (int64_t)i % x.each * x.apart;
            numbers[i] = (int32_t)(x.first + at * x.factor % x.modulus);
        }
        write_bytes(m, data, numbers, sizeof *data * n);
        m->blocks->numbers = numbers;
    } else {
        free(numbers);
    }
    return view(QRN_I32, data, n0, n1, 0);
}

struct qrn_tensor bench_ints(struct bench_memory *m, int64_t n0, int64_t n1)
{
    return ints(m, n0, n1, (struct sequence_of_ints){.each = 1, .modulus = 1});
}

struct qrn_tensor bench_same_ints(struct bench_memory *m, int64_t n, int64_t value)
{
    return ints(m, n, 0, (struct sequence_of_ints){.first = value, .each = 1, .modulus = 1});
}

struct qrn_tensor bench_ids(struct bench_memory *m, int64_t n0, int64_t n1, int64_t factor,
                            int64_t modulus)
{
    return ints(m, n0, n1,
                (struct sequence_of_ints){.each = 1, .factor = factor, .modulus = modulus});
}

struct qrn_tensor bench_seq_begin(struct bench_memory *m, int64_t n_seqs, int64_t n_tokens)
{
    return ints(m, n_seqs + 1, 0,
                (struct sequence_of_ints){.each = 1, .factor = n_tokens, .modulus = INT32_MAX});
}

struct qrn_tensor bench_places(struct bench_memory *m, int64_t n_places, int64_t n, int64_t first,
                               int64_t apart)
{
    return ints(m, n_places, n,
                (struct sequence_of_ints){
                    .first = first, .each = n, .apart = apart, .factor = 1, .modulus = n_places});
}

/* --- weights --- */

/* Rows of one period, repeated: encoding takes longer than what is measured. */
#define PERIOD_ROWS 8

static void fill_weights(uint8_t *out, enum qrn_dtype dtype, size_t n_rows, size_t n_row,
                         size_t row_bytes)
{
    const size_t n_period = n_rows < PERIOD_ROWS ? n_rows : PERIOD_ROWS;
    const qrn_encode_fn encode = qrn_encoder(dtype);
    float *row = encode ? malloc(sizeof(float) * n_row) : NULL;
    uint64_t state = 0x2545f4914f6cdd1du;
    if (row) fill_values(row, QRN_F32, n_row, -0.05f, 0.05f);
    for (size_t r = 0; r < n_period; r++) {
        if (row) {
            encode(row, out + r * row_bytes, n_row);
            row[next_random(&state) % n_row] *= -1.0f;
        } else {
            for (size_t i = 0; i < row_bytes; i++)
                out[r * row_bytes + i] = (uint8_t)(next_random(&state) >> 32);
        }
    }
    for (size_t r = n_period; r < n_rows; r++)
        memcpy(out + r * row_bytes, out + (r - n_period) * row_bytes, row_bytes);
    free(row);
}

struct qrn_tensor bench_weights(struct bench_memory *m, enum qrn_dtype dtype, int64_t n0,
                                int64_t n1, int64_t n2)
{
    const int64_t n_row = n2 > 0 ? n2 : n1 > 0 ? n1 : n0;
    const size_t n_rows = count(n0, n1, n2) / (size_t)n_row;
    const struct qrn_dtype_info *info = qrn_dtype_info(dtype);
    const size_t row_bytes = (size_t)(n_row / info->block_elements) * (size_t)info->block_bytes;
    uint8_t *data = bench_bytes(m, n_rows * row_bytes);
    size_t n_pattern;
    void *pattern = data ? pattern_begin(m, data, n_rows * row_bytes, row_bytes, &n_pattern) : NULL;
    if (!qrn_encoder(dtype)) m->wild = true;
    if (pattern && row_bytes) {
        fill_weights(pattern, dtype, n_pattern / row_bytes, (size_t)n_row, row_bytes);
        pattern_end(m, data, n_rows * row_bytes, pattern, n_pattern);
    }
    return view(dtype, data, n0, n1, n2);
}

/* --- addresses --- */

struct qrn_tensor bench_addresses(struct bench_memory *m, enum qrn_dtype fill, float scale,
                                  int64_t n0, int64_t n1, size_t n_bytes)
{
    const size_t n = count(n0, n1, 0), each = (n_bytes + 255) / 256 * 256;
    uint64_t *table = bench_bytes(m, sizeof *table * n), *addresses = malloc(sizeof *table * n);
    char *blocks = bench_bytes(m, n * each);
    if (blocks && addresses) {
        fill_device(m, blocks, fill, n * each / element_bytes(fill), -scale, scale);
        for (size_t i = 0; i < n; i++) addresses[i] = (uint64_t)(uintptr_t)(blocks + i * each);
        write_bytes(m, table, addresses, sizeof *table * n);
    }
    free(addresses);
    return view(QRN_ADDRESS, table, n0, n1, 0);
}

/* --- what a call costs, and whether it wrote what it should --- */

static struct qrn_tensor *operand(const struct qrn_operand *o, struct bench_case *c)
{
    return (struct qrn_tensor *)(void *)((char *)&c->args + o->offset);
}

void bench_cost(const struct bench_memory *m, enum qrn_op_id id, const struct bench_case *c,
                double *n_flops, double *n_bytes)
{
    const struct qrn_op *op = qrn_op(id);
    struct bench_case host = *c; /* with numbers that the host can read */
    for (size_t i = 0; i < op->n_operands; i++)
        for (const struct bench_block *b = m->blocks; b; b = b->next) {
            struct qrn_tensor *t = operand(&op->operands[i], &host);
            if (b->numbers && t->n_dims && t->data == b->data) t->data = b->numbers;
        }
    *n_flops = *n_bytes = 0.0;
    if (op->cost) op->cost(&host.args, n_flops, n_bytes);
}

static bool has_nan(const void *values, enum qrn_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = 0.0f;
        if (dtype == QRN_F32) x = ((const float *)values)[i];
        if (dtype == QRN_BF16) x = qrn_bf16_to_float(((const uint16_t *)values)[i]);
        if (dtype == QRN_F16) x = qrn_f16_to_float(((const uint16_t *)values)[i]);
        if (isnan(x)) return true;
    }
    return false;
}

static bool tensor_has_nan(const struct bench_memory *m, const struct qrn_tensor *t)
{
    enum { MOST = 4096 };
    uint32_t values[MOST];
    const size_t n_all = (size_t)qrn_tensor_n_elements(t), n = n_all < MOST ? n_all : MOST;
    for (const struct bench_block *b = m->blocks; b && n; b = b->next) {
        const size_t size = element_bytes(t->dtype);
        if (b->data != t->data) continue;
        if (qrn_buffer_read(b->buffer, 0, values, n * size, NULL) != QRN_OK ||
            has_nan(values, t->dtype, n))
            return true;
        return qrn_buffer_read(b->buffer, (n_all - n) * size, values, n * size, NULL) != QRN_OK ||
               has_nan(values, t->dtype, n);
    }
    return false;
}

bool bench_wrote_nan(const struct bench_memory *m, enum qrn_op_id id, const struct bench_case *c)
{
    const struct qrn_op *op = qrn_op(id);
    struct bench_case copy = *c;
    for (size_t i = 0; i < op->n_operands && !m->wild; i++) {
        const struct qrn_tensor *t = operand(&op->operands[i], &copy);
        const bool is_float = t->dtype == QRN_F32 || t->dtype == QRN_BF16 || t->dtype == QRN_F16;
        if ((op->operands[i].access & QRN_WRITES) && t->n_dims && is_float && tensor_has_nan(m, t))
            return true;
    }
    return false;
}
