/* SPDX-License-Identifier: MIT
 * Ops: the gated delta net: convolution, gates, recurrence, chunks.
 * Included by ops.h, which says what holds for all ops.  docs/ops/gated_delta_net.md derives the
 * forms.
 *
 * Ragged batches: sequence s owns the tokens seq_begin[s] .. seq_begin[s + 1] - 1 of tensors whose
 * first dimension is n_tokens.  seq_begin is I32 [n_seqs + 1], in the device's memory as all else:
 * ascending, first 0, last n_tokens; sequences of no tokens are allowed.  On the CPU it is looked at
 * before each run: QRN_ERR_ARGUMENT; a GPU keeps what it says inside of the tokens. */
#ifndef QUERN_OPS_GDN_H
#define QUERN_OPS_GDN_H

#include <quern/op_functions.h>
#include <quern/ops_matmul.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which key head value head h reads; n_v_heads is a multiple of n_k_heads. */
enum qrn_head_map {
    QRN_HEADS_BLOCK = 1, /* h / (n_v_heads / n_k_heads): Hugging Face, MLX, GGUF qwen3next */
    QRN_HEADS_TILED      /* h % n_k_heads: GGUF qwen35 and qwen35moe */
};

/** What g means.  0, not said, is an error. */
enum qrn_gate_sign {
    QRN_GATE_LOG_DECAY = 1, /* g <= 0, the state is multiplied by exp(g) */
    QRN_GATE_POSITIVE       /* g >= 0, the state is multiplied by exp(-g) */
};

/** Tokens of a chunk; chunks begin at the absolute positions 0, 64, 128, ... */
#define QRN_GDN_CHUNK 64

/**
 * Causal convolution over time, a filter for each channel, then silu; the state carried along.
 *
 *     ext       = state_in[s][c][0 .. K-2], x[t = 0][c], x[1][c], ...     (oldest first)
 *     out[t][c] = silu(sum over k = 0 .. K-1, ascending, of weight[c][k] * ext[t + k])
 *     state_out = the last K - 1 of ext     (of fewer than K - 1 tokens: old values remain in it)
 *
 * x, out and the states have one type, f32 or bf16; weight is f32 or bf16; sums are float32.
 */
struct qrn_ssm_conv_args {
    struct qrn_tensor x;         /* [n_seqs, n_tokens, C]; with seq_begin: [n_tokens, C] */
    struct qrn_tensor weight;    /* [C, K], K >= 2; the last tap is that of the current token */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional */
    struct qrn_tensor state_in;  /* [n_seqs, C, K - 1] */
    struct qrn_tensor state_out; /* as state_in; may be state_in */
    struct qrn_tensor out;       /* as x */
};
QRN_OP_FUNCTIONS(ssm_conv);

/**
 * ssm_conv, bit for bit, over a history of rows instead of a state, so that a sequence can go back:
 * the row x of absolute position p lies at row p % n_history of the sequence's ring.  Reads the
 * K - 1 rows before position (those of negative positions are zero), then stores the new rows.
 *
 * The ring of sequence s is float [n_history][C] at the address history[s] + history_offset; it is
 * trusted, and shared with no other sequence of the call nor with another argument.
 */
struct qrn_ssm_conv_history_args {
    struct qrn_tensor x;         /* [n_tokens, C] */
    struct qrn_tensor weight;    /* [C, K], K >= 2 */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1] */
    struct qrn_tensor position;  /* I32 [n_seqs]: of each sequence's first token, 0 or more */
    struct qrn_tensor history;   /* ADDRESS [n_seqs] */
    struct qrn_tensor out;       /* as x */
    size_t history_offset;       /* bytes, a multiple of 4 */
    int64_t n_history;           /* rows, K - 1 or more */
};
QRN_OP_FUNCTIONS(ssm_conv_history);

/**
 * Decay and step size from their projections.
 *
 *     g    = a_scale * softplus(a + dt_bias)     (softplus(x) = x > 20 ? x : log1p(exp(x)))
 *     beta = 1 / (1 + exp(-b))
 *
 * a_scale is -exp(A_log): g is a log decay.
 */
struct qrn_gdn_gates_args {
    struct qrn_tensor a, b;    /* [n_tokens, n_heads] */
    struct qrn_tensor a_scale; /* [n_heads] */
    struct qrn_tensor dt_bias; /* [n_heads] */
    struct qrn_tensor g;       /* as a; may be a */
    struct qrn_tensor beta;    /* as a; may be b */
};
QRN_OP_FUNCTIONS(gdn_gates);

/**
 * The gated delta rule, token by token.  For value head h, S = state[h] and its key head's k and q:
 *
 *     S      = S * exp(g_t)                                 (exp(-g_t) with QRN_GATE_POSITIVE)
 *     d[j]   = beta_t * (v_t[j] - sum_i S[j][i] k_t[i])
 *     S[j][i] = S[j][i] + d[j] k_t[i]
 *     out[j] = scale * sum_i S[j][i] q_t[i]                 (reads the new state)
 *
 * q and k are used as they are: a norm is another op's work.
 * Source: Yang, Kautz, Hatamizadeh, arXiv:2412.06464.
 */
