/* SPDX-License-Identifier: MIT
 * One forward step: four tokens in, the most likely next token out.   one_step [MODEL] */
#include <quern/quern.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const int32_t tokens[] = {1, 2, 3, 4};
    struct qrn_model_options options = {.path = argc > 1 ? argv[1] : "models/fairy"};
    struct qrn_model *model;
    struct qrn_seq *seq;
    struct qrn_error err;
    if (qrn_device_open(NULL, &options.device, &err) != QRN_OK ||
        qrn_model_open(&options, &model, &err) != QRN_OK ||
        qrn_seq_create(model, NULL, &seq, &err) != QRN_OK)
        return puts(err.text), 1;
    const int32_t vocab_size = (int32_t)qrn_model_info(model)->vocab_size;
    float *logits = malloc((size_t)vocab_size * sizeof *logits);
    struct qrn_append a = {
        .seq = seq, .tokens = tokens, .n_tokens = 4, .want = QRN_LOGITS_LAST, .logits = logits};
    if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) return puts(err.text), 1;
    int32_t best = 0;
    for (int32_t i = 1; i < vocab_size; i++) best = logits[i] > logits[best] ? i : best;
    printf("token %d, logit %.4f, bits id \"%s\"\n", best, (double)logits[best],
           qrn_model_bits(model));
    free(logits);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    qrn_device_close(options.device);
    return 0;
}
