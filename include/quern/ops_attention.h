/* SPDX-License-Identifier: MIT
 * Ops: attention, its cache, masks and positions.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_ATTENTION_H
#define QUERN_OPS_ATTENTION_H

#include <quern/ops_matmul.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- rotary positions --- */

enum qrn_rope_mode {
    QRN_ROPE_NEOX,  /* pairs (i, i + n_rot / 2): Hugging Face, Qwen */
    QRN_ROPE_NORMAL /* pairs (2i, 2i + 1) */
};

/**
 * YaRN: frequencies between those of the model (fast pairs) and those divided by factor (slow
 * pairs).
 *
 *     f_i    = 1 / (theta^(2i / n_rot) * freq_factors[i])
 *     at(b)  = n_rot * ln(original_context / (2 pi b)) / (2 ln theta)
 *     low    = max(floor(at(beta_fast)), 0),   high = min(ceil(at(beta_slow)), n_rot - 1)
 *     ramp_i = clamp((i - low) / max(high - low, 0.001), 0, 1)
 *     freq_i = f_i / factor * ramp_i + f_i * (1 - ramp_i)
 *
 * and cosine and sine are multiplied by attention_factor.  Source: Peng et al., arXiv:2309.00071.
 */
struct qrn_rope_scaling {
    float factor;           /* 0 or 1: no scaling, the rest is not looked at; else above 1 */
    float original_context; /* > 0, tokens */
    float beta_fast;        /* 0: 32 */
    float beta_slow;        /* 0: 1 */
    float attention_factor; /* 0: 0.1 ln(factor) + 1 */
};

/**
 * Rotates pairs of each head by angles that grow with the position.
 *
 *     angle    = (float)position * freq_i,   freq_i = 1 / theta^(2i / n_rot), see scaling
 *     out[a]   = x[a] cos(angle) - x[b] sin(angle)
 *     out[b]   = x[b] cos(angle) + x[a] sin(angle)         for pair i = (a, b) as mode says
 *
 * The power and the frequency are each rounded to float32, as Hugging Face's are: at position 5000
 * the last bit of a frequency is worth 3e-4 of angle.  (freq_factors divide before that rounding,
 * YaRN is worked out in double.)  The angle is one float32 product, cosine and sine are those of
 * that float32. Dimensions from n_rot on are copied.  Positions are 0 to 2^24.
 */
struct qrn_rope_args {
    struct qrn_tensor x;            /* [n_tokens, n_heads, head_dim] */
    struct qrn_tensor positions;    /* [n_tokens] I32 */
    struct qrn_tensor freq_factors; /* [n_rot / 2], optional */
    struct qrn_tensor out;          /* as x; may be x */
    int64_t n_rot;                  /* even, up to head_dim; 0: all of it */
    double theta;                   /* > 0 */
    enum qrn_rope_mode mode;
    struct qrn_rope_scaling scaling;
};
QRN_OP_FUNCTIONS(rope);

enum qrn_rope_multi_mode {
    QRN_ROPE_MROPE,  /* sections follow each other */
    QRN_ROPE_IMROPE, /* sections are interleaved: Qwen3.5 */
    QRN_ROPE_VISION  /* rows and columns of an image */
};

/**
 * Rope whose pairs (p, p + n_rot / 2) take their position from one of several axes.
 *
 * With s = sections and r = p mod (s[0] + s[1] + s[2] + s[3]):
 *     MROPE   axis 0 for r < s[0], 1 for the next s[1], 2 for the next s[2], then 3
 *     IMROPE  axis r mod 3 where r < 3 s[r mod 3]; elsewhere axis 3, or axis 0 when there are three
 *             (llama.cpp and Hugging Face disagree there; they agree where no such pair exists)
 *     VISION  n_rot is head_dim, s[0] + s[1] is head_dim / 2; axis 0 for p < s[0], else axis 1;
 *             frequency 1 / theta^(2e / (head_dim / 2)), e counting from 0 within the section
 * MROPE and IMROPE have the frequencies of rope: with equal axes the result has the bits of
 * QRN_ROPE_NEOX.
 */
struct qrn_rope_multi_args {
    struct qrn_tensor x;         /* [n_tokens, n_heads, head_dim] */
    struct qrn_tensor positions; /* [n_axes, n_tokens] I32; n_axes is 3 or 4 */
    struct qrn_tensor out;       /* as x; may be x */
    int64_t n_rot;               /* even, up to head_dim; 0: all of it */
    double theta;                /* > 0 */
    enum qrn_rope_multi_mode mode;
    int32_t sections[4]; /* each 0 or more, together 1 or more; [3] is 0 when there are 3 axes */
};
QRN_OP_FUNCTIONS(rope_multi);

/* --- softmax --- */

/**
 * out = softmax(scale * x + mask) along the last dimension.  A row that holds only -inf gives
 * zeros. The mask's shape equals the last dimensions of x and is the same for all earlier ones.
 */