struct qrn_gated_delta_net_args {
    struct qrn_tensor q, k;      /* [n_tokens, n_k_heads, d_k] */
    struct qrn_tensor v;         /* [n_tokens, n_v_heads, d_v] */
    struct qrn_tensor g, beta;   /* [n_tokens, n_v_heads] */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional: one sequence */
    struct qrn_tensor state_in;  /* [n_seqs, n_v_heads, d_v, d_k] */
    struct qrn_tensor state_out; /* as state_in; may be state_in */
    struct qrn_tensor out;       /* as v */
    float scale;
    enum qrn_gate_sign gate_sign;
    enum qrn_head_map head_map;
};
QRN_OP_FUNCTIONS(gated_delta_net);

/**
 * The gated delta rule as the model runs it: g is a log decay; the state S0 is that of the last
 * chunk edge and only read; tokens since then are kept as open rows.  With G_t the sum of g from
 * the edge to t, in float64:
 *
 *     u_t = beta_t * (v_t - exp(G_t) S0 k_t - sum over s < t of exp(G_t - G_s) (k_s . k_t) u_s)
 *     o_t = scale * (exp(G_t) S0 q_t + sum over s <= t of exp(G_t - G_s) (k_s . q_t) u_s)
 *     edge: S0 = exp(G_C) S0 + sum over s of exp(G_C - G_s) u_s k_s^T
 *
 * All sums ascend; out and states have the same bits however the tokens of a sequence are cut into
 * calls, whatever else is in the call.  Sequence s continues at position[s]; the open rows of its
 * chunk must then be there up to position[s] % 64.  The state of chunk c (position / 64) is read
 * from state[s][0]; on the edge into chunk c + 1 the new one goes to state[s][1 + ((c + 1) & 1)],
 * where the next chunk of the same call reads it.  Open rows of chunk c lie at rows[s][c & 1] and
 * stay there, so that a sequence can be rolled back: into the same chunk by calling with an earlier
 * position, over an edge by giving the old state as well.  Rows not yet reached are never read.
 *
 * q, k, v and out are all f32, or all bf16 where the device has a kernel for that (a GPU, with
 * QRN_ACT_BF16; else QRN_ERR_UNSUPPORTED).  acts is QRN_ACT_F32, or QRN_ACT_BF16, which permits to
 * round what is multiplied (q, k, v, u, the state and its products' factors) to bf16; sums, states
 * and rows stay float32, and the same call has the same bits, but those of another cut may differ in
 * what was rounded.
 *
 * Addresses, with the offset added, are 8-byte aligned, those of one sequence shared with no other
 * of the call; they are trusted.  The three states of one may be the same memory or apart, so may
 * the two rows.  Addresses that a call does not come to may be 0.  Sizes: qrn_gdn_state_bytes,
 * qrn_gdn_rows_bytes; a state of zeros is that of position 0.
 *
 * drops_inputs: q, k and v may hold anything afterwards, for nobody reads them again.
 *
 * settled permits to read states and rows, and these alone, before what was recorded ahead of the call in the same
 * encoder is done: nothing of that writes them.  So it is where each layer has its own; results do not
 * depend on it.
 */
struct qrn_gdn_open_chunk_args {
    struct qrn_tensor q, k;      /* [n_tokens, n_k_heads, d_k] */
    struct qrn_tensor v;         /* [n_tokens, n_v_heads, d_v] */
    struct qrn_tensor g, beta;   /* [n_tokens, n_v_heads]; g finite, <= 0 */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1] */
    struct qrn_tensor position;  /* I32 [n_seqs], 0 or more */
    struct qrn_tensor state;     /* ADDRESS [n_seqs, 3] */
    struct qrn_tensor rows;      /* ADDRESS [n_seqs, 2] */
    struct qrn_tensor out;       /* as v */
    size_t state_offset;         /* bytes, added to each address; multiples of 8 */
    size_t rows_offset;
    float scale;
    enum qrn_head_map head_map;
    enum qrn_activation_type acts;
    bool settled, drops_inputs;
};
QRN_OP_FUNCTIONS(gdn_open_chunk);

/** Bytes of one S0: float [n_v_heads][d_k][d_v]; a multiple of 64.  0: a size below 1, or too
 * large. */
QRN_API size_t qrn_gdn_state_bytes(int64_t n_v_heads, int64_t d_k, int64_t d_v);

/** Bytes of the open rows of one chunk: G double [n_v_heads][64], k float [n_k_heads][64][d_k],
 * u float [n_v_heads][64][d_v]; a multiple of 64.  0: a size below 1, or too large. */
QRN_API size_t qrn_gdn_rows_bytes(int64_t n_k_heads, int64_t n_v_heads, int64_t d_k, int64_t d_v);

