/* SPDX-License-Identifier: MIT
 * The joints of Gated DeltaNet: to the bit what three to six launches leave in memory, states, open rows
 * and rings too. */
#include <stdlib.h>

#include "base/half.h"
#include "support/joint_weights.h"

enum { MAX_SEQS = 48, D = 128, C = QRN_GDN_CHUNK };

enum oddity {
    NONE,
    GATES_IN_PLACE, /* g is a, beta is b: the chunk stays a launch of its own */
    TABLES_APART,   /* gdn_open_chunk has positions of its own: likewise */
    GATES_OVER_V,   /* g lies among channels: no joint */
    NORM_OF_K,      /* q is not normed: likewise */
    NORM_ELSEWHERE, /* no joint */
    X_IS_WRITTEN,   /* x of the gates' product is what the convolution makes: that stays a launch */
    OFF_BY_EIGHT,   /* states where copies of 16 bytes cannot be */
    RING_OFF,       /* rings likewise */
    BAD_NUMBERS,    /* positions below 0 */
    /* The norm behind stays a launch of its own: */
    X_ELSEWHERE,
    X_LONG,  /* one row a token */
    X_SHORT, /* a token less */
    RESIDUAL,
    SUM,
    GATE_IS_X,
    GATE_IS_V, /* which the convolution makes */
    GATE_OFF,  /* another kernel's */
    WEIGHT_IS_WRITTEN,
    OUT_IS_V,
    ROUNDED_IS_READ, /* by the convolution */
    OUT_IS_READ      /* by the gates' product, which stays one with the others */
};

/* Launches less: with the gates' product, without it, without gdn_open_chunk, with the product or not; NORM more with a norm
 * behind. */
enum { PROMPTS = 5, PRODUCT = 4, WHOLE = 3, PRODUCT_INPUTS = 3, INPUTS = 2, NORM = 1 };

/* Where the norm's result goes, and what it goes without. */
enum normed {
    NO_NORM = 0,
    ROUNDED = 1,
    OUT = 2,
    IN_PLACE = 4,
    OVER_GATE = 8,
    NO_WEIGHT = 16,
    NO_GATE = 32
};

/* What gates are made of: there already, or a product, of whose rows those for a come first or last. */
enum gates { THERE, A_FIRST, B_FIRST };

struct row {
    int64_t n_k, n_v;
    enum qrn_head_map map;
    int64_t n_history;
    enum oddity oddity;
    long n_saved;
    int64_t lengths[MAX_SEQS];
    int32_t positions[MAX_SEQS];
    const char *why;
    enum gates gates;
    enum qrn_dtype type; /* of the product's weights */
    int64_t K;
    unsigned normed;
    enum qrn_dtype rounded;
    bool rounds,
        drops; /* gdn_open_chunk's: it rounds what is multiplied; q, k and v are written again afterwards */
};