struct qrn_softmax_args {
    struct qrn_tensor x;    /* [..., n] */
    struct qrn_tensor mask; /* [.., n] f32, f16 or bf16, optional */
    struct qrn_tensor out;  /* as x; may be x */
    float scale;            /* finite */
};
QRN_OP_FUNCTIONS(softmax);

/* --- attention over plain buffers --- */

/**
 * Stores new keys and values at positions position .. position + n_tokens - 1 of a cache; of
 * floats, rounded to nearest even.  With ring, position p lives in slot p mod capacity, and of more
 * tokens than capacity only the last ones are stored; without it, passing the end is QRN_ERR_LIMIT.
 */
struct qrn_kv_append_args {
    struct qrn_tensor k;        /* [n_tokens, n_kv_heads, head_dim] */
    struct qrn_tensor v;        /* [n_tokens, n_kv_heads, v_dim] */
    struct qrn_tensor position; /* [1] I32, 0 or more: of the first token */
    struct qrn_tensor cache_k;  /* [n_kv_heads, capacity, head_dim] f32, f16 or bf16 */
    struct qrn_tensor cache_v;  /* [n_kv_heads, capacity, v_dim] f32, f16 or bf16 */
    bool ring;
};
QRN_OP_FUNCTIONS(kv_append);

/**
 * Scaled dot-product attention.  For query i of head h, which reads kv head h / (n_heads /
 * n_kv_heads):
 *
 *     s_j  = scale * sum_d q[i][h][d] k[j][kv][d]
 *     s_j  = softcap * tanh(s_j / softcap)                     (softcap not 0)
 *     s_j  = s_j + mask[i][j]                                  (mask given)
 *     out  = sum_j softmax(s)_j v[j][kv]
 *
 * over the keys j that it attends to: with causal, j <= q_offset + i; with window n > 0,
 * q_offset + i - j < n (n includes the query's own position); with a mask, mask[i][j] > -1e30; and
 * s_j > -inf.  Keys that are not attended to do not reach the result, whatever they hold.  A query
 * without keys gives zeros.
 *
 * Bits: keys are taken in blocks of 64 from key 0 on, each with its own maximum, merged in
 * ascending order: a row depends on its own query, mask row and attended keys alone.
 *
 * acts is QRN_ACT_F32, or QRN_ACT_BF16: where keys and values are f16 or bf16, queries and weights
 * (the exponentials of softmax) may be rounded to their type for the products; sums and softmax
 * stay float32.  It is a permission: what has no faster kernel for it gives what QRN_ACT_F32 gives.
 * A row's bits may then depend on the number of queries and keys of the call too; they never
 * depend on other batches, and are the same from run to run.
 *
 * classes say which tiles of [tile_q queries, tile_k keys] are masked altogether (0, skipped), in
 * part (1), or not at all with all mask values 0 (2); they must describe the same mask, causal,
 * q_offset and window (qrn_attention_classify_tiles makes them) and then change no bit.
 *
 * Tensors are strided, so that layouts with heads outermost are views.  A leading batch dimension
 * is allowed on all of q, k, v, out, and then also on the mask.
 */
struct qrn_attention_args {
    struct qrn_tensor q;    /* [(n_batch,) n_tokens, n_heads, head_dim] */
    struct qrn_tensor k;    /* [(n_batch,) n_kv, n_kv_heads, head_dim] f32, f16 or bf16 */
    struct qrn_tensor v;    /* [(n_batch,) n_kv, n_kv_heads, v_dim], as k */
    struct qrn_tensor mask; /* [((n_batch,) n_heads,) n_tokens, n_kv] f32, f16 or bf16, optional */
    struct qrn_tensor classes; /* [ceil(n_tokens / tile_q), ceil(n_kv / tile_k)] U8, optional; a
                                  mask beside it has 2 dimensions */
    struct qrn_tensor out;     /* [(n_batch,) n_tokens, n_heads, v_dim] */
    float scale;               /* finite; usually 1 / sqrt(head_dim) */
    float softcap;             /* 0: none */
    bool causal;
    int64_t q_offset;       /* position of query 0, where key j has position j; may be negative */
    int64_t window;         /* 0: none */
    int64_t tile_q, tile_k; /* with classes: those of qrn_attention_tile */
    enum qrn_activation_type acts;
};
QRN_OP_FUNCTIONS(attention);

/**
 * The tile sizes of the kernel that will run args on dev: what classes must be made for.
 * Of args, shapes and types must be set; classes and out may be absent.
 * Errors: QRN_ERR_ARGUMENT, QRN_ERR_SHAPE, QRN_ERR_DTYPE.
 */
QRN_API enum qrn_status qrn_attention_tile(struct qrn_device *dev,
                                           const struct qrn_attention_args *args, int64_t *tile_q,
                                           int64_t *tile_k, struct qrn_error *err);

