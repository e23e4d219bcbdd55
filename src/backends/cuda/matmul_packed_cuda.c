/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of packed weights with rounded activations. */
#include "backends/cuda/matmul_prepare.h"

QRN_CUDA_IMAGE(matmul_vec_blocks);
QRN_CUDA_IMAGE(matmul_vec_k);
QRN_CUDA_IMAGE(matmul_tiles_blocks);
QRN_CUDA_IMAGE(matmul_tiles_k);

/* struct qrn_vec_shared, eight of struct qrn_tile_warp. */
enum {
    TILES_SHARED = 8 * (2 * 32 * 144 + 128),
    VEC1_SHARED = 64 * (128 + 16 + 4 + 128),
    VEC4_SHARED = 4 * 32 * (128 + 16 + 4 + 128)
};

#define VEC(file, NAME)                                                              \
    [QRN_##NAME] = {{qrn_cuda_image_matmul_vec_##file, "qrn_matmul_vec1_" #NAME, 0}, \
                    {qrn_cuda_image_matmul_vec_##file, "qrn_matmul_vec4_" #NAME, 0}}
static const struct qrn_cuda_function vec[QRN_DTYPE_COUNT][2] = {
    VEC(blocks, Q4_0), VEC(blocks, Q4_1),   VEC(blocks, Q5_0),  VEC(blocks, Q5_1),
    VEC(blocks, Q8_0), VEC(blocks, IQ4_NL), VEC(blocks, MXFP4), VEC(k, Q2_K),
    VEC(k, Q3_K),      VEC(k, Q4_K),        VEC(k, Q5_K),       VEC(k, Q6_K),
    VEC(k, IQ4_XS),    VEC(k, TQ1_0),       VEC(k, TQ2_0),      VEC(k, MLX_Q2),
    VEC(k, MLX_Q3),    VEC(k, MLX_Q4),      VEC(k, MLX_Q5),     VEC(k, MLX_Q6),
    VEC(k, MLX_Q8),
};

#define TILES(file, NAME) \
    [QRN_##NAME] = {qrn_cuda_image_matmul_tiles_##file, "qrn_matmul_tiles_" #NAME, TILES_SHARED}
static const struct qrn_cuda_function tiles[QRN_DTYPE_COUNT] = {
    TILES(blocks, Q4_0), TILES(blocks, Q4_1),   TILES(blocks, Q5_0),  TILES(blocks, Q5_1),
    TILES(blocks, Q8_0), TILES(blocks, IQ4_NL), TILES(blocks, MXFP4), TILES(k, Q2_K),
    TILES(k, Q3_K),      TILES(k, Q4_K),        TILES(k, Q5_K),       TILES(k, Q6_K),
    TILES(k, IQ4_XS),    TILES(k, TQ1_0),       TILES(k, TQ2_0),      TILES(k, MLX_Q2),
    TILES(k, MLX_Q3),    TILES(k, MLX_Q4),      TILES(k, MLX_Q5),     TILES(k, MLX_Q6),
    TILES(k, MLX_Q8),
};

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    return ok && p->w.packed && p->acts == QRN_ACTS_Q8 && p->n_x <= INT32_MAX;
}

/* Few rows of x, or few slots: a matrix that two of them name is then read twice. */
static bool is_short(const struct qrn_matmul_params *p)
{
    return p->ids ? p->n_slots <= 32 : p->most_rows <= 4;
}

static int64_t groups_of(const struct qrn_matmul_params *p)
{
    return (p->w.n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS;
}

static void run_vec(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    const bool one = p->ids || p->most_rows == 1;
    qrn_cuda_cut_rows(p, one ? 1 : 4, false);
    qrn_cuda_launch(s, &vec[p->w.dtype][one ? 0 : 1],
                    (struct qrn_cuda_grid){.n_blocks = groups_of(p) * p->n_tiles,
                                           .n_threads = 512,
                                           .shared_bytes = one ? VEC1_SHARED : VEC4_SHARED},
                    p);
}

static size_t tiles_scratch(struct qrn_matmul_params *p)
{
    qrn_cuda_cut_rows(p, 32, true);
    return qrn_cuda_acts_bytes(p) + qrn_cuda_slots_bytes(p);
}

static void run_tiles(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    qrn_cuda_cut_rows(p, 32, true);
    if (p->n_tiles == 0 || p->w.n == 0) return;
    qrn_cuda_round_x(s, s->scratch, p);
    qrn_cuda_sort_slots(s, s->scratch + qrn_cuda_acts_bytes(p), p);
    qrn_cuda_launch(s, &tiles[p->w.dtype],
                    (struct qrn_cuda_grid){.n_blocks = groups_of(p) * p->n_tiles,
                                           .n_threads = 256,
                                           .shared_bytes = TILES_SHARED},
                    p);
}

static bool takes_short(const struct qrn_matmul_params *p, bool ok)
{
    return takes(p, ok) && is_short(p);
}

static size_t no_scratch(struct qrn_matmul_params *p)
{
    (void)p;
    return 0;
}

QRN_CUDA_MATMUL_KERNEL(matmul, vec, takes_short, no_scratch, run_vec,
                       "packed weights, 8-bit activations, at most 4 rows of x");
QRN_CUDA_MATMUL_KERNEL(matmul_id, vec, takes_short, no_scratch, run_vec,
                       "packed weights, 8-bit activations, at most 32 slots");

static const char serves[] = "packed weights, 8-bit activations";

QRN_CUDA_MATMUL_KERNEL(matmul, tiles, takes, tiles_scratch, run_tiles, serves);
QRN_CUDA_MATMUL_KERNEL(matmul_id, tiles, takes, tiles_scratch, run_tiles, serves);
