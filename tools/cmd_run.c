/* SPDX-License-Identifier: MIT
 * quern run: continue a text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "open_model.h"
#include "report.h"
#include "stop_filter.h"

#define DEFAULT_PROMPT "Once upon a time"

struct run {
    const struct options *options;
    struct opened opened;
    struct qrn_seq *seq;
    struct qrn_detokenizer *detokenizer;
    struct stop_filter filter;
    int32_t next; /* the token chosen to follow */
    int64_t n_prompt, prompt_ns;
    int64_t n_made;               /* tokens chosen */
    int64_t n_decoded, decode_ns; /* steps of one token, and their time with choosing */
    bool full;                    /* the context is */
    char last_byte;               /* written to standard output */
};

static void show(struct run *r, struct qrn_span text)
{
    if (text.n_bytes == 0) return;
    fwrite(text.bytes, 1, text.n_bytes, stdout);
    fflush(stdout);
    r->last_byte = text.bytes[text.n_bytes - 1];
}

/* Feeds tokens and chooses the one that follows. */
static enum qrn_status feed(struct run *r, const int32_t *tokens, int64_t n_tokens,
                            struct qrn_error *err)
{
    const struct options *o = r->options;
    const struct qrn_sampling sampling = {
        .temperature = (float)o->temp,
        .top_k = (int32_t)o->top_k,
        .top_p = (float)o->top_p,
        .min_p = (float)o->min_p,
        .repeat_penalty = (float)o->repeat_penalty,
        .presence_penalty = (float)o->presence_penalty,
        .frequency_penalty = (float)o->frequency_penalty,
        .n_penalised = o->repeat_last_n,
        .seed = (uint64_t)o->seed,
    };
    struct qrn_append append = {.seq = r->seq,
                                .tokens = tokens,
                                .n_tokens = n_tokens,
                                .sampling = &sampling,
                                .goes_on = o->predict < 0 || r->n_made + 1 < o->predict};
    const enum qrn_status s =
        qrn_model_append(r->opened.model, &append, 1, interrupt_requested, NULL, err);
    r->next = append.next;
    return s;
}

static bool is_end(const struct run *r, int32_t token)
{
    size_t n;
    const int32_t *ends = qrn_model_end_tokens(r->opened.model, &n);
    for (size_t i = 0; i < n; i++)
        if (token == ends[i]) return true;
    return n == 0 && token == qrn_tokenizer_eos(qrn_model_tokenizer(r->opened.model));
}

/* Shows and feeds what was chosen until something ends the text. */
static int generate(struct run *r)
{
    const struct options *o = r->options;
    struct qrn_error err;
    while (!interrupted() && (o->predict < 0 || r->n_made < o->predict)) {
        const int64_t begin = now_ns();
        const int32_t token = r->next;
        if (is_end(r, token)) break;
        r->n_made++;
        struct qrn_span text;
        if (qrn_detokenizer_push(r->detokenizer, token, &text, &err) != QRN_OK)
            return fail_with(&err);
        const enum stop_result stop = stop_filter_push(&r->filter, text, &text);
        if (stop == STOP_NO_MEMORY) return fail("out of memory");
        show(r, text);
        if (stop == STOP_FOUND) return EXIT_OK;
        if (r->n_made == o->predict) break;
        const enum qrn_status s = feed(r, &token, 1, &err);
        if (s == QRN_ERR_CANCELLED) break;
        if (s == QRN_ERR_LIMIT) {
            r->full = true;
            break;
        }
        if (s != QRN_OK) return fail_with(&err);
        r->n_decoded++;
        r->decode_ns += now_ns() - begin;
    }
    show(r, stop_filter_finish(&r->filter));
    show(r, qrn_detokenizer_finish(r->detokenizer));
    return interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

static double per_second(int64_t n, int64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0.0;
}

static void print_speed(const struct run *r)
{
    if (r->last_byte != '\n' && isatty(STDOUT_FILENO)) putchar('\n');
    fflush(stdout);
    fprintf(stderr,
            "quern: prompt %" PRId64 " tokens, %.1f tokens/s; text %" PRId64
            " tokens, %.1f tokens/s; seed %" PRId64 "%s\n",
            r->n_prompt, per_second(r->n_prompt, r->prompt_ns), r->n_made,
            per_second(r->n_decoded, r->decode_ns), r->options->seed,
            r->full ? "; the context is full" : "");
}

/* With the model open and the prompt's tokens at hand. */
static int run_tokens(struct run *r, const struct qrn_token_list *tokens, struct qrn_span prompt)
{
    struct qrn_error err;
    if (qrn_seq_create(r->opened.model, NULL, &r->seq, &err) != QRN_OK ||
        qrn_detokenizer_create(qrn_model_tokenizer(r->opened.model), 0, &r->detokenizer, &err) !=
            QRN_OK)
        return fail_with(&err);
    show(r, prompt);
    r->n_prompt = (int64_t)tokens->n_ids;
    const int64_t begin = now_ns();
    if (feed(r, tokens->ids, r->n_prompt, &err) != QRN_OK) return fail_with(&err);
    r->prompt_ns = now_ns() - begin;
    const int status = generate(r);
    if (status != EXIT_FAILED) print_speed(r);
    return status;
}

int cmd_run(const struct options *o)
{
    struct run r = {.options = o, .filter.stops = &o->stop};
    struct qrn_token_list tokens = {0};
    char *prompt = NULL;
    size_t n_prompt;
    int status = prompt_text(o, DEFAULT_PROMPT, &prompt, &n_prompt);
    if (status == EXIT_OK) status = open_model(o, &r.opened);
    if (status == EXIT_OK) status = encode_text(&r.opened, prompt, n_prompt, &tokens);
    if (status == EXIT_OK && tokens.n_ids == 0) status = fail("the prompt is empty");
    if (status == EXIT_OK) status = run_tokens(&r, &tokens, (struct qrn_span){prompt, n_prompt});
    qrn_detokenizer_free(r.detokenizer);
    qrn_seq_destroy(r.seq);
    close_model(&r.opened);
    stop_filter_free(&r.filter);
    qrn_token_list_free(&tokens);
    free(prompt);
    return status;
}
