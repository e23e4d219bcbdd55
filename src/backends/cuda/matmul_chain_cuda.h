/* SPDX-License-Identifier: MIT
 * What one launch for a chain of products is given. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_CHAIN_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_CHAIN_CUDA_H

#include "backends/cuda/matmul_stream_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_CHAIN_LINKS = 4,
    QRN_CHAIN_STAGES = 24,     /* of the ring, at most */
    QRN_CHAIN_NORM_PIECES = 4, /* of 128 elements, that each warp has of a row that is normed */
    QRN_CHAIN_Q8_HEAD = 5,     /* words of d and sums of a block of Q8_ACT */
    QRN_CHAIN_SET_WORDS = 96 * 1024 /* that a launch may exchange */
};

/* Warps that multiply, one that copies, one that adds, and one that stores what is late. */
QRN_FORM_FUNCTION int qrn_chain_threads(void)
{
    return 32 * (QRN_STREAM_WARPS + 3);
}

/* Where a link's row of x comes from: rounded before; rms_norm of the last product and a residual stream; silu_mul of
 * two parts of the last product. */
enum qrn_chain_kind { QRN_CHAIN_ROUNDED, QRN_CHAIN_NORM, QRN_CHAIN_SILU_MUL };

/* A row of n floats, a multiple of 128, of which x is made.  What steps after it write again is not stored. */
struct qrn_chain_row {
    uint64_t weight;            /* of a norm; 0: none */
    uint64_t sum, out, rounded; /* where to store what the steps write; 0: nowhere */
    int32_t kind, n;
    int32_t gate_at, up_at; /* of silu_mul: elements of the last product */
    float eps;
    int32_t residual; /* a norm adds to the residual stream, or to the sum of the norm before */
};

struct qrn_chain_link {
    struct qrn_chain_row row;
    struct qrn_weights_params w;
    uint64_t x;   /* of the first link: a row, rounded */
    uint64_t out; /* floats; 0: nowhere */
    /* Among words that are exchanged: outputs; rounded pieces of silu_mul's row. */
    int32_t words, pieces;
    /* Shares (shares.cuh) of n_blocks blocks from first_block on; rows of a group, its panels. */
    int32_t share, n_longer, n_blocks, first_block, group_rows, n_panels;
    int32_t x_panels; /* of a row of x */
    int32_t is_gated; /* a group: rows of gates, then those of ups; silu_mul is exchanged */
};

/* Shares are whole runs of so many panels: stages, where they can be, of which fewer are cut then. */
QRN_FORM_FUNCTION int qrn_chain_share_unit(const struct qrn_chain_link *l)
{
    return l->is_gated && l->x_panels % QRN_STREAM_PANELS == 0 ? QRN_STREAM_PANELS : 1;
}

struct qrn_matmul_chain_params {
    struct qrn_chain_link link[QRN_CHAIN_LINKS];
    struct qrn_matmul_stream_params stream; /* how shared memory is laid out */
    uint64_t notes, words;                  /* qrn_chain_notes; two sets of QRN_CHAIN_SET_WORDS */
    uint64_t residual;                      /* n_residual floats of the first norm, or 0 */
    int32_t n_links, kept_at, sum_at;
    int32_t late_link; /* with the last norm */
    int32_t window;    /* stages under way, fewer than the ring has */
    int32_t n_words, n_residual;
    int32_t more_words, more_at; /* of a chain's own: among the words, in shared memory */
    int32_t rest;
};

/* Between launches; all of it begins as 0. */
struct qrn_chain_notes {
    uint64_t loaded; /* blocks that had the row of the last norm, in all launches there ever were */
    uint32_t epoch;  /* launches there ever were */
    uint32_t n_dirty; /* words of the last one's set that are not 0 */
};

QRN_PARAMS_END

#endif