static const struct row rows[] = {
    {4, 8, QRN_HEADS_BLOCK, 11, NONE, WHOLE, {1}, {70}, "decode"},
    {4, 8, QRN_HEADS_TILED, 4, NONE, WHOLE, {1, 1, 1}, {0, 1, 2}, "first tokens, smallest ring"},
    {2, 4, QRN_HEADS_TILED, 67, NONE, WHOLE, {1, 1, 1, 1}, {63, 64, 127, 3}, "edges"},
    {1,
     3,
     QRN_HEADS_BLOCK,
     5,
     NONE,
     WHOLE,
     {1, 1, 1, 1, 1, 1, 1, 1},
     {5, 4, 62, 63, 191, 1000, 30, 6},
     "eight sequences"},
    {2, 2, QRN_HEADS_BLOCK, 11, NONE, WHOLE, {1, 2, 0, 0, 1}, {63, 62, 7, 8, 9}, "ragged"},
    {2,
     4,
     QRN_HEADS_TILED,
     4,
     NONE,
     WHOLE,
     {0, 4, 1, 0, 0},
     {1, 60, 63, 3, 2},
     "ragged, more than the ring holds"},
    {2, 4, QRN_HEADS_BLOCK, 11, OFF_BY_EIGHT, WHOLE, {1, 1}, {5, 63}, "states off by eight"},
    {2, 4, QRN_HEADS_BLOCK, 11, RING_OFF, WHOLE, {1, 1}, {5, 63}, "rings off by eight"},
    {2, 4, QRN_HEADS_BLOCK, 11, BAD_NUMBERS, WHOLE, {1, 1, 1}, {5, -1, 64}, "no position"},
    {2, 4, QRN_HEADS_BLOCK, 3, NONE, INPUTS, {1, 1}, {5, 63}, "a ring of three"},
    {8, 16, QRN_HEADS_BLOCK, 11, NONE, INPUTS, {1, 1, 1, 1}, {5, 63, 64, 0}, "many heads"},
    {2, 4, QRN_HEADS_TILED, 11, NONE, INPUTS, {3, 9, 0, 1}, {5, 58, 2, 0}, "ragged, more tokens"},
    {1, 2, QRN_HEADS_BLOCK, 3, NONE, INPUTS, {64}, {61}, "the most tokens"},
    {2,
     2,
     QRN_HEADS_BLOCK,
     11,
     TABLES_APART,
     INPUTS,
     {1, 2, 0, 0, 1},
     {63, 62, 7, 8, 9},
     "inputs, ragged"},
    {2,
     4,
     QRN_HEADS_TILED,
     4,
     TABLES_APART,
     INPUTS,
     {0, 6, 1, 0, 0, 1, 0, 0},
     {1, 60, 63, 3, 2, 1, 1, 1},
     "inputs, a full ring"},
    {2, 4, QRN_HEADS_BLOCK, 3, TABLES_APART, INPUTS, {1, 1, 1}, {5, -1, 64}, "inputs, no position"},
    {2, 4, QRN_HEADS_BLOCK, 11, GATES_IN_PLACE, INPUTS, {1}, {5}, "gates in place"},
    {2, 4, QRN_HEADS_BLOCK, 11, TABLES_APART, INPUTS, {1}, {5}, "other positions"},
    {2, 4, QRN_HEADS_BLOCK, 11, GATES_OVER_V, 0, {1}, {5}, "g among v"},
    {2, 4, QRN_HEADS_BLOCK, 11, NORM_OF_K, INPUTS, {1}, {5}, "half of them normed"},
    {2, 4, QRN_HEADS_BLOCK, 11, NORM_ELSEWHERE, 0, {1}, {5}, "normed elsewhere"},
    {4, 8, QRN_HEADS_BLOCK, 11, NONE, PRODUCT, {1}, {70}, "F32", A_FIRST, QRN_F32, 1100},
    {2, 4, QRN_HEADS_TILED, 11, NONE, PRODUCT, {1, 1, 1}, {0, 63, 5}, "F16", B_FIRST, QRN_F16, 37},
    {2, 6, QRN_HEADS_BLOCK, 4, NONE, PRODUCT, {1, 1}, {7, 9}, "BF16", B_FIRST, QRN_BF16, 1024},
    {2, 4, QRN_HEADS_BLOCK, 4, NONE, PRODUCT, {1}, {63}, "rows copied", B_FIRST, QRN_BF16, 1152},
    {2, 6, QRN_HEADS_TILED, 4, NONE, PRODUCT, {1}, {2}, "rows of F32", A_FIRST, QRN_F32, 384},
    {2, 4, QRN_HEADS_BLOCK, 4, NONE, PRODUCT, {1}, {9}, "rows of F16", A_FIRST, QRN_F16, 256},
    {1,
     1,
     QRN_HEADS_BLOCK,
     4,
     NONE,
     PRODUCT,
     {1},
     {9},
     "no room for rows",
     B_FIRST,
     QRN_F32,
     16384},
    {2,
     2,
     QRN_HEADS_BLOCK,
     11,
     NONE,
     PRODUCT,
     {0, 3, 1, 0},
     {1, 62, 8, 2},
     "ragged, product",
     A_FIRST,
     QRN_F32,
     130},
    {8,
     16,
     QRN_HEADS_BLOCK,
     11,
     NONE,
     PRODUCT_INPUTS,
     {1, 1, 1, 1},
     {5, 63, 64, 0},
     "many heads, product",
     A_FIRST,
     QRN_F32,
     1100},
    {8,
     16,
     QRN_HEADS_BLOCK,
     11,
     NONE,
     INPUTS,
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
     {5, 63, 64, 0, 7, 8, 9, 1, 2, 3},
     "product, more than a round",
     A_FIRST,
     QRN_F32,
     64},
    {2,
     4,
     QRN_HEADS_BLOCK,
     3,
     NONE,
     PRODUCT_INPUTS,
     {1, 0, 1, 1},
     {5, 7, 63, 0},
     "no token, product",
     B_FIRST,
     QRN_BF16,
     2048},
    {1,
     3,
     QRN_HEADS_BLOCK,
     3,
     NONE,
     PRODUCT_INPUTS,
     {1},
     {5},
     "three heads, product",
     B_FIRST,
     QRN_F16,
     37},
    {2,
     4,
     QRN_HEADS_TILED,
     3,
     GATES_IN_PLACE,
     PRODUCT_INPUTS,
     {1, 1},
     {5, 63},
     "gates in place, product",
     A_FIRST,
     QRN_F32,
     640},
    {2,
     4,
     QRN_HEADS_TILED,
     3,
     X_IS_WRITTEN,
     INPUTS,
     {1, 1},
     {5, 63},
     "x is written, inputs",
     A_FIRST,
     QRN_F32,
     64},
    {2, 4, QRN_HEADS_BLOCK, 3, NONE, INPUTS, {2}, {5}, "two tokens", A_FIRST, QRN_F32, 64},
    {2, 4, QRN_HEADS_BLOCK, 11, NONE, WHOLE, {1}, {5}, "F64", A_FIRST, QRN_F64, 64},
    {2, 4, QRN_HEADS_BLOCK, 11, NONE, INPUTS, {2}, {5}, "two tokens", A_FIRST, QRN_F32, 64},
    {2,
     4,
     QRN_HEADS_BLOCK,
     11,
     X_IS_WRITTEN,
     WHOLE,
     {1},
     {5},
     "x is written",
     A_FIRST,
     QRN_F32,
     64},
};

#define HEADS(k, v, order)  .n_k = k, .n_v = v, .map = QRN_HEADS_##order, .n_history = 11
#define MAKES(first, of, n) .gates = first, .type = QRN_##of, .K = n
#define ROUNDS(to)          .normed = ROUNDED, .rounded = QRN_##to

