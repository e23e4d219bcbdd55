/* SPDX-License-Identifier: MIT
 * Streaming text: 100 tokens, always the likeliest.   stream_text [MODEL [PROMPT]] */
#include <quern/quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
    struct qrn_model_options options = {.path = argc > 1 ? argv[1] : "models/fairy"};
    struct qrn_model *model;
    struct qrn_seq *seq;
    struct qrn_detokenizer *text;
    struct qrn_token_list ids = {0};
    struct qrn_error err;
    if (qrn_device_open(NULL, &options.device, &err) || qrn_model_open(&options, &model, &err) ||
        qrn_seq_create(model, NULL, &seq, &err) ||
        qrn_tokenizer_encode(qrn_model_tokenizer(model), prompt, strlen(prompt), 0, &ids, &err) ||
        qrn_detokenizer_create(qrn_model_tokenizer(model), 0, &text, &err))
        return puts(err.text), 1;
    const struct qrn_sampling likeliest = {0};
    struct qrn_append a = {
        .seq = seq, .tokens = ids.ids, .n_tokens = (int64_t)ids.n_ids, .sampling = &likeliest};
    fputs(prompt, stdout);
    for (int32_t i = 0, next = 0;
         i < 100 && qrn_model_append(model, &a, 1, NULL, NULL, &err) == QRN_OK;
         i++, a.tokens = &next, a.n_tokens = 1) {
        struct qrn_span piece;
        next = a.next;
        if (qrn_detokenizer_push(text, next, &piece, &err) == QRN_OK)
            fwrite(piece.bytes, 1, piece.n_bytes, stdout), fflush(stdout);
    }
    puts("");
    qrn_token_list_free(&ids), qrn_detokenizer_free(text), qrn_seq_destroy(seq),
        qrn_model_close(model), qrn_device_close(options.device);
    return 0;
}
