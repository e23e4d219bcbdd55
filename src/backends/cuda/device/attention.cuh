/* SPDX-License-Identifier: MIT
 * What the attention kernels share: which rows a block of threads has, which keys those attend to,
 * how a product becomes a score, how runs are merged.
 *
 * A tile is some rows of one batch or sequence and one kv head; row r of it is token r / group and
 * head r % group of the group, so that keys and values serve all heads of a group at once. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_CUH

#include <quern/dtype.h>
#include "backends/cuda/attention_cuda.h"
#include "backends/cuda/device/paged.cuh"
#include "backends/cuda/device/rows.cuh"

#define QRN_MINUS_INFINITY __uint_as_float(0xff800000u)
#define QRN_LOG2_E         1.44269504f

/* Of a tile: the same in all threads. */
struct qrn_attention_tile {
    int64_t batch;              /* or sequence */
    int64_t first_row;          /* of the batch's or sequence's tokens x group */
    int64_t first_token;        /* in q, of the sequence */
    int64_t position;           /* of that token */
    int64_t first, last;        /* tokens of its rows, in the batch or sequence */
    int64_t n_kv, begin, end;   /* keys that any row attends to, by position */
    int64_t all_begin, all_end; /* keys that all rows attend to, by position */
    int n_rows;                 /* 0: nothing to do */
    bool bad;                   /* the sequence's numbers cannot be: NaN */
};

/* Keys begin .. end - 1 that the token at position at attends to. */
static __device__ __forceinline__ void qrn_attention_range(const qrn_attention_params &p,
                                                           int64_t at, int64_t n_kv, int64_t *begin,
                                                           int64_t *end)
{
    *end = p.causal && at + 1 < n_kv ? at + 1 : n_kv;
    *begin = p.window && at + 1 > p.window ? at + 1 - p.window : 0;
    if (*end < 0) *end = 0;
    if (*begin > *end) *begin = *end;
}

static __device__ __forceinline__ void qrn_attention_tile_range(const qrn_attention_params &p,
                                                                qrn_attention_tile *t)
{
    t->first = t->first_row / p.group;
    t->last = (t->first_row + t->n_rows - 1) / p.group;
    qrn_attention_range(p, t->position + t->first, t->n_kv, &t->begin, &t->all_end);
    qrn_attention_range(p, t->position + t->last, t->n_kv, &t->all_begin, &t->end);
}

/* Whether a sequence is one of those that this launch is for. */
static __device__ __forceinline__ bool qrn_attention_wants(const qrn_attention_params &p,
                                                           const qrn_paged_seq &s)
{
    if (p.only == QRN_ATTENTION_ALL) return true;
    const int64_t n_rows = s.n_new * p.group;
    const int64_t n_tiles = (n_rows + QRN_ROUNDED_TILE - 1) / QRN_ROUNDED_TILE * p.n_kv_heads;
    const bool rounded = n_rows >= QRN_ROUNDED_ROWS &&
                         (n_tiles >= QRN_ROUNDED_TILES || s.position + s.n_new <= QRN_ROUNDED_KEYS);
    return rounded == (p.only == QRN_ATTENTION_ROUNDED);
}

/* Tiles of sequence s are numbered from begin[s] * group / rows + s on: more than it has. */
static __device__ __forceinline__ bool qrn_attention_begins(const qrn_attention_params &p,
                                                            int64_t s, int64_t nth, int rows)
{
    return p.paged.seq_begin[s] * p.group / rows + s <= nth;
}

