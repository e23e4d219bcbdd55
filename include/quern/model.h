/* SPDX-License-Identifier: MIT
 * Models and their sequences: open a file, append tokens, read logits.
 *
 * One sequence, one set of bits: the logits after token t are a function of tokens 0 .. t and of the
 * model's bits id (qrn_model_bits) alone.  How tokens were cut into calls, what else was in a call,
 * the number of threads, fork, rollback, snapshot and restore never change a bit.
 *
 * Thread contract: a model may be used from any thread; its steps are done one at a time.  A sequence
 * belongs to one thread at a time; different sequences of a model may be used side by side.  What a
 * function returns by pointer lives as long as the object that it was asked of. */
#ifndef QUERN_MODEL_H
#define QUERN_MODEL_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif

struct qrn_model;
struct qrn_seq;
struct qrn_snapshot;
struct qrn_tokenizer;

/* --- opening --- */

enum qrn_kv_type {
    QRN_KV_DEFAULT, /* f16, or f32 when exact is set */
    QRN_KV_F16,
    QRN_KV_F32
};

/** Called while a model is opened, with 0 <= done <= 1.  Returning false cancels. */
typedef bool (*qrn_progress_fn)(void *user, double done);

/** Zero but for path (or source and name): the defaults. */
struct qrn_model_options {
    const char *path; /* a .gguf file (the first of a split set), or a directory in the layout of
                         Hugging Face or MLX; must stay unchanged while the model is open */
    const struct qrn_source *source; /* if not NULL: files come from here, and path is the name of a
                                        GGUF file in it, or NULL for a directory's files */
    struct qrn_device *device;       /* required; must outlive the model */
    struct qrn_device *host_device;  /* NULL: all is on device.  A CPU, which must outlive the model:
                                        it has the embedding and the first layers, device the last
                                        n_device_layers ones and the output matrix; each has what
                                        sequences remember for its layers */
    int64_t n_device_layers; /* with host_device; as many as the model has, or more: all is on device;
                                0: all is on host_device, and device may be NULL */
    struct qrn_host host;
    bool exact; /* float32 activations in products, and a float32 KV cache */
    bool exact_batch; /* the bits of a sequence depend on nothing but its tokens on a GPU too, as
                         they always do on the CPU; prompts take longer there.  Without it many
                         tokens worked on at once are rounded to bf16 for its tensor cores */
    enum qrn_kv_type kv;
    int64_t max_context; /* tokens a sequence may hold; 0: what the model was made for */
    size_t budget_bytes; /* for the states and caches of all sequences together; 0: none */
    int64_t max_batch;   /* tokens worked on at once, 64 .. 8192; 0: 512, on a GPU 2048.  More
                               memory, more speed in prefill, the same bits (exact_batch) */
    bool only_info;      /* read names, shapes and the tokenizer, not the weights: qrn_model_info
                               and the like work, sequences cannot be made (QRN_ERR_STATE) */
    bool direct;         /* call each op by itself instead of recording the step: for tests */
    qrn_progress_fn progress; /* may be NULL */
    void *progress_user;
};

/**
 * Opens a model.  Errors: QRN_ERR_ARGUMENT, QRN_ERR_IO, QRN_ERR_FORMAT (the text names file, tensor or
 * key), QRN_ERR_UNSUPPORTED (another architecture, a tensor type that cannot be decoded),
 * QRN_ERR_MEMORY (of a device that it does not fit on the text says how many layers would),
 * QRN_ERR_CANCELLED, QRN_ERR_DEVICE.
 */
QRN_API enum qrn_status qrn_model_open(const struct qrn_model_options *options,
                                       struct qrn_model **out, struct qrn_error *err);

/** All sequences and snapshots of the model must be gone.  NULL is allowed. */
QRN_API void qrn_model_close(struct qrn_model *model);

