/* SPDX-License-Identifier: MIT
 * The shape of a model, whatever file it came from: what config.json and GGUF metadata both say. */
#ifndef QUERN_MODEL_CONFIG_H
#define QUERN_MODEL_CONFIG_H

#include <stdbool.h>
#include <quern/host.h>

struct qrn_gguf;

enum qrn_architecture { QRN_QWEN35, QRN_QWEN35MOE, QRN_QWEN3NEXT };

#define QRN_CONFIG_MAX_EOS 16

enum qrn_rope_scaling_kind { QRN_ROPE_SCALING_NONE, QRN_ROPE_SCALING_YARN };

/* How a directory's weights are stored; GGUF types its tensors itself and is QUANT_NONE. */
enum qrn_quant_kind {
    QRN_QUANT_NONE,
    QRN_QUANT_MLX, /* NAME.weight u32, NAME.scales, NAME.biases */
    QRN_QUANT_FP8  /* NAME.weight F8_E4M3, NAME.weight_scale_inv per tile of fp8_rows x fp8_cols */
};

enum qrn_mlx_mode { QRN_MLX_AFFINE, QRN_MLX_MXFP4, QRN_MLX_NVFP4, QRN_MLX_MXFP8 };

struct qrn_mlx_quant {
    int group_size; /* 0: the module is not quantised */
    int bits;
    enum qrn_mlx_mode mode;
};

struct qrn_mlx_override {
    char *path; /* of the module, without ".weight" */
    struct qrn_mlx_quant quant;
};

struct qrn_model_config {
    enum qrn_architecture architecture;
    int64_t d_model, vocab_size; /* vocab_size: rows of the embedding, padding rows included */
    int64_t context_length;
    int64_t n_layers;     /* without the MTP layers */
    int64_t n_mtp_layers; /* that the file claims; they follow the main layers in GGUF */
    double rms_eps;
    bool tied_embeddings; /* the output matrix is the embedding */

    /* attention layers */
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t n_rot; /* dims that rope turns, from 0; even, <= head_dim */
    double rope_theta;
    int64_t rope_sections[4]; /* of multi-axis rope, in pairs; all 0: plain rope */
    enum qrn_rope_scaling_kind rope_scaling;
    struct {
        double factor, beta_fast, beta_slow;
        double attention_factor; /* what cos and sin are multiplied by, defaults resolved */
        int64_t original_context;
        bool truncate; /* correction range rounded to whole dims */
    } yarn;            /* set if rope_scaling is YARN */

    /* linear (gated delta net) layers */
    int64_t n_k_heads, n_v_heads, d_k, d_v, conv_kernel; /* n_v_heads % n_k_heads == 0 */
    bool *layer_is_linear;                               /* [n_layers], owned */
    /* Value head h reads key head h % n_k_heads if true (GGUF of qwen35 and qwen35moe), else
     * h / (n_v_heads / n_k_heads). */
    bool heads_tiled;

    /* MLP: dense if n_experts is 0 */
    int64_t d_ff;
    int64_t n_experts, n_experts_used, d_ff_expert, d_ff_shared;
    bool norm_topk; /* weights of the chosen experts are divided by their sum */

    int32_t eos[QRN_CONFIG_MAX_EOS]; /* every id that ends a text */
    int n_eos;
    int32_t bos; /* or -1 */

    enum qrn_quant_kind quant;
    struct qrn_mlx_quant mlx; /* of modules without an override; only of those with scales */
    struct qrn_mlx_override *overrides; /* sorted by path */
    size_t n_overrides;
    int64_t fp8_rows, fp8_cols;

    struct qrn_allocator allocator;
};

/* Reads config.json (n bytes of text) and, if not NULL, generation_config.json, of which only the
 * end tokens are taken.  Knows qwen3_5, qwen3_5_moe (with text_config or flat) and qwen3_next; keys
 * that are absent have the defaults of those classes.  On failure *config is zeroed.
 * Errors: QRN_ERR_FORMAT (not JSON, a value of a wrong type or out of range), QRN_ERR_UNSUPPORTED
 * (another model, or a variant that cannot be run), QRN_ERR_MEMORY. */
enum qrn_status qrn_config_from_hf(const char *text, size_t n_text, const char *generation,
                                   size_t n_generation, const struct qrn_host *host,
                                   struct qrn_model_config *config, struct qrn_error *err);

/* Reads the metadata and the tensor list of a GGUF file.  Errors: as above. */
enum qrn_status qrn_config_from_gguf(const struct qrn_gguf *gguf, const struct qrn_host *host,
                                     struct qrn_model_config *config, struct qrn_error *err);

void qrn_config_free(struct qrn_model_config *config); /* zeroed structs are allowed */

/* How MLX stores the module of that path ("model.layers.0.mlp.gate"). */
struct qrn_mlx_quant qrn_config_mlx_quant(const struct qrn_model_config *config, const char *path);

#endif