/* The sequence of tile nth; by one thread. */
static __device__ __forceinline__ int64_t qrn_attention_seq(const qrn_attention_params &p,
                                                            int64_t nth, int rows)
{
    int64_t low = 0, high = p.paged.n_seqs;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (qrn_attention_begins(p, middle, nth, rows))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The same by all lanes of a warp, whose loads are under way at once. */
static __device__ __forceinline__ int64_t qrn_attention_seq_by_warp(const qrn_attention_params &p,
                                                                    int64_t nth, int rows)
{
    int64_t low = 0, high = p.paged.n_seqs;
    while (high - low > 1) {
        const int64_t step = (high - low + 31) / 32, mine = low + qrn_lane() * step;
        const bool begins =
            qrn_lane() == 0 || (mine < high && qrn_attention_begins(p, mine, nth, rows));
        /* Those that begin are the first ones, unless the numbers cannot be. */
        low += (__popc(__ballot_sync(QRN_ALL_OF_WARP, begins)) - 1) * step;
        high = min(low + step, high);
    }
    return low;
}

/* Tile nth, of sequence low. */
static __device__ qrn_attention_tile qrn_attention_tile_of_seq(const qrn_attention_params &p,
                                                               int64_t low, int64_t nth, int rows)
{
    qrn_attention_tile t = {};
    qrn_paged_seq s;
    const bool good = qrn_paged_seq_at(p.paged, low, &s);
    const int64_t first = (nth - low - s.first * p.group / rows) * rows;
    int64_t n_new = s.n_new;
    if (s.first < 0 || s.first > p.n_tokens || !qrn_attention_wants(p, s)) return t;
    if (s.first + n_new > p.n_tokens) n_new = p.n_tokens - s.first;
    const int64_t left = n_new * p.group - first;
    if (first < 0 || left <= 0) return t;
    t.batch = low;
    t.first_row = first;
    t.first_token = s.first;
    t.position = s.position;
    t.n_kv = p.paged.max_pages * QRN_PAGE;
    t.n_rows = (int)(left < rows ? left : rows);
    t.bad = !good;
    if (good) qrn_attention_tile_range(p, &t);
    return t;
}

static __device__ qrn_attention_tile qrn_attention_paged_tile(const qrn_attention_params &p,
                                                              int64_t nth, int rows)
{
    return qrn_attention_tile_of_seq(p, qrn_attention_seq(p, nth, rows), nth, rows);
}

/* The tile of this block, of up to `rows` rows; the last first, which see the most keys. */
static __device__ __forceinline__ qrn_attention_tile
qrn_attention_tile_of(const qrn_attention_params &p, int rows)
{
    const int64_t nth = gridDim.x - 1 - (int64_t)blockIdx.x;
    if (p.paged.pages) return qrn_attention_paged_tile(p, nth, rows);
    qrn_attention_tile t = {};
    t.batch = nth / p.n_tiles;
    t.first_row = (nth - t.batch * p.n_tiles) * rows;
    const int64_t left = p.n_tokens * p.group - t.first_row;
    t.position = p.q_offset;
    t.n_kv = p.n_kv;
    t.n_rows = (int)(left < rows ? left : rows);
    qrn_attention_tile_range(p, &t);
    return t;
}

/* One row of a tile. */
struct qrn_attention_row {
    int64_t token, head, begin, end; /* the token in its batch or sequence */
};

static __device__ __forceinline__ qrn_attention_row qrn_attention_row_of(
    const qrn_attention_params &p, const qrn_attention_tile &t, int64_t kv_head, int r)
{
    qrn_attention_row row;
    row.token = (t.first_row + r) / p.group;
    row.head = kv_head * p.group + (t.first_row + r - row.token * p.group);
    qrn_attention_range(p, t.position + row.token, t.n_kv, &row.begin, &row.end);
    return row;
}

/* Numbers of blocks and runs are below 2^31: keys are bytes of one device's memory. */
static __device__ __forceinline__ int qrn_attention_first_run(const qrn_attention_row &r)
{
    const int block = (int)(r.begin / QRN_ATTENTION_BLOCK);
    return QRN_ATTENTION_RUN_OF(block);
}

/* Whether a row attends to keys of a run that is not before its first. */
static __device__ __forceinline__ bool qrn_attention_reaches(const qrn_attention_row &r,
                                                             int run)
{
    return (int64_t)QRN_ATTENTION_FIRST_OF(run) * QRN_ATTENTION_BLOCK < r.end;
}

/* The first block of keys at `block` or after it where a run begins; of begin .. end. */
static __device__ __forceinline__ int64_t qrn_attention_cut(int64_t begin, int64_t block,
                                                            int64_t end)
{
    if (block <= begin) return begin;
    const int64_t run = QRN_ATTENTION_RUN_OF(block - 1) + 1;
    return min(QRN_ATTENTION_FIRST_OF(run), end);
}

/* Blocks first .. end - 1 of keys are those of block z of the gridDim.z that share a tile: whole runs,
 * as many keys for each as that allows. */
static __device__ __forceinline__ void qrn_attention_share(const qrn_attention_tile &t,
                                                           int64_t *first, int64_t *end)
{
    const int64_t low = t.begin / QRN_ATTENTION_BLOCK,
                  high = t.end > t.begin ? (t.end - 1) / QRN_ATTENTION_BLOCK + 1 : low;
    const int64_t n = high - low, z = blockIdx.z, n_z = gridDim.z;
    *first = qrn_attention_cut(low, low + n * z / n_z, high);
    *end = qrn_attention_cut(low, low + n * (z + 1) / n_z, high);
}

static __device__ __forceinline__ const float *qrn_attention_q(const qrn_attention_params &p,
                                                               const qrn_attention_tile &t,
                                                               const qrn_attention_row &r)
{
    if (p.paged.pages) return p.q + (t.first_token + r.token) * p.q_token + r.head * p.q_head;
    return p.q + t.batch * p.q_batch + r.token * p.q_token + r.head * p.q_head;
}

static __device__ __forceinline__ float *qrn_attention_out(const qrn_attention_params &p,
                                                           const qrn_attention_tile &t,
                                                           const qrn_attention_row &r)
{
    if (p.paged.pages) return p.out + (t.first_token + r.token) * p.out_token + r.head * p.out_head;
    return p.out + t.batch * p.out_batch + r.token * p.out_token + r.head * p.out_head;
}

/* Where a row's partial of a run is: o, m, l. */
static __device__ __forceinline__ float *qrn_attention_partial(const qrn_attention_params &p,
                                                               const qrn_attention_tile &t,
                                                               const qrn_attention_row &r,
                                                               int64_t run)
{
    const int64_t token = (p.paged.pages ? t.first_token : t.batch * p.n_tokens) + r.token;
    const int64_t nth = run - qrn_attention_first_run(r);
    return p.partial +
           ((token * p.n_heads + r.head) * p.n_runs + nth) * QRN_ATTENTION_PARTIAL(p.d_v);
}

/* What becomes of the tile's keys of a block: 0 nothing is attended to, 1 look at each, 2 all
 * are. */
static __device__ __forceinline__ int
qrn_attention_class(const qrn_attention_params &p, const qrn_attention_tile &t, int64_t block)
{
    const int64_t key = block * QRN_ATTENTION_BLOCK;
    if (key >= t.end || key + QRN_ATTENTION_BLOCK <= t.begin) return 0;
    const bool whole = t.all_begin <= key && t.all_end >= key + QRN_ATTENTION_BLOCK;
    if (!p.classes) return whole && !p.mask ? 2 : 1;
    bool any = false, all = true;
    for (int64_t i = t.first / QRN_ATTENTION_TILE_Q; i <= t.last / QRN_ATTENTION_TILE_Q; i++) {
        const int c = p.classes[i * p.classes_stride + block];
        any = any || c != 0;
        all = all && c == 2;
    }
    return !any ? 0 : whole && all ? 2 : 1;
}

/* What is added to the score of key j, -infinity where it is masked; of a block of class 1. */
static __device__ __forceinline__ float qrn_attention_mask_at(const qrn_attention_params &p,
                                                              const qrn_attention_tile &t,
                                                              const qrn_attention_row &r, int64_t j)
{
    if (j < r.begin || j >= r.end) return QRN_MINUS_INFINITY;
    if (p.classes) {
        const int c =
            p.classes[r.token / QRN_ATTENTION_TILE_Q * p.classes_stride + j / QRN_ATTENTION_BLOCK];
        if (c != 1) return c == 2 ? 0.0f : QRN_MINUS_INFINITY;
    }
    if (!p.mask) return 0.0f;
    const int64_t at = t.batch * p.mask_batch + r.head * p.mask_head + r.token * p.mask_token + j;
    const uint16_t *halves = (const uint16_t *)p.mask;
    const float x = p.mask_type == QRN_F32    ? ((const float *)p.mask)[at]
                    : p.mask_type == QRN_BF16 ? qrn_float_of_bf16(halves[at])
                                              : qrn_float_of_f16(halves[at]);
    return x <= -1e30f ? QRN_MINUS_INFINITY : x;
}

/* The score in base 2 of a product. */
static __device__ __forceinline__ float qrn_attention_score(const qrn_attention_params &p, float x)
{
    x *= p.scale;
    if (p.softcap != 0.0f) x = p.softcap * tanhf(x / p.softcap);
    return x;
}

/* 2^(x - m), where m is the greatest of some x; -infinity gives 0 even if all are. */
static __device__ __forceinline__ float qrn_exp2_below(float x, float m)
{
    return x == QRN_MINUS_INFINITY ? 0.0f : qrn_exp2(x - (m == QRN_MINUS_INFINITY ? 0.0f : m));
}

/* What l and o of a state are multiplied by (a), and those of a run (b), to be added. */
struct qrn_attention_merge {
    float m, a, b;
    bool empty; /* nothing of the run is attended to: the state stays as it is */
};

static __device__ __forceinline__ qrn_attention_merge qrn_attention_merging(float state_m, float m,
                                                                            float l)
{
    const float most = fmaxf(state_m, m);
    return qrn_attention_merge{most, qrn_exp2_below(state_m, most),
                               m == QRN_MINUS_INFINITY ? 1.0f : qrn_exp2(m - most),
                               m == QRN_MINUS_INFINITY && l == 0.0f};
}

#endif
