/* SPDX-License-Identifier: MIT
 * Weight types as small integers times scales: for a block of 32 weights of one row
 *
 *     weight[j] = d * s * level(code[j]) + m             codes of `bits` bits
 *
 * with level(c) = c - offset or a table, d and m from a head that `blocks` blocks share, and s (and
 * a factor of m) from small integers of the block or of each half of it. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_FORMS_H
#define QUERN_BACKENDS_CPU_MATMUL_FORMS_H

#include "base/half.h"
#include "formats/block_tables.h"
#include "ops/matmul_common.h"

enum matmul_head {
    HEAD_F16,     /* d */
    HEAD_F16_F16, /* d, m */
    HEAD_E8M0,    /* d = 2^(e - 128) */
    HEAD_F32_F32  /* d, m */
};

enum matmul_sub {
    SUB_NONE,      /* s = 1; m as in the head, or 0 */
    SUB_SCALE,     /* s: signed byte */
    SUB_SCALE_MIN, /* s, t: bytes; m = -head.m * t */
    SUB_HALVES,    /* s of each half: signed bytes */
    SUB_HALVES_MIN /* of each half: a byte s | t << 4; m = -head.m * t */
};

enum matmul_levels { LEVELS_LINEAR, LEVELS_IQ4, LEVELS_FP4 };

/* X(NAME, bits, blocks, head, sub, offset, levels); blocks 0: as many as a group of MLX codes
 * has. */
#define MATMUL_FORMS(X)                                           \
    X(Q4_0, 4, 1, HEAD_F16, SUB_NONE, 8, LEVELS_LINEAR)           \
    X(Q4_1, 4, 1, HEAD_F16_F16, SUB_NONE, 0, LEVELS_LINEAR)       \
    X(Q5_0, 5, 1, HEAD_F16, SUB_NONE, 16, LEVELS_LINEAR)          \
    X(Q5_1, 5, 1, HEAD_F16_F16, SUB_NONE, 0, LEVELS_LINEAR)       \
    X(Q8_0, 8, 1, HEAD_F16, SUB_NONE, 128, LEVELS_LINEAR)         \
    X(Q2_K, 2, 8, HEAD_F16_F16, SUB_HALVES_MIN, 0, LEVELS_LINEAR) \
    X(Q3_K, 3, 8, HEAD_F16, SUB_HALVES, 4, LEVELS_LINEAR)         \
    X(Q4_K, 4, 8, HEAD_F16_F16, SUB_SCALE_MIN, 0, LEVELS_LINEAR)  \
    X(Q5_K, 5, 8, HEAD_F16_F16, SUB_SCALE_MIN, 0, LEVELS_LINEAR)  \
    X(Q6_K, 6, 8, HEAD_F16, SUB_HALVES, 32, LEVELS_LINEAR)        \
    X(IQ4_NL, 4, 1, HEAD_F16, SUB_NONE, 0, LEVELS_IQ4)            \
    X(IQ4_XS, 4, 8, HEAD_F16, SUB_SCALE, 0, LEVELS_IQ4)           \
    X(MXFP4, 4, 1, HEAD_E8M0, SUB_NONE, 0, LEVELS_FP4)            \
    X(TQ1_0, 2, 8, HEAD_F16, SUB_NONE, 1, LEVELS_LINEAR)          \
    X(TQ2_0, 2, 8, HEAD_F16, SUB_NONE, 1, LEVELS_LINEAR)          \
    X(MLX_Q2, 2, 0, HEAD_F32_F32, SUB_NONE, 0, LEVELS_LINEAR)     \
    X(MLX_Q3, 3, 0, HEAD_F32_F32, SUB_NONE, 0, LEVELS_LINEAR)     \
    X(MLX_Q4, 4, 0, HEAD_F32_F32, SUB_NONE, 0, LEVELS_LINEAR)     \
    X(MLX_Q5, 5, 0, HEAD_F32_F32, SUB_NONE, 0, LEVELS_LINEAR)     \
    X(MLX_Q6, 6, 0, HEAD_F32_F32, SUB_NONE, 0, LEVELS_LINEAR)     \
    X(MLX_Q8, 8, 0, HEAD_F32_F32, SUB_NONE, 0, LEVELS_LINEAR)

struct matmul_form {
    int bits, blocks;
    enum matmul_head head;
    enum matmul_sub sub;
    int offset;
    enum matmul_levels levels;
};

/* 32 weights of one row. */
struct matmul_block {
    uint8_t codes[32];
    uint32_t d, m;      /* the head's fields, as bits of its type */
    uint8_t s[2], t[2]; /* of the block (the first) or of its halves */
};

/* NULL for types without integer form. */
const struct matmul_form *qrn_matmul_form(enum qrn_dtype t);

/* Block i of a row. */
void qrn_matmul_take(const struct qrn_weight_row *row, int64_t i, struct matmul_block *out);

static inline bool matmul_has_min(const struct matmul_form *f)
{
    return f->head == HEAD_F16_F16 || f->head == HEAD_F32_F32;
}

/* Whether each 16 weights have small integers of their own. */
static inline bool matmul_has_halves(const struct matmul_form *f)
{
    return f->sub == SUB_HALVES || f->sub == SUB_HALVES_MIN;
}

static inline float matmul_head_value(enum matmul_head head, uint32_t bits)
{
    if (head == HEAD_F32_F32) return qrn_bits_float(bits);
    if (head == HEAD_E8M0) return qrn_bits_float(bits < 2 ? 0x00200000u << bits : (bits - 1) << 23);
    return qrn_f16_to_float((uint16_t)bits);
}

static inline int matmul_level(const struct matmul_form *f, uint8_t code)
{
    if (f->levels == LEVELS_IQ4) return qrn_iq4_levels[code];
    if (f->levels == LEVELS_FP4) return qrn_fp4_levels[code];
    return (int)code - f->offset;
}

#endif