/* With a norm behind, on a GPU of 132 multiprocessors. */
static const struct row normed_rows[] = {
    {HEADS(4, 8, BLOCK), .n_saved = WHOLE + NORM, .lengths = {1}, .positions = {70}, ROUNDS(Q8_ACT),
     .why = "decode"},
    {HEADS(4, 8, TILED), .n_saved = WHOLE + NORM, .lengths = {1, 1, 1}, .positions = {0, 1, 2},
     .normed = IN_PLACE, .why = "in place"},
    {HEADS(2, 4, TILED), .n_saved = WHOLE + NORM, .lengths = {1, 1, 1, 1},
     .positions = {63, 64, 127, 3}, ROUNDS(BF16), .why = "edges"},
    {HEADS(1, 3, BLOCK), .n_saved = WHOLE + NORM, .lengths = {1, 1, 1, 1, 1, 1, 1, 1},
     .positions = {5, 4, 62, 63, 191, 1000, 30, 6}, .normed = OUT | ROUNDED, .rounded = QRN_Q8_ACT,
     .why = "out, too"},
    {HEADS(2, 2, BLOCK), .n_saved = WHOLE + NORM, .lengths = {1, 2, 0, 0, 1},
     .positions = {63, 62, 7, 8, 9}, ROUNDS(Q8_ACT), .why = "ragged"},
    {HEADS(2, 4, TILED), .n_saved = WHOLE + NORM, .lengths = {0, 4, 1, 0, 0},
     .positions = {1, 60, 63, 3, 2}, .normed = IN_PLACE, .why = "ragged, in place"},
    {HEADS(2, 4, BLOCK), .oddity = OFF_BY_EIGHT, .n_saved = WHOLE + NORM, .lengths = {1, 1},
     .positions = {5, 63}, ROUNDS(BF16), .why = "states off by eight"},
    {HEADS(2, 4, BLOCK), .oddity = BAD_NUMBERS, .n_saved = WHOLE + NORM, .lengths = {1, 1, 1},
     .positions = {5, -1, 64}, .normed = IN_PLACE | ROUNDED, .rounded = QRN_Q8_ACT,
     .why = "no position"},
    {HEADS(2, 4, BLOCK), .n_saved = WHOLE + NORM, .lengths = {1, 2, 0}, .positions = {5, 63, 4},
     .normed = OVER_GATE, .why = "over the gate"},
    {HEADS(2, 4, BLOCK), .n_saved = WHOLE + NORM, .lengths = {1, 2, 0}, .positions = {5, 63, 4},
     .normed = OUT | NO_GATE, .why = "no gate"},
    {HEADS(2, 4, BLOCK), .n_saved = WHOLE + NORM, .lengths = {1, 2, 0}, .positions = {5, 63, 4},
     .normed = OUT | NO_WEIGHT, .why = "no weight"},
    {HEADS(16, 32, BLOCK), .n_saved = PRODUCT + NORM, .lengths = {1}, .positions = {40},
     MAKES(A_FIRST, BF16, 1024), ROUNDS(Q8_ACT), .why = "16/32"},
    {HEADS(16, 48, TILED), .n_saved = PRODUCT + NORM, .lengths = {1}, .positions = {127},
     MAKES(B_FIRST, F32, 1280), ROUNDS(BF16), .why = "16/48"},
    {HEADS(16, 64, BLOCK), .n_saved = PRODUCT + NORM, .lengths = {1}, .positions = {0},
     MAKES(A_FIRST, F16, 256), .normed = IN_PLACE, .why = "16/64"},
    {HEADS(16, 32, TILED), .n_saved = PRODUCT + NORM, .lengths = {1, 1}, .positions = {63, 2},
     MAKES(B_FIRST, BF16, 37), ROUNDS(Q8_ACT), .why = "16/32 of two"},
    {HEADS(2, 4, BLOCK), .n_saved = PRODUCT + NORM, .lengths = {0, 3, 1, 1, 0},
     .positions = {1, 62, 8, 63, 5}, MAKES(A_FIRST, F32, 130), .normed = OUT | ROUNDED,
     .rounded = QRN_BF16, .why = "ragged, product"},
    {HEADS(1, 1, BLOCK), .n_saved = PRODUCT + NORM, .lengths = {1}, .positions = {9},
     MAKES(B_FIRST, F32, 13824), ROUNDS(Q8_ACT), .why = "rows have room without a norm alone"},
    {HEADS(2, 4, BLOCK), .oddity = TABLES_APART, .n_saved = INPUTS, .lengths = {1},
     .positions = {5}, ROUNDS(Q8_ACT), .why = "other positions"},
    {HEADS(2, 4, BLOCK), .oddity = X_ELSEWHERE, .n_saved = WHOLE, .lengths = {1}, .positions = {5},
     ROUNDS(Q8_ACT), .why = "another x"},
    {HEADS(2, 4, BLOCK), .oddity = X_LONG, .n_saved = WHOLE, .lengths = {1}, .positions = {5},
     ROUNDS(Q8_ACT), .why = "long rows"},
    {HEADS(2, 4, BLOCK), .oddity = X_SHORT, .n_saved = WHOLE, .lengths = {1, 1},
     .positions = {5, 6}, ROUNDS(Q8_ACT), .why = "a token less"},
    {HEADS(2, 4, BLOCK), .oddity = RESIDUAL, .n_saved = PRODUCT, .lengths = {1}, .positions = {5},
     MAKES(A_FIRST, F32, 64), ROUNDS(Q8_ACT), .why = "residual"},
    {HEADS(2, 4, BLOCK), .oddity = SUM, .n_saved = WHOLE, .lengths = {1}, .positions = {5},
     ROUNDS(Q8_ACT), .why = "sum"},
    {HEADS(2, 4, BLOCK), .oddity = GATE_IS_X, .n_saved = WHOLE, .lengths = {1}, .positions = {5},
     ROUNDS(Q8_ACT), .why = "the gate is x"},
    {HEADS(2, 4, BLOCK), .oddity = GATE_IS_V, .n_saved = WHOLE, .lengths = {1}, .positions = {5},
     ROUNDS(Q8_ACT), .why = "the gate is v"},
    {HEADS(2, 4, BLOCK), .oddity = GATE_OFF, .n_saved = WHOLE, .lengths = {1}, .positions = {5},
     ROUNDS(Q8_ACT), .why = "the gate is off by four"},
    {HEADS(2, 4, BLOCK), .oddity = WEIGHT_IS_WRITTEN, .n_saved = WHOLE, .lengths = {1},
     .positions = {5}, ROUNDS(Q8_ACT), .why = "the weight is q"},
    {HEADS(2, 4, BLOCK), .oddity = OUT_IS_V, .n_saved = WHOLE, .lengths = {1}, .positions = {5},
     ROUNDS(Q8_ACT), .why = "out is v"},
    {HEADS(2, 4, BLOCK), .oddity = ROUNDED_IS_READ, .n_saved = WHOLE, .lengths = {1},
     .positions = {5}, ROUNDS(BF16), .why = "rounded over the convolution's x"},
    {HEADS(2, 4, BLOCK), .oddity = OUT_IS_READ, .n_saved = PRODUCT, .lengths = {1},
     .positions = {5}, MAKES(A_FIRST, F32, 512), ROUNDS(Q8_ACT), .why = "out over the product's x"},
};