/** An additive mask: 0 where query i attends to key j as in qrn_attention_args, else -inf. */
struct qrn_attention_mask_args {
    struct qrn_tensor out; /* [n_tokens, n_kv] f32 or bf16 */
    bool causal;
    int64_t q_offset;
    int64_t window; /* 0: none */
};
QRN_OP_FUNCTIONS(attention_mask);

/**
 * The classes of qrn_attention_args: 0 where a tile has nothing to attend to (masked by position,
 * or mask value <= -1e30), 2 where a whole tile is attended to and every mask value is 0, else 1.
 * Tiles cut by the right or lower edge are 0 or 1.
 */
struct qrn_attention_classify_tiles_args {
    struct qrn_tensor mask;    /* [n_tokens, n_kv] f32, f16 or bf16, optional */
    struct qrn_tensor classes; /* [ceil(n_tokens / tile_q), ceil(n_kv / tile_k)] U8 */
    int64_t n_tokens, n_kv;    /* those of the mask when there is one */
    bool causal;
    int64_t q_offset;
    int64_t window;         /* 0: none */
    int64_t tile_q, tile_k; /* > 0: from qrn_attention_tile */
};
QRN_OP_FUNCTIONS(attention_classify_tiles);

/* --- attention over paged keys and values: what models use --- */

#define QRN_KV_PAGE_TOKENS 64

/** Bytes that one attention layer takes in a page of 64 positions: keys [n_kv_heads][head_dim][64],
 * then values [n_kv_heads][64][head_dim]; a multiple of 64.  0 when kv_type is neither QRN_F32 nor
 * QRN_F16, a count is below 1, or the size does not fit in size_t. */
QRN_API size_t qrn_kv_page_bytes(enum qrn_dtype kv_type, int64_t n_kv_heads, int64_t head_dim);

/**
 * Stores new keys and values of any number of sequences in their pages.
 *
 * Sequence s has tokens seq_begin[s] .. seq_begin[s + 1] - 1, the first of which has absolute
 * position position[s].  Page i of a sequence holds positions 64 i .. 64 i + 63; this layer's part
 * of it, qrn_kv_page_bytes long, begins at address pages[s][i] + page_offset, a multiple of 64.
 * Addresses are trusted; of a sequence only pages that it writes to are looked at.  Different
 * sequences write to different pages.  Halves are rounded to nearest even, subnormal ones kept.
 *
 * Before each run: seq_begin ascends from 0 to n_tokens, positions are 0 or more, each sequence's
 * end lies within max_pages * 64 (else QRN_ERR_LIMIT), pages that are used are not NULL.
 */
struct qrn_kv_append_paged_args {
    struct qrn_tensor k;         /* [n_tokens, n_kv_heads, head_dim] */
    struct qrn_tensor v;         /* as k */
    struct qrn_tensor seq_begin; /* [n_seqs + 1] I32 */
    struct qrn_tensor position;  /* [n_seqs] I32 */
    struct qrn_tensor pages;     /* [n_seqs, max_pages] ADDRESS */
    int64_t page_offset;         /* bytes, a multiple of 64, 0 or more */
    enum qrn_dtype kv_type;      /* QRN_F32 or QRN_F16 */
};
QRN_OP_FUNCTIONS(kv_append_paged);

/**
 * Causal attention of new tokens to all that is in their sequence's pages, themselves included: the
 * token of absolute position p attends to keys 0 .. p, or with a window to the last window of them.
 * Formula, blocks and bits as in qrn_attention_args; sequences, positions and pages as in
 * qrn_kv_append_paged_args, which has stored the new tokens before.  Slots beyond p may hold
 * anything.  A row's bits depend on its query and on keys 0 .. p alone: not on how tokens were cut
 * into calls, on other sequences, or on the number of threads.  With QRN_ACT_BF16 (see
 * qrn_attention_args) they may depend on how tokens were cut.
 */
struct qrn_attention_paged_args {
    struct qrn_tensor q;         /* [n_tokens, n_heads, head_dim] */
    struct qrn_tensor seq_begin; /* [n_seqs + 1] I32 */
    struct qrn_tensor position;  /* [n_seqs] I32 */
    struct qrn_tensor pages;     /* [n_seqs, max_pages] ADDRESS */
    struct qrn_tensor out;       /* as q */
    int64_t n_kv_heads;          /* divides n_heads */
    int64_t page_offset;         /* bytes, a multiple of 64, 0 or more */
    enum qrn_dtype kv_type;      /* QRN_F32 or QRN_F16 */
    float scale;                 /* finite; usually 1 / sqrt(head_dim) */
    float softcap;               /* 0: none */
    int64_t window;              /* 0: none; includes the token itself */
    enum qrn_activation_type acts;
};
QRN_OP_FUNCTIONS(attention_paged);

#ifdef __cplusplus
}
#endif
#endif
