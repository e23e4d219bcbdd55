/* SPDX-License-Identifier: MIT
 * Arguments of made-up calls. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "bench_cases.h"
#include "formats/blocks.h"

struct block {
    struct block *next;
    size_t n_bytes;
    char padding[QRN_ALIGNMENT - sizeof(struct block *) - sizeof(size_t)];
};

void bench_memory_free(struct bench_memory *m)
{
    for (struct block *b = m->blocks, *next; b; b = next) {
        next = b->next;
        qrn_free(NULL, b, b->n_bytes);
    }
    m->blocks = NULL;
}

void *bench_bytes(struct bench_memory *m, size_t n_bytes)
{
    size_t n_all;
    struct block *b = NULL;
    if (qrn_add_size(n_bytes, sizeof *b, &n_all)) b = qrn_alloc_zeroed(NULL, n_all);
    if (!b) {
        m->status = qrn_fail_memory(&m->err, n_bytes, "a case of the bench");
        return NULL;
    }
    *b = (struct block){.next = m->blocks, .n_bytes = n_all};
    m->blocks = b;
    m->n_bytes += n_all;
    return b + 1;
}

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

static void fill_floats(float *out, size_t n, float scale)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n; i++)
        out[i] = scale * ((float)(next_random(&state) >> 40) * 0x1p-23f - 1.0f);
}

struct qrn_tensor bench_floats(struct bench_memory *m, float scale, int64_t n0, int64_t n1,
                               int64_t n2)
{
    float *data = bench_bytes(m, sizeof(float) * count(n0, n1, n2));
    if (data && scale != 0.0f) fill_floats(data, count(n0, n1, n2), scale);
    return view(QRN_F32, data, n0, n1, n2);
}

struct qrn_tensor bench_ints(struct bench_memory *m, int64_t n0, int64_t n1)
{
    return view(QRN_I32, bench_bytes(m, sizeof(int32_t) * count(n0, n1, 0)), n0, n1, 0);
}

/* Rows of one period, repeated: encoding takes longer than what is measured. */
#define PERIOD_ROWS 8

static void fill_weights(uint8_t *out, enum qrn_dtype dtype, size_t n_rows, size_t n_row,
                         size_t row_bytes)
{
    const size_t n_period = n_rows < PERIOD_ROWS ? n_rows : PERIOD_ROWS;
    const qrn_encode_fn encode = qrn_encoder(dtype);
    float *row = encode ? malloc(sizeof(float) * n_row) : NULL;
    uint64_t state = 0x2545f4914f6cdd1du;
    if (row) fill_floats(row, n_row, 0.05f);
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
    if (data) fill_weights(data, dtype, n_rows, (size_t)n_row, row_bytes);
    return view(dtype, data, n0, n1, n2);
}

struct qrn_tensor bench_addresses(struct bench_memory *m, int64_t n0, int64_t n1, size_t n_bytes)
{
    uint64_t *table = bench_bytes(m, sizeof(uint64_t) * count(n0, n1, 0));
    for (size_t i = 0; table && i < count(n0, n1, 0); i++)
        table[i] = (uint64_t)(uintptr_t)bench_bytes(m, n_bytes);
    return view(QRN_ADDRESS, table, n0, n1, 0);
}
