/* SPDX-License-Identifier: MIT
 * Weight types as small integers times scales (docs/ops/matmul.md), and how packed ones lie in a GPU's
 * memory.  Shared by host and device.
 *
 * A matrix is groups of 32 rows, one after the other; rows past N are zeros.  A group is panels of 128
 * k, ascending; k past K are zeros.  In a panel a lane of a warp has a row, and what lanes load at once
 * lies together, 32 times 16 bytes of codes:
 *     codes    vectors of 512 bytes, as many as a code has bits; lane * 16 within
 *     subs     the small integers of four blocks of 32 k: lane after lane s, or a byte of each half, 8 in all; of s
 *              and t of 6 bits first lane after lane bytes s | t / 16 << 6, then lane after lane two bytes with
 *              t % 16 of blocks 0 and 1, of 2 and 3
 *     heads    d, or (d, m), of each run of blocks that share them, lane after lane
 * A lane's 16 bytes of codes are 4 words; a byte j of word w, shifted by its place, is the code of
 *     8 bits   vector v            k = 16 v + 4 w + j           as signed bytes (MLX: less 128)
 *     4 bits   vector v = 0 .. 3   k = 32 v + 16 h + 4 w + j    bits 4 h and up, h = 0, 1
 *     2 bits   vector v = 0, 1     k = 64 v + 16 i + 4 w + j    bits 2 i and up, i = 0 .. 3
 *     1 bit    one vector          k = 16 i + 4 w + j           bit i, i = 0 .. 7
 * so that masks and shifts give the four codes that dp4a multiplies.  Codes of 3, 5 and 6 bits are the
 * vectors of 2, 4, 4 low bits, then those of 1, 1, 2 high ones.
 *
 * Scales of MLX codes stay in their type, if both have the same; which it is, and the group, the size
 * of the image tells: a group of rows ends in 16 bytes for bf16, 32 for f16. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_FORMS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_FORMS_CUDA_H

#include <stdint.h>
#include <quern/dtype.h>

#ifdef __cplusplus
#define QRN_FORM_FUNCTION static __device__ __forceinline__ constexpr
#else
#define QRN_FORM_FUNCTION static inline
#endif

enum {
    QRN_PANEL_ROWS = 32,
    QRN_PANEL_K = 128
};

enum qrn_form_head {
    QRN_HEAD_F16,   /* d */
    QRN_HEAD_PAIR,  /* d, m: f16 */
    QRN_HEAD_E8M0,  /* d = 2^(e - 128) */
    QRN_HEAD_SCALES /* d, m: scales and biases of MLX codes */
};

enum qrn_form_sub {
    QRN_SUB_NONE,      /* s = 1 */
    QRN_SUB_SCALE,     /* s: signed byte */
    QRN_SUB_SCALE_MIN, /* s, t: 6 bits; the minimum is -m t */
    QRN_SUB_HALVES,    /* s of each 16 k: signed bytes */
    QRN_SUB_HALVES_MIN /* of each 16 k a byte s | t << 4; the minimum is -m t */
};

enum qrn_form_levels { QRN_LEVELS_LINEAR, QRN_LEVELS_IQ4, QRN_LEVELS_FP4 };

/* X(NAME, bits, run, head, sub, base, levels): run: blocks of 32 under a head, of the four in a panel;
 * 0: as the group of MLX codes says.  A level is base + a signed byte: the code, or what a table has
 * for it.  As many as 128 k under a head have d and m of a panel once. */