/* More heads than a few of ten multiprocessors: up to 20, each in a block of its own, and more. */
static const struct row behind_rows[] = {
    {HEADS(2, 4, BLOCK), .n_saved = INPUTS + NORM, .lengths = {1, 1, 1}, .positions = {5, 63, 64},
     ROUNDS(Q8_ACT), .why = "twelve heads"},
    {HEADS(2, 4, TILED), .n_saved = PRODUCT_INPUTS + NORM, .lengths = {1, 0, 1, 1},
     .positions = {127, 3, 0, 62}, MAKES(A_FIRST, F32, 64), .normed = IN_PLACE,
     .why = "16 heads, in place"},
    {HEADS(2, 4, BLOCK), .n_saved = INPUTS + NORM, .lengths = {2, 0, 1, 1},
     .positions = {5, 7, 63, 126}, .normed = OUT | ROUNDED, .rounded = QRN_BF16,
     .why = "16 heads, ragged"},
    {HEADS(2, 4, TILED), .n_saved = INPUTS + NORM, .lengths = {1, 1, 1}, .positions = {5, 63, 64},
     .normed = OUT | NO_GATE, .why = "twelve heads, no gate"},
    {HEADS(2, 4, TILED), .n_saved = INPUTS + NORM, .lengths = {1, 1, 1}, .positions = {5, 63, 64},
     .normed = OVER_GATE | NO_WEIGHT, .why = "twelve heads, no weight"},
    {HEADS(2, 4, BLOCK), .oddity = OFF_BY_EIGHT, .n_saved = INPUTS + NORM, .lengths = {1, 1, 1},
     .positions = {5, 63, 64}, ROUNDS(BF16), .why = "twelve heads, states off by eight"},
    {HEADS(2, 4, BLOCK), .n_saved = INPUTS + NORM, .lengths = {1, 1, 1, 1, 1, 1, 1},
     .positions = {5, 63, 64, 0, 127, 62, 1}, ROUNDS(BF16), .why = "28 heads"},
    {HEADS(2, 4, TILED), .n_saved = INPUTS + NORM, .lengths = {1, 0, 2, 1, 1, 1, 1},
     .positions = {5, 63, 62, 0, 127, 62, 1}, .normed = IN_PLACE, .why = "28 heads, ragged"},
    {HEADS(2, 4, BLOCK), .oddity = BAD_NUMBERS, .n_saved = INPUTS + NORM,
     .lengths = {1, 1, 1, 1, 1, 1}, .positions = {5, -1, 63, 64, 0, 127},
     .normed = OUT | ROUNDED | NO_GATE, .rounded = QRN_Q8_ACT, .why = "24 heads, no position"},
    {HEADS(1, 9, BLOCK), .n_saved = INPUTS + NORM, .lengths = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
     .positions = {5, 3, 63, 64, 0, 127, 9, 8, 63, 63, 2, 1}, .normed = OVER_GATE | NO_WEIGHT,
     .why = "108 heads, over the gate"},
    {HEADS(2, 4, BLOCK), .oddity = X_SHORT, .n_saved = INPUTS, .lengths = {1, 1, 1},
     .positions = {5, 6, 7}, ROUNDS(Q8_ACT), .why = "twelve heads, a token less"},
    {HEADS(2, 4, BLOCK), .oddity = RESIDUAL, .n_saved = INPUTS, .lengths = {1, 1, 1},
     .positions = {5, 6, 7}, ROUNDS(Q8_ACT), .why = "twelve heads, residual"},
    {HEADS(2, 4, BLOCK), .oddity = OUT_IS_V, .n_saved = INPUTS, .lengths = {1, 1, 1},
     .positions = {5, 6, 7}, ROUNDS(Q8_ACT), .why = "twelve heads, out is v"},
};

