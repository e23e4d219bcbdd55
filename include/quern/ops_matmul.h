/* SPDX-License-Identifier: MIT
 * Ops: matrix products, plain and by expert, and rows of an embedding.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_MATMUL_H
#define QUERN_OPS_MATMUL_H

#include <quern/op_functions.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How activations enter a product. */
enum qrn_activation_type {
    QRN_ACT_F32, /* as they are */
    QRN_ACT_Q8,  /* rounded to 8 bits by blocks of 128 along K, as struct qrn_q8_act says */
    QRN_ACT_BF16 /* rounded to bf16, to the nearest, halves to even */
};

/** How a weight matrix lies in memory. */
enum qrn_weight_layout {
    QRN_LAYOUT_ROWS,  /* as in the file: rows of blocks, one after the other */
    QRN_LAYOUT_PACKED /* as matmul_pack made it, for this device and type only */
};

/*
 * Weights of all ops here: [N, K], or more such matrices in leading dimensions, of type f32, f16,
 * bf16, f64, f8 or any GGUF block type; or MLX codes (QRN_MLX_Q2 .. Q8), which alone take
 * scales and biases: shaped as the weights but for the last dimension, K / group, group 32, 64 or
 * 128; f32, f16 or bf16; weight = scale * code + bias.
 */

/**
 * Product of rows with a weight matrix.
 *
 *     out[..., m, n] = sum over k of w[..., n, k] * x[..., m, k]
 *
 * Weight matrices are shared by batches of x: x[i3, i2] meets w[i3 / r3, i2 / r2], where
 * r2 = x.shape[-3] / w.shape[-3] and r3 = x.shape[-4] / w.shape[-4] must be whole; dimensions that
 * w lacks count as 1.
 *
 * Every out element is summed over k in one fixed order: its bits depend on its weight row, its x
 * row, the type, activation and the device's bits id; never on M, N, batch, layout or threads.  With
 * any_order a GPU may have another order for many rows of x than for few.
 *
 * QRN_ACT_Q8 wants K in multiples of 32; where it is no multiple of 128 the last block of x is
 * shorter.  Weight types that have no form as small integers times
 * scales (f32, f16, bf16, f64, f8, Q8_1, Q8_K, Q1_0, Q2_0, IQ1, IQ2, IQ3, NVFP4) are not affected
 * by it: they give what QRN_ACT_F32 gives.  With Q8 a block of x that holds a NaN or an infinity
 * gives NaN.
 *
 * x may be QRN_Q8_ACT, where K is a multiple of 128: rounded already (by cast, or by an op that
 * writes it), for several products; the bits are those of the float32 x that it was made from.
 * activation is then QRN_ACT_Q8, and the weights are of a type that has a form as integers.
 *
 * QRN_ACT_BF16 is for bf16 weights, sums stay float32; other weight types are not affected by it, but for
 * packed ones on a GPU with tensor cores that multiply them: weights of a type with a form as integers
 * are rounded to bf16 then, as activations are (a GPU without such kernels: QRN_ERR_UNSUPPORTED).  They
 * are what matmul_pack wrote for QRN_ACT_Q8: one image for both.
 * With QRN_ACT_BF16 and bf16 or packed weights x may be bf16 itself: the bits are those of the float32 x
 * that it was rounded from.
 *
 * QRN_LAYOUT_PACKED: w.data is what matmul_pack wrote; w.dtype and w.shape ([N, K] or [E, N, K],
 * contiguous) stay those of the weights; w.n_bytes is exactly what qrn_matmul_packed_bytes gave,
 * else no kernel takes it (QRN_ERR_UNSUPPORTED); scales and biases are absent, they are inside.
 */