/** What is in a model and what it needs. */
struct qrn_model_info {
    const char *architecture; /* "qwen35", "qwen35moe", "qwen3next" */
    const char *format;       /* "gguf", "safetensors", "mlx" */
    const char *bits;         /* the bits id */
    int64_t n_layers, n_attention_layers, d_model, vocab_size, context_length;
    int64_t n_heads, n_kv_heads, head_dim;  /* of attention layers */
    int64_t n_k_heads, n_v_heads, d_k, d_v; /* of Gated DeltaNet layers */
    int64_t conv_kernel, d_ff, n_experts, n_experts_used;
    int64_t n_parameters;
    size_t weight_bytes;         /* as they lie in memory, for all products */
    size_t read_bytes_per_token; /* of weights, in a decode step */
    size_t state_bytes; /* recurrent state of a sequence: S0, once for each chunk edge kept */
    size_t rows_bytes;  /* its open rows */
    size_t history_bytes_per_row; /* of pre-convolution rows; K - 1 + max_rollback of them */
    size_t kv_bytes_per_token;    /* in pages of 64 tokens */
    size_t work_bytes;            /* buffers shared by all sequences */
    int64_t max_batch;            /* tokens worked on at once */
    int64_t n_device_layers; /* layers on the device, with the output matrix */
    size_t device_bytes;     /* of its memory: their weights, buffers and one short sequence */
    int64_t n_layers_fit;    /* how many of them fit in what was free there when the model was opened;
                                all where that cannot be told */
};
QRN_API const struct qrn_model_info *qrn_model_info(const struct qrn_model *model);

/** The bits id: library version, device, options and weight types, as text. */
QRN_API const char *qrn_model_bits(const struct qrn_model *model);

/** NULL when the files hold no tokenizer: everything but text works. */
QRN_API const struct qrn_tokenizer *qrn_model_tokenizer(const struct qrn_model *model);

/** Tokens that end a text, from the files (generation_config and config); *n of them, maybe 0. */
QRN_API const int32_t *qrn_model_end_tokens(const struct qrn_model *model, size_t *n);

/** What all sequences and snapshots use now, and the budget. */
QRN_API struct qrn_pool_stats qrn_model_memory(struct qrn_model *model);

/* --- sequences --- */

struct qrn_seq_options {
    int max_rollback; /* 0 .. 64 tokens that qrn_seq_rollback may take back */
};

/** An empty sequence.  options may be NULL.  Errors: QRN_ERR_ARGUMENT, QRN_ERR_MEMORY, QRN_ERR_LIMIT,
 * QRN_ERR_STATE (the model was opened with only_info). */
QRN_API enum qrn_status qrn_seq_create(struct qrn_model *model,
                                       const struct qrn_seq_options *options, struct qrn_seq **out,
                                       struct qrn_error *err);
QRN_API void qrn_seq_destroy(struct qrn_seq *seq); /* NULL is allowed */

QRN_API int64_t qrn_seq_n_tokens(const struct qrn_seq *seq);
/** The tokens so far; valid until the sequence changes. */
QRN_API const int32_t *qrn_seq_tokens(const struct qrn_seq *seq);
/** How many tokens can be taken back now: up to max_rollback. */
QRN_API int64_t qrn_seq_max_rollback(const struct qrn_seq *seq);

/** A second sequence that continues from the same point; memory is shared until either writes. */
QRN_API enum qrn_status qrn_seq_fork(const struct qrn_seq *seq, struct qrn_seq **out,
                                     struct qrn_error *err);

/** Takes back the last n tokens, as if they had never been appended; takes no time.
 * Errors: QRN_ERR_ARGUMENT (negative), QRN_ERR_STATE (more than qrn_seq_max_rollback). */
QRN_API enum qrn_status qrn_seq_rollback(struct qrn_seq *seq, int64_t n, struct qrn_error *err);

/* --- steps --- */

enum qrn_logits {
    QRN_LOGITS_NONE,
    QRN_LOGITS_LAST, /* after the last token of this append: 1 row */
    QRN_LOGITS_ALL   /* after each token: n_tokens rows */
};

/** How the token that follows is drawn; all 0: the likeliest.  What the numbers mean is said at
 * struct qrn_sample_args (ops_sampling.h); position is the number of tokens before the one that is
 * drawn. */
