/* SPDX-License-Identifier: MIT
 * quern bench of a model: prompts and generations of random tokens, timed. */
#include "bench_model.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "clock.h"
#include "listing.h"
#include "progress.h"
#include "report.h"

struct bench {
    struct bench_subject subject;
    struct opened opened;
    float *logits;   /* [vocab_size] */
    int32_t *tokens; /* [n_tokens] random ones, as many as the longest append */
    int64_t n_tokens;
    int64_t *samples_ns; /* [repetitions] */
    bool printed;        /* a row */
};

static int64_t largest(const struct int_list *list)
{
    int64_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i] > n) n = list->at[i];
    return n;
}

/* xorshift64: the same tokens each time. */
static void fill_tokens(int32_t *tokens, int64_t n, int64_t vocab_size)
{
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        tokens[i] = (int32_t)(x % (uint64_t)vocab_size);
    }
}

static enum qrn_status append(struct bench *b, struct qrn_seq *seq, int64_t first, int64_t n,
                              enum qrn_logits want, struct qrn_error *err)
{
    struct qrn_append a = {.seq = seq,
                           .tokens = b->tokens + first,
                           .n_tokens = n,
                           .want = want,
                           .logits = want == QRN_LOGITS_NONE ? NULL : b->logits};
    return qrn_model_append(b->opened.model, &a, 1, interrupt_requested, NULL, err);
}

/* Continues a copy of base; the copy and its end are not timed. */
static enum qrn_status time_once(struct bench *b, const struct qrn_seq *base, int64_t n_prompt,
                                 int64_t n_gen, int64_t *ns, struct qrn_error *err)
{
    struct qrn_seq *seq;
    QRN_TRY(qrn_seq_fork(base, &seq, err));
    const int64_t begin = now_ns();
    enum qrn_status s = append(b, seq, 0, n_prompt, QRN_LOGITS_LAST, err);
    for (int64_t i = 0; i < n_gen && s == QRN_OK; i++)
        s = append(b, seq, i, 1, QRN_LOGITS_LAST, err);
    *ns = now_ns() - begin;
    qrn_seq_destroy(seq);
    return s;
}

static enum qrn_status time_all(struct bench *b, int64_t n_prompt, int64_t n_gen, int64_t n_depth,
                                struct qrn_error *err)
{
    struct qrn_seq *base;
    QRN_TRY(qrn_seq_create(b->opened.model, NULL, &base, err));
    enum qrn_status s = append(b, base, 0, n_depth, QRN_LOGITS_NONE, err);
    int64_t warm_up;
    if (s == QRN_OK) s = time_once(b, base, n_prompt, n_gen > 0 ? 1 : 0, &warm_up, err);
    const int64_t n = b->subject.options->repetitions;
    for (int64_t i = 0; i < n && s == QRN_OK; i++) {
        s = time_once(b, base, n_prompt, n_gen, &b->samples_ns[i], err);
        progress_show((double)(i + 1) / (double)n, NULL);
    }
    qrn_seq_destroy(base);
    return s;
}

static int run_test(struct bench *b, int64_t n_prompt, int64_t n_gen, int64_t n_depth)
{
    if (n_prompt + n_gen == 0) return EXIT_OK;
    char label[80];
    snprintf(label, sizeof label, "%s%lld @ d%lld", n_gen > 0 ? "tg" : "pp",
             (long long)(n_prompt + n_gen), (long long)n_depth);
    struct qrn_error err;
    progress_begin(label);
    const enum qrn_status s = time_all(b, n_prompt, n_gen, n_depth, &err);
    progress_end();
    if (s != QRN_OK) return fail_with(&err);
    const struct bench_test test = {.n_prompt = n_prompt,
                                    .n_gen = n_gen,
                                    .n_depth = n_depth,
                                    .samples_ns = b->samples_ns,
                                    .n_samples = b->subject.options->repetitions};
    const int status = bench_print_test(&b->subject, &test, !b->printed);
    b->printed = true;
    fflush(stdout);
    return status;
}

static int run_tests(struct bench *b)
{
    const struct options *o = b->subject.options;
    int status = EXIT_OK;
    bench_print_begin(&b->subject);
    for (size_t d = 0; d < o->n_depth.n; d++) {
        for (size_t i = 0; i < o->n_prompt.n && status == EXIT_OK; i++)
            status = run_test(b, o->n_prompt.at[i], 0, o->n_depth.at[d]);
        for (size_t i = 0; i < o->n_gen.n && status == EXIT_OK; i++)
            status = run_test(b, 0, o->n_gen.at[i], o->n_depth.at[d]);
    }
    bench_print_end(&b->subject);
    return status;
}

/* "qwen35 11M Q4_K_M", with the types in memory where the files do not name theirs. */
static void name_type(struct bench *b, const struct listing *listing)
{
    const struct qrn_model_info *info = b->opened.info;
    const double n = (double)info->n_parameters;
    const char *type = listing_file_type(listing), *weights = strstr(info->bits, "weights ");
    char own[64] = "";
    if (!type) {
        if (weights) snprintf(own, sizeof own, "%s", weights + strlen("weights "));
        for (char *c = own; *c; c++) *c = (char)toupper((unsigned char)*c);
        type = own;
    }
    snprintf(b->subject.type, sizeof b->subject.type, n < 1e9 ? "%s %.0fM %s" : "%s %.1fB %s",
             info->architecture, n < 1e9 ? n / 1e6 : n / 1e9, type);
}

static int describe(struct bench *b, bool verbose)
{
    const struct qrn_host host = {.logger = report_logger(verbose)};
    struct listing listing;
    struct qrn_error err;
    const enum qrn_status s = listing_open(b->opened.path, &host, &listing, &err);
    if (s == QRN_OK) {
        name_type(b, &listing);
        b->subject.size = listing_tensor_bytes(&listing);
    }
    listing_close(&listing);
    return s == QRN_OK ? EXIT_OK : fail_with(&err);
}

static int prepare(struct bench *b, const struct options *o)
{
    const int64_t vocab_size = b->opened.info->vocab_size;
    b->logits = malloc(sizeof *b->logits * (size_t)vocab_size);
    b->tokens = malloc(sizeof *b->tokens * (size_t)(b->n_tokens + 1));
    b->samples_ns = malloc(sizeof *b->samples_ns * (size_t)o->repetitions);
    if (!b->logits || !b->tokens || !b->samples_ns) return fail("out of memory");
    fill_tokens(b->tokens, b->n_tokens, vocab_size);
    return describe(b, o->verbose);
}

int bench_model(const struct options *given)
{
    struct options o = *given;
    const int64_t n_prompt = largest(&o.n_prompt), n_gen = largest(&o.n_gen);
    const int64_t n_depth = largest(&o.n_depth), n_test = n_prompt > n_gen ? n_prompt : n_gen;
    if (o.ctx == 0) o.ctx = n_depth + n_test;
    struct bench b = {.subject.options = &o, .n_tokens = n_depth > n_test ? n_depth : n_test};
    b.subject.opened = &b.opened;
    if (n_test == 0) return fail_usage("bench", "--n-prompt and --n-gen are both 0");
    int status = open_model(&o, &b.opened);
    if (status == EXIT_OK) status = prepare(&b, &o);
    if (status == EXIT_OK) status = run_tests(&b);
    close_model(&b.opened);
    free(b.samples_ns);
    free(b.tokens);
    free(b.logits);
    return status;
}