/* The same of three: a block has up to 20 heads one after the other, some of sequences without a token. */
static const struct row turns_rows[] = {
    {HEADS(1, 9, BLOCK), .n_saved = INPUTS + NORM, .lengths = {1, 0, 1, 1, 0, 0, 1, 2, 1, 0, 1, 1},
     .positions = {5, 3, 63, 64, 9, 127, 9, 62, 63, 63, 2, 1}, .normed = OUT | ROUNDED,
     .rounded = QRN_BF16, .why = "108 heads, some without a token"},
    {HEADS(1, 9, TILED), .n_saved = INPUTS + NORM, .lengths = {0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1},
     .positions = {5, 3, 63, 64, 9, 127, 9, 62, 63, 63, 2, 1}, ROUNDS(Q8_ACT),
     .why = "108 heads, most without a token"},
};

/* The same of a GPU of 132. */
static const struct row far_behind_rows[] = {
    {HEADS(2, 48, BLOCK), .n_saved = INPUTS + NORM, .lengths = {1, 1, 1}, .positions = {5, 63, 64},
     ROUNDS(Q8_ACT), .why = "144 heads"},
    {HEADS(2, 48, TILED), .n_saved = INPUTS + NORM, .lengths = {1, 0, 2, 1, 1, 1},
     .positions = {5, 63, 62, 0, 127, 63}, .normed = IN_PLACE, .why = "288 heads, ragged"},
};

#define PROMPT .rounds = true, .drops = true

/* Of many tokens; launches that round q, k and v are saved, too. */
static const struct row prompt_rows[] = {
    {HEADS(2, 4, BLOCK), PROMPT, .n_saved = PROMPTS, .lengths = {200}, .why = "a prompt"},
    {HEADS(1, 2, TILED), PROMPT, .n_saved = PROMPTS, .lengths = {130, 5, 0, 70, 300},
     .positions = {63, 10, 5, 64, 1}, .why = "ragged prompts"},
    {1,
     1,
     QRN_HEADS_BLOCK,
     4,
     NONE,
     PROMPTS,
     {129, 64, 63},
     {0, 64, 127},
     .why = "the smallest ring",
     PROMPT},
    {HEADS(2, 2, BLOCK), PROMPT, .n_saved = PROMPTS, .lengths = {9}, .positions = {60},
     .why = "few tokens"},
    {HEADS(2, 4, BLOCK), PROMPT, .oddity = BAD_NUMBERS, .n_saved = PROMPTS, .lengths = {70, 70},
     .positions = {5, -1}, .why = "prompts, no position"},
    {HEADS(1, 2, BLOCK), PROMPT, .oddity = GATES_IN_PLACE, .n_saved = PROMPTS, .lengths = {66},
     .why = "prompts, gates in place"},
    {HEADS(1, 2, BLOCK), PROMPT, .oddity = RING_OFF, .n_saved = PROMPTS, .lengths = {66},
     .why = "prompts, rings off by eight"},
    {HEADS(1, 2, BLOCK), .rounds = true, .n_saved = 0, .lengths = {66}, .why = "kept"},
    {HEADS(1, 2, BLOCK), .drops = true, .n_saved = 0, .lengths = {66}, .why = "not rounded"},
    {HEADS(1, 2, BLOCK), PROMPT, .oddity = TABLES_APART, .n_saved = 0, .lengths = {66},
     .why = "prompts, other positions"},
    {HEADS(1, 2, BLOCK), PROMPT, .oddity = GATES_OVER_V, .n_saved = 0, .lengths = {66},
     .why = "prompts, g among v"},
    {HEADS(2, 2, BLOCK), PROMPT, .oddity = NORM_OF_K, .n_saved = 0, .lengths = {66},
     .why = "prompts, half of them normed"},
    {HEADS(1, 2, BLOCK), PROMPT, .oddity = NORM_ELSEWHERE, .n_saved = 0, .lengths = {66},
     .why = "prompts, normed elsewhere"},
};

struct call {
    bool has_product, has_norm;
    struct qrn_matmul_args product;
    struct qrn_ssm_conv_history_args conv;
    struct qrn_l2_norm_args norm;
    struct qrn_gdn_gates_args gates;
    struct qrn_gdn_open_chunk_args chunk;
    struct qrn_rms_norm_args gated;
    struct qrn_cast_args over; /* q, k and v; where they are dropped */
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    if (c->has_product) qrn_encode_matmul(j->enc, &c->product);
    qrn_encode_ssm_conv_history(j->enc, &c->conv);
    qrn_encode_l2_norm(j->enc, &c->norm);
    qrn_encode_gdn_gates(j->enc, &c->gates);
    qrn_encode_gdn_open_chunk(j->enc, &c->chunk);
    if (c->has_norm) qrn_encode_rms_norm(j->enc, &c->gated);
    if (c->chunk.drops_inputs) qrn_encode_cast(j->enc, &c->over);
}

