/* SPDX-License-Identifier: MIT
 * What comes before products of many rows: x rounded in scratch, slots sorted by expert. */
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_prepare_cuda.h"

QRN_CUDA_IMAGE(matmul_prepare);

static size_t whole(size_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

static int64_t blocks_of(const struct qrn_matmul_params *p)
{
    return (p->w.k + QRN_PANEL_K - 1) / QRN_PANEL_K;
}

size_t qrn_cuda_acts_bytes(const struct qrn_matmul_params *p)
{
    const size_t n = (size_t)(p->n_x * blocks_of(p));
    return whole(n * QRN_PANEL_K) + whole(n * 8 * sizeof(int16_t)) + whole(n * sizeof(float));
}

void qrn_cuda_round_x(struct qrn_cuda_stream *s, CUdeviceptr scratch, struct qrn_matmul_params *p)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_prepare, "qrn_matmul_round_x",
                                               0};
    const size_t n = (size_t)(p->n_x * blocks_of(p));
    p->acts_at.n_blocks = blocks_of(p);
    p->acts_at.q = scratch;
    p->acts_at.sums = p->acts_at.q + whole(n * QRN_PANEL_K);
    p->acts_at.d = p->acts_at.sums + whole(n * 8 * sizeof(int16_t));
    qrn_cuda_launch(s, &f, qrn_grid_of_warps((int64_t)n), p);
}

void qrn_cuda_cut_rows(struct qrn_matmul_params *p, int tile_rows, bool grouped)
{
    p->tile_rows = tile_rows;
    p->grouped = p->ids && grouped;
    if (!p->ids) {
        p->n_tiles = p->n_matrices * ((p->most_rows + tile_rows - 1) / tile_rows);
    } else if (!grouped) {
        p->n_tiles = p->n_slots;
    } else {
        const int64_t n_used = p->n_slots < p->n_matrices + 1 ? p->n_slots : p->n_matrices + 1;
        p->n_tiles = p->n_slots / tile_rows + n_used;
    }
}

static size_t first_bytes(const struct qrn_matmul_params *p)
{
    return whole((size_t)(p->n_matrices + 2) * sizeof(int32_t));
}

static size_t list_bytes(const struct qrn_matmul_params *p)
{
    return whole((size_t)p->n_slots * sizeof(int32_t));
}

size_t qrn_cuda_slots_bytes(const struct qrn_matmul_params *p)
{
    if (!p->grouped) return 0;
    return first_bytes(p) + list_bytes(p) +
           whole((size_t)p->n_tiles * (p->even_tiles ? 4 : 2) * sizeof(int32_t));
}

void qrn_cuda_sort_slots(struct qrn_cuda_stream *s, CUdeviceptr scratch,
                         struct qrn_matmul_params *p)
{
    static const struct qrn_cuda_function list = {qrn_cuda_image_matmul_prepare,
                                                  "qrn_matmul_list_slots", 0},
                                          cut = {qrn_cuda_image_matmul_prepare,
                                                 "qrn_matmul_cut_slots", 0},
                                          cut_evenly = {qrn_cuda_image_matmul_prepare,
                                                        "qrn_matmul_cut_slots_evenly", 0};
    if (!p->grouped) return;
    p->first = scratch;
    p->slots = p->first + first_bytes(p);
    p->tiles = p->slots + list_bytes(p);
    const struct qrn_cuda_grid one = {.n_blocks = 1, .n_threads = QRN_SORT_THREADS},
                               all = {.n_blocks = p->n_matrices + 1, .n_threads = QRN_SORT_THREADS};
    qrn_cuda_launch(s, &list, all, p);
    qrn_cuda_launch(s, p->even_tiles ? &cut_evenly : &cut, one, p);
}