/*
 * The chunk stages: the same rule for whole prompts, each stage an op of its own.
 *
 *     gdn_cumsum -> gdn_kkt -> gdn_solve -> gdn_recompute_wu -> gdn_chunk_state -> gdn_chunk_out
 *
 * Chunks have QRN_GDN_CHUNK tokens, begin anew with each sequence, and may end with fewer.  i and j
 * below count inside one chunk.  g is a log decay.  q, k, v, w, u, h, v_new and out of a call are
 * all f32 or all bf16; sums are float32.  G is f32 or f64: in f32 a strong decay early in a chunk
 * costs the differences behind it their last digits.  exp is taken of differences <= 0 only.
 * Source: Yang, Wang, Zhang, Shen, Kim, arXiv:2406.06484; Gated DeltaNet, arXiv:2412.06464.
 */

/** Chunks of n_seqs sequences; without seq_begin (NULL): of one sequence of n_tokens. */
QRN_API int64_t qrn_gdn_n_chunks(const int32_t *seq_begin, int64_t n_seqs, int64_t n_tokens);

/** G[i] = sum over j <= i of g[j], in float64, rounded once. */
struct qrn_gdn_cumsum_args {
    struct qrn_tensor g;         /* [n_tokens, n_heads] */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional: one sequence */
    struct qrn_tensor G;         /* as g, f32 or f64; may be g */
};
QRN_OP_FUNCTIONS(gdn_cumsum);

/** A[i][j] = beta_i exp(G_i - G_j) (k_i . k_j) for j < i, 0 for all other j. */
struct qrn_gdn_kkt_args {
    struct qrn_tensor k;         /* [n_tokens, n_k_heads, d_k] */
    struct qrn_tensor beta;      /* [n_tokens, n_v_heads] */
    struct qrn_tensor G;         /* as beta, f32 or f64 */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional */
    struct qrn_tensor A;         /* [n_tokens, n_v_heads, QRN_GDN_CHUNK] */
    enum qrn_head_map head_map;
};
QRN_OP_FUNCTIONS(gdn_kkt);

/** inverse = (I + A)^-1, unit lower triangular; only A[i][j] with j < i is read. */
struct qrn_gdn_solve_args {
    struct qrn_tensor A;         /* [n_tokens, n_v_heads, QRN_GDN_CHUNK] */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional */
    struct qrn_tensor inverse;   /* as A; may be A */
};
QRN_OP_FUNCTIONS(gdn_solve);

/** w_i = sum over j <= i of inverse[i][j] beta_j exp(G_j) k_j,
 *  u_i = sum over j <= i of inverse[i][j] beta_j v_j. */
struct qrn_gdn_recompute_wu_args {
    struct qrn_tensor k;         /* [n_tokens, n_k_heads, d_k] */
    struct qrn_tensor v;         /* [n_tokens, n_v_heads, d_v] */
    struct qrn_tensor beta;      /* [n_tokens, n_v_heads] */
    struct qrn_tensor G;         /* as beta, f32 or f64 */
    struct qrn_tensor inverse;   /* [n_tokens, n_v_heads, QRN_GDN_CHUNK] */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional */
    struct qrn_tensor w;         /* [n_tokens, n_v_heads, d_k] */
    struct qrn_tensor u;         /* as v */
    enum qrn_head_map head_map;
};
QRN_OP_FUNCTIONS(gdn_recompute_wu);

/** From chunk to chunk: h = S as the chunk begins; v_new_i = u_i - S w_i;
 *  S = exp(G_last) S + sum over i of exp(G_last - G_i) v_new_i k_i^T.
 *  n_chunks is qrn_gdn_n_chunks(...) or more (QRN_ERR_SHAPE before a run); the rest of h is
 *  left. */
struct qrn_gdn_chunk_state_args {
    struct qrn_tensor k;         /* [n_tokens, n_k_heads, d_k] */
    struct qrn_tensor w;         /* [n_tokens, n_v_heads, d_k] */
    struct qrn_tensor u;         /* [n_tokens, n_v_heads, d_v] */
    struct qrn_tensor G;         /* [n_tokens, n_v_heads], f32 or f64 */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional */
    struct qrn_tensor state_in;  /* f32 [n_seqs, n_v_heads, d_v, d_k] */
    struct qrn_tensor h;         /* [n_chunks, n_v_heads, d_v, d_k] */
    struct qrn_tensor v_new;     /* as u; may be u */
    struct qrn_tensor state_out; /* as state_in; may be state_in */
    enum qrn_head_map head_map;
};
QRN_OP_FUNCTIONS(gdn_chunk_state);

/** out_i = scale (exp(G_i) h q_i + sum over j <= i of exp(G_i - G_j) (q_i . k_j) v_new_j). */
struct qrn_gdn_chunk_out_args {
    struct qrn_tensor q, k;      /* [n_tokens, n_k_heads, d_k] */
    struct qrn_tensor v_new;     /* [n_tokens, n_v_heads, d_v] */
    struct qrn_tensor h;         /* [n_chunks, n_v_heads, d_v, d_k] */
    struct qrn_tensor G;         /* [n_tokens, n_v_heads], f32 or f64 */
    struct qrn_tensor seq_begin; /* I32 [n_seqs + 1], optional */
    struct qrn_tensor out;       /* as v_new */
    float scale;
    enum qrn_head_map head_map;
};
QRN_OP_FUNCTIONS(gdn_chunk_out);

#ifdef __cplusplus
}
#endif
#endif