static uint64_t address(struct qrn_tensor t)
{
    return (uint64_t)(uintptr_t)t.data;
}

/* What sequences remember, at offsets. */
static void make_sequences(struct joint_test *j, const struct row *z, struct call *c)
{
    enum { OFFSET = 64 };
    int32_t begin[MAX_SEQS + 1] = {0};
    uint64_t state[MAX_SEQS][3], own[MAX_SEQS][2], history[MAX_SEQS];
    const int64_t n_state[] = {(int64_t)qrn_gdn_state_bytes(z->n_v, D, D) / 4},
                  n_rows[] = {(int64_t)qrn_gdn_rows_bytes(z->n_k, z->n_v, D, D) / 4},
                  n_ring[] = {z->n_history * (2 * z->n_k + z->n_v) * D + 2};
    const uint64_t off = z->oddity == OFF_BY_EIGHT ? 8 : 0, ring_off = z->oddity == RING_OFF ? 8 : 0;
    int64_t n = 0;
    for (; n < MAX_SEQS && (n == 0 || z->lengths[n] || z->positions[n]); n++) {
        begin[n + 1] = begin[n] + (int32_t)z->lengths[n];
        for (int i = 0; i < 2; i++) {
            state[n][1 + i] = address(joint_test_filled(j, 0.3, 1, n_state)) + off - OFFSET;
            own[n][i] = address(joint_test_filled(j, 0.1, 1, n_rows)) - 2 * OFFSET;
        }
        state[n][0] = state[n][1 + (z->positions[n] / C & 1)];
        history[n] = address(joint_test_filled(j, 1.0, 1, n_ring)) - 3 * OFFSET + ring_off;
    }
    c->conv.seq_begin = c->chunk.seq_begin = joint_test_ints(j, begin, n + 1);
    c->conv.position = c->chunk.position = joint_test_ints(j, z->positions, n);
    if (z->oddity == TABLES_APART) c->chunk.position = joint_test_ints(j, z->positions, n);
    c->conv.history = joint_test_addresses(j, history, n, 1);
    c->conv.history = qrn_tensor_1d(QRN_ADDRESS, c->conv.history.data, n);
    c->conv.history_offset = 3 * OFFSET;
    c->chunk.state = joint_test_addresses(j, state[0], n, 3);
    c->chunk.rows = joint_test_addresses(j, own[0], n, 2);
    c->chunk.state_offset = OFFSET;
    c->chunk.rows_offset = 2 * OFFSET;
}

/* The product of floats of which a and b are columns. */
static void make_product(struct joint_test *j, const struct row *z, int64_t T, struct call *c)
{
    const int64_t n = z->n_v, shape[] = {2 * n, z->K};
    const struct qrn_tensor floats = joint_test_filled(j, 0.1, 2, shape);
    const struct qrn_tensor out = joint_test_poison(j, QRN_F32, 2, (const int64_t[]){T, 2 * n});
    c->has_product = true;
    c->product =
        (struct qrn_matmul_args){.w = joint_test_poison(j, z->type, 2, shape),
                                 .x = joint_test_filled(j, 1.0, 2, (const int64_t[]){T, z->K}),
                                 .out = out};
    if (z->oddity == X_IS_WRITTEN) c->product.x = qrn_tensor_slice(c->conv.out, 1, 0, z->K);
    for (int64_t i = 0; i < 2 * n * z->K; i++) {
        const float x = ((float *)joint_test_at(j, floats.data))[i];
        void *w = joint_test_at(j, c->product.w.data);
        if (z->type == QRN_F32) ((float *)w)[i] = x;
        if (z->type == QRN_F64) ((double *)w)[i] = (double)x;
        if (z->type == QRN_F16) ((uint16_t *)w)[i] = qrn_float_to_f16(x);
        if (z->type == QRN_BF16) ((uint16_t *)w)[i] = qrn_float_to_bf16(x);
    }
    c->gates.a = qrn_tensor_slice(out, 1, z->gates == A_FIRST ? 0 : n, n);
    c->gates.b = qrn_tensor_slice(out, 1, z->gates == A_FIRST ? n : 0, n);
}

/* Heads side by side in rows that are wider than they need be. */
static struct qrn_tensor heads_of(struct qrn_tensor wide, int64_t n)
{
    return qrn_tensor_split_last(qrn_tensor_slice(wide, 1, 0, n * D), n, D);
}