struct qrn_sampling {
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    float repeat_penalty, presence_penalty, frequency_penalty;
    int64_t n_penalised; /* the last tokens that penalties look at; negative: all */
    uint64_t seed;
};

/** Tokens for one sequence. */
struct qrn_append {
    struct qrn_seq *seq;
    const int32_t *tokens;
    int64_t n_tokens; /* 0 is allowed: nothing happens, and there are no logits */
    enum qrn_logits want;
    float *logits; /* [rows of want][vocab_size]; NULL only with QRN_LOGITS_NONE */
    float *hidden; /* optional: [n_layers + 1][n_tokens][d_model]: what each layer reads (the first
                      the embedding), and the final norm's output; as hidden_states of
                      Hugging Face */
    const struct qrn_sampling *sampling; /* optional: draws the token after the last one, where the
                                            logits are made; they need not be wanted for it */
    bool goes_on; /* the token drawn is to be all of this sequence's next append, with the same
                     sampling: a hint that changes no result.  A GPU may begin with it at once,
                     rather than wait for the host between two tokens.  If it does not come, that
                     token's time is lost, and its memory counts until another step is asked for.
                     Needs QRN_LOGITS_NONE, no hidden, one token, no penalties, the same of all
                     appends of a call; otherwise nothing happens */
    /* results */
    enum qrn_status status; /* of this sequence; the call's own status is the first that failed */
    int64_t n_done;         /* tokens that the sequence took: n_tokens, or fewer when cancelled */
    int32_t next;           /* the token drawn, which is not appended; -1: none */
    float next_probability; /* its own, among those that could be drawn */
};

/** Asked between layers; true stops the step. */
typedef bool (*qrn_cancel_fn)(void *user);

/**
 * Appends tokens to any number of sequences in one step.  A sequence may occur once.  An append that
 * is refused (QRN_ERR_ARGUMENT: a token id out of range, a sequence of another model or twice,
 * sampling that qrn_sample refuses, no logit above -inf to draw from; QRN_ERR_LIMIT: max_context or
 * the budget; QRN_ERR_STATE; QRN_ERR_MEMORY) leaves its sequence as it was and does not disturb the
 * others.  After QRN_ERR_CANCELLED each sequence holds its first n_done new tokens and can go on.
 * cancel may be NULL.
 */
QRN_API enum qrn_status qrn_model_append(struct qrn_model *model, struct qrn_append *appends,
                                         size_t n_appends, qrn_cancel_fn cancel, void *cancel_user,
                                         struct qrn_error *err);

/* --- snapshots --- */

/** The sequence as it is now, kept in memory; it shares what does not change.  Any thread may restore
 * from it. */
QRN_API enum qrn_status qrn_snapshot_take(const struct qrn_seq *seq, struct qrn_snapshot **out,
                                          struct qrn_error *err);
/** A new sequence that continues from there, any number of times. */
QRN_API enum qrn_status qrn_snapshot_restore(const struct qrn_snapshot *snapshot,
                                             struct qrn_seq **out, struct qrn_error *err);
QRN_API void qrn_snapshot_free(struct qrn_snapshot *snapshot); /* NULL is allowed */

/** Writes the sequence to a file, with the model's hash, the bits id and a checksum; the file
 * appears whole or not at all.  Errors: QRN_ERR_IO, QRN_ERR_MEMORY. */
QRN_API enum qrn_status qrn_seq_save(const struct qrn_seq *seq, const char *path,
                                     struct qrn_error *err);

enum qrn_load_flags {
    QRN_LOAD_ANY_BITS = 1 /* also from another bits id, when shapes and types agree */
};
/** A new sequence from a file that qrn_seq_save wrote, in this process or another.  Errors: QRN_ERR_IO,
 * QRN_ERR_FORMAT (damaged), QRN_ERR_MISMATCH (another model, bits id or version of such files),
 * QRN_ERR_LIMIT, QRN_ERR_MEMORY. */
QRN_API enum qrn_status qrn_seq_load(struct qrn_model *model, const char *path, unsigned flags,
                                     struct qrn_seq **out, struct qrn_error *err);

#ifdef __cplusplus
}
#endif
#endif
