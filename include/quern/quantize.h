/* SPDX-License-Identifier: MIT
 * Writing a model as a GGUF file of another type.
 *
 *     const struct qrn_quantize_options o = {
 *         .path = "models/fairy", .out_path = "fairy-Q4_K_M.gguf", .type = "Q4_K_M"};
 *     qrn_quantize(&o, &err); */
#ifndef QUERN_QUANTIZE_H
#define QUERN_QUANTIZE_H

#include <quern/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Zero but for path (or source), out_path and type: the defaults. */
struct qrn_quantize_options {
    const char *path; /* a .gguf file (the first of a split set), or a directory in the layout of
                         Hugging Face or MLX; must stay unchanged during the call */
    const struct qrn_source *source; /* if not NULL: files come from here, and path is the name of a
                                        GGUF file in it, or NULL for a directory's files */
    struct qrn_host host;
    const char *out_path; /* replaced if it exists; another file than any that is read */
    const char *type;     /* as qrn_quantize_type lists them: "F16", "Q8_0", "Q4_K_M"; any case */
    bool pure;            /* every matrix gets the base type of a mixture */
    qrn_progress_fn progress; /* may be NULL; returning false cancels */
    void *progress_user;
};

/**
 * Writes out_path: GGUF version 3 with everything that the model's files say (configuration, tokenizer,
 * tensors under their GGUF names), each tensor with the type and bytes that llama-quantize without an
 * importance matrix gives it.  Tensors that are quantised already are decoded first.  The file
 * appears whole or not at all.  Any thread.
 *
 * Errors: QRN_ERR_ARGUMENT (options, path, out_path or type missing; a type that is not listed; out_path
 *         is a file that is read), QRN_ERR_IO, QRN_ERR_FORMAT (the text names file, tensor or key),
 *         QRN_ERR_UNSUPPORTED (another architecture, a tensor type that cannot be decoded),
 *         QRN_ERR_MEMORY, QRN_ERR_CANCELLED.
 */
QRN_API enum qrn_status qrn_quantize(const struct qrn_quantize_options *options,
                                     struct qrn_error *err);

/** The i-th type that can be written, in the order a list should show them; NULL past the end.
 * Any thread. */
QRN_API const char *qrn_quantize_type(size_t i);

#ifdef __cplusplus
}
#endif
#endif