struct qrn_matmul_args {
    struct qrn_tensor w;      /* [N, K], [n2, N, K] or [n3, n2, N, K] */
    struct qrn_tensor scales; /* MLX codes in rows only */
    struct qrn_tensor biases; /* as scales */
    struct qrn_tensor x;      /* [M, K], [m2, M, K] or [m3, m2, M, K]; f32, Q8_ACT or bf16; not
                              fewer dimensions than w */
    struct qrn_tensor out;    /* as x with N in place of K */
    enum qrn_activation_type activation;
    enum qrn_weight_layout layout;
    bool any_order;
};
QRN_OP_FUNCTIONS(matmul);

/** What a product with weights of this type makes of a float32 x before it multiplies, which is what x
 * may be as well; QRN_F32: it takes x as it is. */
QRN_API enum qrn_dtype qrn_matmul_x_dtype(enum qrn_dtype weights,
                                          enum qrn_activation_type activation);

/**
 * Product of rows with weight matrices chosen by id (experts).
 *
 *     out[t, j, n] = sum over k of w[ids[t, j], n, k] * x[t, min(j, n_x - 1), k]
 *
 * The same bits as matmul of that row with that matrix.  An id may repeat within a token.  Ids out
 * of 0 .. E - 1: QRN_ERR_ARGUMENT when run.
 */
struct qrn_matmul_id_args {
    struct qrn_tensor w;      /* [E, N, K]; rows or packed, as in matmul */
    struct qrn_tensor scales; /* [E, N, K / group], MLX codes in rows only */
    struct qrn_tensor biases; /* as scales */
    struct qrn_tensor x;      /* [n_tokens, n_x, K], n_x = 1 or top_k; as in matmul */
    struct qrn_tensor ids;    /* [n_tokens, top_k] i32 */
    struct qrn_tensor out;    /* [n_tokens, top_k, N] */
    enum qrn_activation_type activation;
    enum qrn_weight_layout layout;
    bool any_order; /* as in matmul */
};
QRN_OP_FUNCTIONS(matmul_id);

/**
 * Lays weights out as this device's products read them fastest: for QRN_LAYOUT_PACKED.
 *
 * What is written for rows 0 .. n - 1 of a matrix, n a multiple of QRN_PACK_ROWS, is the beginning
 * of what is written for all of them, and the rest is what the rows from n on give: a matrix may be
 * packed in pieces.  Matrices of a batch lie one after the other.
 */
#define QRN_PACK_ROWS 64
struct qrn_matmul_pack_args {
    struct qrn_tensor w;      /* [N, K] or [E, N, K], rows */
    struct qrn_tensor scales; /* MLX codes only */
    struct qrn_tensor biases; /* as scales */
    struct qrn_tensor packed; /* [n_bytes] u8; n_bytes at least qrn_matmul_packed_bytes */
    enum qrn_activation_type activation; /* of the products to come */
};
QRN_OP_FUNCTIONS(matmul_pack);

/**
 * Size of what matmul_pack will write; args->packed may be absent, and data pointers NULL.
 * 0 when this device has no packed form for that type and activation: use QRN_LAYOUT_ROWS.
 */
QRN_API enum qrn_status qrn_matmul_packed_bytes(struct qrn_device *dev,
                                                const struct qrn_matmul_pack_args *args,
                                                size_t *n_bytes, struct qrn_error *err);

/**
 * Rows of a table: out[t] = table[ids[t]], exactly as the type decodes to float32, whatever the
 * layout.  Ids out of 0 .. n_vocab - 1: QRN_ERR_ARGUMENT when run.
 */
struct qrn_embedding_args {
    struct qrn_tensor table;  /* [n_vocab, d], any weight type; rows or packed, as in matmul */
    struct qrn_tensor scales; /* [n_vocab, d / group], MLX codes in rows only */
    struct qrn_tensor biases; /* as scales */
    struct qrn_tensor ids;    /* [n_tokens] i32 */
    struct qrn_tensor out;    /* [n_tokens, d] */
    enum qrn_weight_layout layout;
};
QRN_OP_FUNCTIONS(embedding);

#ifdef __cplusplus
}
#endif
#endif