#define QRN_FORMS(X)                                                                    \
    X(Q4_0, 4, 1, QRN_HEAD_F16, QRN_SUB_NONE, -8, QRN_LEVELS_LINEAR)                    \
    X(Q4_1, 4, 1, QRN_HEAD_PAIR, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                    \
    X(Q5_0, 5, 1, QRN_HEAD_F16, QRN_SUB_NONE, -16, QRN_LEVELS_LINEAR)                   \
    X(Q5_1, 5, 1, QRN_HEAD_PAIR, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                    \
    X(Q8_0, 8, 1, QRN_HEAD_F16, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                     \
    X(Q2_K, 2, 4, QRN_HEAD_PAIR, QRN_SUB_HALVES_MIN, 0, QRN_LEVELS_LINEAR)              \
    X(Q3_K, 3, 4, QRN_HEAD_F16, QRN_SUB_HALVES, -4, QRN_LEVELS_LINEAR)                  \
    X(Q4_K, 4, 4, QRN_HEAD_PAIR, QRN_SUB_SCALE_MIN, 0, QRN_LEVELS_LINEAR)               \
    X(Q5_K, 5, 4, QRN_HEAD_PAIR, QRN_SUB_SCALE_MIN, 0, QRN_LEVELS_LINEAR)               \
    X(Q6_K, 6, 4, QRN_HEAD_F16, QRN_SUB_HALVES, -32, QRN_LEVELS_LINEAR)                 \
    X(IQ4_NL, 4, 1, QRN_HEAD_F16, QRN_SUB_NONE, 0, QRN_LEVELS_IQ4)                      \
    X(IQ4_XS, 4, 4, QRN_HEAD_F16, QRN_SUB_SCALE, 0, QRN_LEVELS_IQ4)                     \
    X(MXFP4, 4, 1, QRN_HEAD_E8M0, QRN_SUB_NONE, 0, QRN_LEVELS_FP4)                      \
    X(TQ1_0, 2, 4, QRN_HEAD_F16, QRN_SUB_NONE, -1, QRN_LEVELS_LINEAR)                   \
    X(TQ2_0, 2, 4, QRN_HEAD_F16, QRN_SUB_NONE, -1, QRN_LEVELS_LINEAR)                   \
    X(MLX_Q2, 2, 0, QRN_HEAD_SCALES, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                \
    X(MLX_Q3, 3, 0, QRN_HEAD_SCALES, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                \
    X(MLX_Q4, 4, 0, QRN_HEAD_SCALES, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                \
    X(MLX_Q5, 5, 0, QRN_HEAD_SCALES, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                \
    X(MLX_Q6, 6, 0, QRN_HEAD_SCALES, QRN_SUB_NONE, 0, QRN_LEVELS_LINEAR)                \
    X(MLX_Q8, 8, 0, QRN_HEAD_SCALES, QRN_SUB_NONE, 128, QRN_LEVELS_LINEAR)

struct qrn_form {
    int bits; /* 0: the type has no such form */
    int run, head, sub, base, levels;
};

QRN_FORM_FUNCTION struct qrn_form qrn_form_of(int dtype)
{
    switch (dtype) {
#define X(NAME, bits, run, head, sub, base, levels) \
    case QRN_##NAME: {                              \
        const struct qrn_form f = {bits, run, head, sub, base, levels}; \
        return f;                                   \
    }
        QRN_FORMS(X)
#undef X
    default: {
        const struct qrn_form none = {0, 0, 0, 0, 0, 0};
        return none;
    }
    }
}

/* Bytes of a lane in a panel. */
QRN_FORM_FUNCTION int qrn_form_sub_bytes(int sub)
{
    return sub == QRN_SUB_NONE ? 0 : sub == QRN_SUB_SCALE ? 4 : sub == QRN_SUB_SCALE_MIN ? 6 : 8;
}

/* From a lane's to the next one's; of 6 bits the bytes with s, behind all of which those with t lie. */
QRN_FORM_FUNCTION int qrn_form_sub_step(int sub)
{
    return sub == QRN_SUB_SCALE_MIN ? 4 : qrn_form_sub_bytes(sub);
}

/* run: blocks of 32 under a head; wide: scales of MLX codes are f32. */
QRN_FORM_FUNCTION int qrn_form_head_bytes(int head, int run, int wide)
{
    return 4 / run *
           (head == QRN_HEAD_E8M0 ? 1 : head == QRN_HEAD_F16 ? 2 : head == QRN_HEAD_PAIR || !wide ? 4 : 8);
}

#endif
