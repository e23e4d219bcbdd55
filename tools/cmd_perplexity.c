/* SPDX-License-Identifier: MIT
 * quern perplexity: how well a model predicts a text, by the rule of llama-perplexity: windows of c
 * tokens, each from an empty state; the logits after tokens c/2 .. c - 2 of a window are scored on
 * the token that follows. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "json_out.h"
#include "open_model.h"
#include "progress.h"
#include "report.h"

#define ROWS 64 /* of logits at once */

struct score {
    int64_t n;
    double sum, sum_of_squares; /* of -log p */
};

struct measurement {
    struct qrn_model *model;
    int64_t vocab_size, window, n_windows;
    const int32_t *tokens;
    float *logits; /* [ROWS][vocab_size] */
    struct score score;
};

/* -log softmax(logits)[token] */
static double surprise(const float *logits, int64_t vocab_size, int32_t token)
{
    float most = logits[0];
    for (int64_t i = 1; i < vocab_size; i++)
        if (logits[i] > most) most = logits[i];
    double sum = 0.0;
    for (int64_t i = 0; i < vocab_size; i++) sum += exp((double)logits[i] - (double)most);
    return log(sum) + (double)most - (double)logits[token];
}

static double mean(const struct score *s)
{
    return s->sum / (double)s->n;
}

/* Of the perplexity. */
static double standard_error(const struct score *s)
{
    const double variance = s->sum_of_squares / (double)s->n - mean(s) * mean(s);
    if (s->n < 2 || !(variance > 0.0)) return 0.0;
    return exp(mean(s)) * sqrt(variance / (double)(s->n - 1));
}

static enum qrn_status append(struct measurement *m, struct qrn_seq *seq, const int32_t *tokens,
                              int64_t n, enum qrn_logits want, struct qrn_error *err)
{
    struct qrn_append a = {.seq = seq,
                           .tokens = tokens,
                           .n_tokens = n,
                           .want = want,
                           .logits = want == QRN_LOGITS_NONE ? NULL : m->logits};
    return qrn_model_append(m->model, &a, 1, interrupt_requested, NULL, err);
}

static enum qrn_status score_window(struct measurement *m, struct qrn_seq *seq,
                                    const int32_t *tokens, struct qrn_error *err)
{
    const int64_t first = m->window / 2;
    QRN_TRY(append(m, seq, tokens, first, QRN_LOGITS_NONE, err));
    for (int64_t t = first; t < m->window - 1; t += ROWS) {
        const int64_t n = m->window - 1 - t < ROWS ? m->window - 1 - t : ROWS;
        QRN_TRY(append(m, seq, tokens + t, n, QRN_LOGITS_ALL, err));
        for (int64_t i = 0; i < n; i++) {
            const double s =
                surprise(m->logits + i * m->vocab_size, m->vocab_size, tokens[t + i + 1]);
            m->score.n++;
            m->score.sum += s;
            m->score.sum_of_squares += s * s;
        }
    }
    return QRN_OK;
}

static int score_windows(struct measurement *m)
{
    enum qrn_status s = QRN_OK;
    struct qrn_error err;
    progress_begin("perplexity");
    for (int64_t w = 0; w < m->n_windows && s == QRN_OK; w++) {
        struct qrn_seq *seq;
        s = qrn_seq_create(m->model, NULL, &seq, &err);
        if (s != QRN_OK) break;
        s = score_window(m, seq, m->tokens + w * m->window, &err);
        qrn_seq_destroy(seq);
        if (s != QRN_OK) break;
        char text[80];
        snprintf(text, sizeof text, "%.4f [%" PRId64 "/%" PRId64 "]", exp(mean(&m->score)), w + 1,
                 m->n_windows);
        progress_show((double)(w + 1) / (double)m->n_windows, text);
    }
    progress_end();
    return s == QRN_OK ? EXIT_OK : fail_with(&err);
}

static int print_score(const struct options *o, const struct measurement *m)
{
    const struct score *s = &m->score;
    if (o->json)
        return json_out(json_pack("{s:f, s:f, s:f, s:I, s:I, s:I}", "perplexity", exp(mean(s)),
                                  "standard_error", standard_error(s), "mean_nll", mean(s), "ctx",
                                  (json_int_t)m->window, "windows", (json_int_t)m->n_windows,
                                  "scored", (json_int_t)s->n));
    printf("perplexity %.4f +/- %.4f (%" PRId64 " tokens scored in %" PRId64 " windows of %" PRId64
           ")\n",
           exp(mean(s)), standard_error(s), s->n, m->n_windows, m->window);
    return EXIT_OK;
}

static int measure(const struct options *o, const struct opened *opened,
                   const struct qrn_token_list *tokens)
{
    struct measurement m = {.model = opened->model,
                            .vocab_size = opened->info->vocab_size,
                            .window = o->window,
                            .tokens = tokens->ids,
                            .n_windows = (int64_t)tokens->n_ids / o->window};
    if (m.n_windows == 0)
        return fail("the text has %zu tokens, fewer than a window of %" PRId64, tokens->n_ids,
                    o->window);
    m.logits = malloc(sizeof(float) * ROWS * (size_t)m.vocab_size);
    int status = m.logits ? score_windows(&m) : fail("out of memory");
    if (status == EXIT_OK) status = print_score(o, &m);
    free(m.logits);
    return status;
}

int cmd_perplexity(const struct options *o)
{
    if (!o->file) return fail_usage("perplexity", "wants --file FILE");
    struct opened opened = {.model = NULL};
    struct qrn_token_list tokens = {0};
    char *text = NULL;
    size_t n_text;
    int status = prompt_text(o, NULL, &text, &n_text);
    if (status == EXIT_OK) status = open_model(o, &opened);
    if (status == EXIT_OK) status = encode_text(&opened, text, n_text, &tokens);
    if (status == EXIT_OK) status = measure(o, &opened, &tokens);
    close_model(&opened);
    qrn_token_list_free(&tokens);
    free(text);
    return status;
}