/* What keeps it apart. */
static void spoil_norm(struct joint_test *j, const struct row *z, int64_t T, struct call *c)
{
    struct qrn_rms_norm_args *a = &c->gated;
    const int64_t shape[] = {T, z->n_v, D}, n = z->n_v * D;
    if (z->oddity == X_ELSEWHERE) a->x = joint_test_filled(j, 1.0, 3, shape);
    if (z->oddity == RESIDUAL) a->residual = joint_test_filled(j, 1.0, 3, shape);
    if (z->oddity == SUM) a->sum = joint_test_poison(j, QRN_F32, 3, shape);
    if (z->oddity == GATE_IS_X) a->gate = a->x;
    if (z->oddity == GATE_IS_V) a->gate = c->chunk.v;
    if (z->oddity == GATE_OFF) a->gate.data = (float *)a->gate.data + 1;
    if (z->oddity == WEIGHT_IS_WRITTEN) a->weight = qrn_tensor_1d(QRN_F32, c->conv.out.data, D);
    if (z->oddity == OUT_IS_V) a->out = c->chunk.v;
    if (z->oddity == OUT_IS_READ) a->out = heads_of(c->product.x, z->n_v);
    if (z->oddity == ROUNDED_IS_READ)
        a->rounded =
            qrn_tensor_split_last(qrn_tensor_2d(QRN_BF16, c->conv.x.data, T, n), z->n_v, D);
    if (z->oddity == X_SHORT) {
        a->x = qrn_tensor_slice(a->x, 0, 0, T - 1);
        a->gate = qrn_tensor_slice(a->gate, 0, 0, T - 1);
        a->rounded = qrn_tensor_slice(a->rounded, 0, 0, T - 1);
    }
    if (z->oddity == X_LONG) {
        a->x = qrn_tensor_2d(QRN_F32, a->x.data, T, n);
        a->gate = qrn_tensor_2d(QRN_F32, a->gate.data, T, n);
        a->rounded = qrn_tensor_2d(QRN_Q8_ACT, a->rounded.data, T, n);
        a->weight = (struct qrn_tensor){0};
    }
}

static void make_norm(struct joint_test *j, const struct row *z, int64_t T, struct call *c)
{
    const int64_t wide[] = {T, z->n_v * D + 8}, shape[] = {T, z->n_v, D}, d = D;
    const struct qrn_tensor gate = heads_of(joint_test_filled(j, 2.0, 2, wide), z->n_v);
    struct qrn_rms_norm_args *a = &c->gated;
    c->has_norm = true;
    c->chunk.out = heads_of(joint_test_poison(j, QRN_F32, 2, wide), z->n_v);
    *a = (struct qrn_rms_norm_args){.x = c->chunk.out, .eps = 1e-6f};
    if (!(z->normed & NO_WEIGHT)) a->weight = joint_test_filled(j, 1.0, 1, &d);
    if (!(z->normed & NO_GATE)) a->gate = gate;
    if (z->normed & OUT) a->out = joint_test_poison(j, QRN_F32, 3, shape);
    if (z->normed & IN_PLACE) a->out = a->x;
    if (z->normed & OVER_GATE) a->out = a->gate;
    if (z->normed & ROUNDED) a->rounded = joint_test_poison(j, z->rounded, 3, shape);
    spoil_norm(j, z, T, c);
}

static void make(struct joint_test *j, const struct row *z, struct call *c)
{
    int64_t T = 0;
    for (int s = 0; s < MAX_SEQS; s++) T += z->lengths[s];
    const int64_t n = (2 * z->n_k + z->n_v) * D, taps[] = {n, 4};
    /* x, z, a and b as a product leaves them, side by side; the output wider than it need be */
    const struct qrn_tensor all =
        joint_test_filled(j, 1.0, 2, (const int64_t[]){T, n + 4 * z->n_v});
    const struct qrn_tensor wide = joint_test_poison(j, QRN_F32, 2, (const int64_t[]){T, n + 8});
    const struct qrn_tensor out = qrn_tensor_slice(wide, 1, 0, n);
    const struct qrn_tensor qk =
        qrn_tensor_split_last(qrn_tensor_slice(out, 1, 0, 2 * z->n_k * D), 2 * z->n_k, D);
    const struct qrn_tensor weight = joint_test_filled(j, 0.5, 2, taps);
    *c = (struct call){
        .conv = {.x = qrn_tensor_slice(all, 1, 0, n),
                 .weight = weight,
                 .out = out,
                 .n_history = z->n_history},
        .norm = {.x = qk, .out = qk, .eps = 1e-6f, .scale = z->n_k == 2 ? 0.5f : 0.0f},
        .gates = {.a = qrn_tensor_slice(all, 1, n, z->n_v),
                  .b = qrn_tensor_slice(all, 1, n + z->n_v, z->n_v),
                  .a_scale = joint_test_filled(j, 0.5, 1, &z->n_v),
                  .dt_bias = joint_test_filled(j, 1.0, 1, &z->n_v),
                  .g = joint_test_poison(j, QRN_F32, 2, (const int64_t[]){T, z->n_v}),
                  .beta = joint_test_poison(j, QRN_F32, 2, (const int64_t[]){T, z->n_v})}};
    if (z->gates != THERE) make_product(j, z, T, c);
    float *a_scale = joint_test_at(j, c->gates.a_scale.data);
    for (int64_t h = 0; h < z->n_v; h++) a_scale[h] = a_scale[h] > 0.0f ? -a_scale[h] : a_scale[h];
    if (z->oddity == GATES_IN_PLACE) c->gates.g = c->gates.a, c->gates.beta = c->gates.b;
    if (z->oddity == GATES_OVER_V) c->gates.g = qrn_tensor_slice(out, 1, 2 * z->n_k * D, z->n_v);
    if (z->oddity == NORM_OF_K) c->norm.x = c->norm.out = qrn_tensor_slice(qk, 1, 0, z->n_k);
    if (z->oddity == NORM_ELSEWHERE) c->norm.out = joint_test_poison(j, QRN_F32, 3, qk.shape);
    c->chunk = (struct qrn_gdn_open_chunk_args){
        .q = qrn_tensor_slice(qk, 1, 0, z->n_k),
        .k = qrn_tensor_slice(qk, 1, z->n_k, z->n_k),
        .v = qrn_tensor_split_last(qrn_tensor_slice(out, 1, 2 * z->n_k * D, z->n_v * D), z->n_v, D),
        .g = c->gates.g,
        .beta = c->gates.beta,
        .out = joint_test_poison(j, QRN_F32, 3, (const int64_t[]){T, z->n_v, D}),
        .scale = 0.09f,
        .head_map = z->map,
        .acts = z->rounds ? QRN_ACT_BF16 : QRN_ACT_F32,
        .settled = z->n_k == 2,
        .drops_inputs = z->drops};
    if (z->drops)
        c->over = (struct qrn_cast_args){
            .x = joint_test_filled(j, 1.0, 2, (const int64_t[]){T, n + 8}), .out = wide};
    if (z->normed) make_norm(j, z, T, c);
    make_sequences(j, z, c);
}

