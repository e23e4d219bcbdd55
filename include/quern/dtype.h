/* SPDX-License-Identifier: MIT
 * Element types: one row each, everything else is generated from the rows. */
#ifndef QUERN_DTYPE_H
#define QUERN_DTYPE_H

#include <quern/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, "text", GGUF type id or -1, elements per block, bytes per block).
 * Append only: the values are ABI.  MLX_Qn: unsigned codes of n bits, LSB first, without scales (a
 * matmul takes those as tensors of their own).  ADDRESS: a host or device address, for tables.
 * Q8_ACT: rounded activations, struct qrn_q8_act. */
#define QRN_DTYPE_LIST(X)                     \
    X(F32, "f32", 0, 1, 4)                    \
    X(F16, "f16", 1, 1, 2)                    \
    X(BF16, "bf16", 30, 1, 2)                 \
    X(F64, "f64", 28, 1, 8)                   \
    X(I8, "i8", 24, 1, 1)                     \
    X(I16, "i16", 25, 1, 2)                   \
    X(I32, "i32", 26, 1, 4)                   \
    X(I64, "i64", 27, 1, 8)                   \
    X(U8, "u8", -1, 1, 1)                     \
    X(U16, "u16", -1, 1, 2)                   \
    X(U32, "u32", -1, 1, 4)                   \
    X(U64, "u64", -1, 1, 8)                   \
    X(BOOL, "bool", -1, 1, 1)                 \
    X(F8_E4M3, "f8_e4m3", -1, 1, 1)           \
    X(F8_E5M2, "f8_e5m2", -1, 1, 1)           \
    X(F8_E8M0, "f8_e8m0", -1, 1, 1)           \
    X(ADDRESS, "address", -1, 1, 8)           \
    X(Q4_0, "q4_0", 2, 32, 18)                \
    X(Q4_1, "q4_1", 3, 32, 20)                \
    X(Q5_0, "q5_0", 6, 32, 22)                \
    X(Q5_1, "q5_1", 7, 32, 24)                \
    X(Q8_0, "q8_0", 8, 32, 34)                \
    X(Q8_1, "q8_1", 9, 32, 36)                \
    X(Q2_K, "q2_k", 10, 256, 84)              \
    X(Q3_K, "q3_k", 11, 256, 110)             \
    X(Q4_K, "q4_k", 12, 256, 144)             \
    X(Q5_K, "q5_k", 13, 256, 176)             \
    X(Q6_K, "q6_k", 14, 256, 210)             \
    X(Q8_K, "q8_k", 15, 256, 292)             \
    X(IQ2_XXS, "iq2_xxs", 16, 256, 66)        \
    X(IQ2_XS, "iq2_xs", 17, 256, 74)          \
    X(IQ3_XXS, "iq3_xxs", 18, 256, 98)        \
    X(IQ1_S, "iq1_s", 19, 256, 50)            \
    X(IQ4_NL, "iq4_nl", 20, 32, 18)           \
    X(IQ3_S, "iq3_s", 21, 256, 110)           \
    X(IQ2_S, "iq2_s", 22, 256, 82)            \
    X(IQ4_XS, "iq4_xs", 23, 256, 136)         \
    X(IQ1_M, "iq1_m", 29, 256, 56)            \
    X(TQ1_0, "tq1_0", 34, 256, 54)            \
    X(TQ2_0, "tq2_0", 35, 256, 66)            \
    X(MXFP4, "mxfp4", 39, 32, 17)             \
    X(NVFP4, "nvfp4", 40, 64, 36)             \
    X(Q1_0, "q1_0", 41, 128, 18)              \
    X(Q2_0, "q2_0", 42, 64, 18)               \
    X(MLX_Q2, "mlx_q2", -1, 32, 8)            \
    X(MLX_Q3, "mlx_q3", -1, 32, 12)           \
    X(MLX_Q4, "mlx_q4", -1, 32, 16)           \
    X(MLX_Q5, "mlx_q5", -1, 32, 20)           \
    X(MLX_Q6, "mlx_q6", -1, 32, 24)           \
    X(MLX_Q8, "mlx_q8", -1, 32, 32)           \
    X(Q8_ACT, "q8_act", -1, 128, 148)

enum qrn_dtype {
#define X(name, text, gguf_id, block_elements, block_bytes) QRN_##name,
    QRN_DTYPE_LIST(X)
#undef X
    QRN_DTYPE_COUNT
};

/** A block of QRN_Q8_ACT: 128 activations x rounded to 8 bits, and what products want of them.
 *
 *     d = max|x| / 127, or 0 where that is below FLT_MIN; q = x * (1 / d) to the nearest, halves to
 *     even; 0 where d is 0
 *
 * A block that holds a NaN or an infinity has d = NaN, q = 0 and sum = 0. */
struct qrn_q8_act {
    float d;        /* x is about d * q */
    int16_t sum[8]; /* of q[0] .. q[15], of q[16] .. q[31], ... */
    int8_t q[128];
};

/** What is known of a type without looking at data. */
struct qrn_dtype_info {
    const char *name;       /* "q4_0" */
    int32_t gguf_id;        /* the number GGUF files use, or -1 */
    int32_t block_elements; /* elements that share one block; 1 for plain types */
    int32_t block_bytes;
};

/** The row of a type, or NULL when dtype is not one.  A static object; any thread. */
QRN_API const struct qrn_dtype_info *qrn_dtype_info(enum qrn_dtype dtype);

/** The type that a GGUF file numbers gguf_id, or QRN_DTYPE_COUNT.  Any thread. */
QRN_API enum qrn_dtype qrn_dtype_from_gguf(uint32_t gguf_id);

/** The type of that name, case-insensitive, or QRN_DTYPE_COUNT.  Any thread. */
QRN_API enum qrn_dtype qrn_dtype_from_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