static void run_rows_in(size_t n_bytes, const struct row *all, size_t n,
                        const char *n_multiprocessors)
{
    struct joint_test j;
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1), 0);
    joint_test_open_bytes(&j, 17, n_bytes);
    for (size_t i = 0; i < n; i++) {
        struct call c;
        make(&j, &all[i], &c);
        joint_test_run(&j, record, &c, all[i].n_saved, all[i].why);
    }
    joint_test_close(&j);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

static void run_rows(const struct row *all, size_t n, const char *n_multiprocessors)
{
    run_rows_in((size_t)48 << 20, all, n, n_multiprocessors);
}

static void test_rows(void **state)
{
    (void)state;
    run_rows(rows, sizeof rows / sizeof *rows, "48");
}

static void test_normed(void **state)
{
    (void)state;
    run_rows(normed_rows, sizeof normed_rows / sizeof *normed_rows, "132");
}

static void test_prompts(void **state)
{
    static const char *const multiprocessors[] = {"4", "40"};
    (void)state;
    for (int i = 0; i < (op_test_gpu_is_real() ? 1 : 2); i++)
        run_rows(prompt_rows, sizeof prompt_rows / sizeof *prompt_rows, multiprocessors[i]);
}

/* Behind a product that lets the next launch's blocks begin some sequences are a block's. */
static void test_beside(void **state)
{
    enum { N_SEQS = 45, N = 8456, K = 64 };
    struct row z = {HEADS(1, 3, BLOCK), .n_saved = INPUTS, .why = "beside a product"};
    struct joint_test j;
    struct call c;
    (void)state;
    for (int i = 0; i < N_SEQS; i++) z.lengths[i] = 1, z.positions[i] = 7 * i;
    z.lengths[3] = 0;
    z.lengths[42] = 2;
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", "132", 1), 0);
    joint_test_open(&j, 17);
    make(&j, &z, &c);
    c.has_product = true;
    c.product = (struct qrn_matmul_args){
        .w = joint_bf16(&j, N, K),
        .x = joint_test_filled(&j, 1.0, 2, (const int64_t[]){N_SEQS, K}),
        .out = joint_test_poison(&j, QRN_F32, 2, (const int64_t[]){N_SEQS, N}),
        .activation = QRN_ACT_BF16,
        .any_order = true};
    joint_test_run(&j, record, &c, z.n_saved, z.why);
    joint_test_close(&j);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

static void test_behind(void **state)
{
    (void)state;
    run_rows(behind_rows, sizeof behind_rows / sizeof *behind_rows, "10");
    run_rows(turns_rows, sizeof turns_rows / sizeof *turns_rows, "3");
    run_rows_in((size_t)96 << 20, far_behind_rows, sizeof far_behind_rows / sizeof *far_behind_rows,
                "132");
}

/* Copies and barriers that do not count on one warp's being ahead of another. */
static void test_slow_warps(void **state)
{
    static const char *const warps[] = {"0", "1", "2", "3"};
    (void)state;
    if (op_test_gpu_is_real()) skip();
    for (size_t i = 0; i < sizeof warps / sizeof *warps; i++) {
        setenv("QRN_EMULATED_SLOW_WARP", warps[i], 1);
        run_rows(rows, sizeof rows / sizeof *rows, "48");
        run_rows(normed_rows, sizeof normed_rows / sizeof *normed_rows, "132");
        unsetenv("QRN_EMULATED_SLOW_WARP");
    }
    setenv("QRN_EMULATED_SLOW_WARP", "9", 1); /* which norms, where there are more */
    run_rows(behind_rows, sizeof behind_rows / sizeof *behind_rows, "10");
    run_rows(turns_rows, sizeof turns_rows / sizeof *turns_rows, "3");
    unsetenv("QRN_EMULATED_SLOW_WARP");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_normed),
        cmocka_unit_test(test_prompts), cmocka_unit_test(test_beside),
        cmocka_unit_test(test_behind),  cmocka_unit_test(test_slow_warps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
