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
    int32_t *tokens;            /* [n_tokens] random ones, as many as the longest append */
    int64_t n_tokens, n_seqs;   /* the most */
    struct qrn_append *appends; /* [n_seqs] */
    int32_t *drawn;             /* [n_seqs] */
    bool random;                /* tokens are fed, not those that were drawn */
    struct qrn_seq **seqs;
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

static enum qrn_status append(struct bench *b, int64_t n_seqs, struct qrn_error *err)
{
    return qrn_model_append(b->opened.model, b->appends, (size_t)n_seqs, interrupt_requested, NULL,
                            err);
}

static const struct qrn_sampling likeliest;

/* The same first n tokens to each of n_seqs sequences; the token after them is drawn if `draws`. */
static enum qrn_status append_first(struct bench *b, struct qrn_seq *const *seqs, int64_t n_seqs,
                                    int64_t n, bool draws, struct qrn_error *err)
{
    for (int64_t i = 0; i < n_seqs; i++)
        b->appends[i] = (struct qrn_append){.seq = seqs[i],
                                            .tokens = b->tokens,
                                            .n_tokens = n,
                                            .sampling = draws ? &likeliest : NULL};
    return append(b, n_seqs, err);
}

/* A token to each, one after the other: from the first random one on those that are drawn, or random ones. */
static enum qrn_status generate(struct bench *b, int64_t n_gen, int64_t n_seqs,
                                struct qrn_error *err)
{
    enum qrn_status s = QRN_OK;
    for (int64_t t = 0; t < n_gen && s == QRN_OK; t++) {
        for (int64_t i = 0; i < n_seqs; i++) {
            b->drawn[i] = t == 0 || b->random ? b->tokens[t] : b->appends[i].next;
            b->appends[i] = (struct qrn_append){.seq = b->seqs[i],
                                                .tokens = &b->drawn[i],
                                                .n_tokens = 1,
                                                .sampling = &likeliest,
                                                .goes_on = !b->random && t < n_gen - 1};
        }
        s = append(b, n_seqs, err);
    }
    return s;
}

/* Continues copies of base; the copies and their end are not timed. */
static enum qrn_status time_once(struct bench *b, const struct qrn_seq *base, int64_t n_prompt,
                                 int64_t n_gen, int64_t n_seqs, int64_t *ns, struct qrn_error *err)
{
    enum qrn_status s = QRN_OK;
    int64_t n_made = 0;
    while (n_made < n_seqs && s == QRN_OK) {
        s = qrn_seq_fork(base, &b->seqs[n_made], err);
        n_made += s == QRN_OK;
    }
    const int64_t begin = now_ns();
    if (s == QRN_OK) s = append_first(b, b->seqs, n_seqs, n_prompt, true, err);
    if (s == QRN_OK) s = generate(b, n_gen, n_seqs, err);
    *ns = now_ns() - begin;
    for (int64_t i = 0; i < n_made; i++) qrn_seq_destroy(b->seqs[i]);
    return s;
}

static enum qrn_status time_all(struct bench *b, const struct bench_test *t, struct qrn_error *err)
{
    struct qrn_seq *base;
    QRN_TRY(qrn_seq_create(b->opened.model, NULL, &base, err));
    enum qrn_status s = append_first(b, &base, 1, t->n_depth, false, err);
    int64_t warm_up;
    if (s == QRN_OK)
        s = time_once(b, base, t->n_prompt, t->n_gen > 0 ? 1 : 0, t->n_seqs, &warm_up, err);
    for (int64_t i = 0; i < t->n_samples && s == QRN_OK; i++) {
        s = time_once(b, base, t->n_prompt, t->n_gen, t->n_seqs, &b->samples_ns[i], err);
        progress_show((double)(i + 1) / (double)t->n_samples, NULL);
    }
    qrn_seq_destroy(base);
    return s;
}

static int run_test(struct bench *b, struct bench_test t)
{
    if (t.n_prompt + t.n_gen == 0) return EXIT_OK;
    char label[80];
    snprintf(label, sizeof label, "%s%lld @ d%lld", t.n_gen > 0 ? "tg" : "pp",
             (long long)(t.n_prompt + t.n_gen), (long long)t.n_depth);
    struct qrn_error err;
    t.samples_ns = b->samples_ns;
    t.n_samples = b->subject.options->repetitions;
    progress_begin(label);
    const enum qrn_status s = time_all(b, &t, &err);
    progress_end();
    if (s != QRN_OK) return fail_with(&err);
    const int status = bench_print_test(&b->subject, &t, !b->printed);
    b->printed = true;
    fflush(stdout);
    return status;
}

/* Every prompt, then every generation, of so many sequences at this depth. */
static int run_at(struct bench *b, int64_t n_depth, int64_t n_seqs)
{
    const struct options *o = b->subject.options;
    int status = EXIT_OK;
    for (size_t i = 0; i < o->n_prompt.n && status == EXIT_OK; i++)
        status =
            run_test(b, (struct bench_test){
                            .n_prompt = o->n_prompt.at[i], .n_depth = n_depth, .n_seqs = n_seqs});
    for (size_t i = 0; i < o->n_gen.n && status == EXIT_OK; i++)
        status = run_test(
            b, (struct bench_test){.n_gen = o->n_gen.at[i], .n_depth = n_depth, .n_seqs = n_seqs});
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
    const size_t n_seqs = (size_t)b->n_seqs;
    b->appends = malloc(sizeof *b->appends * n_seqs);
    b->drawn = malloc(sizeof *b->drawn * n_seqs);
    b->seqs = malloc(sizeof *b->seqs * n_seqs);
    b->tokens = malloc(sizeof *b->tokens * (size_t)(b->n_tokens + 1));
    b->samples_ns = malloc(sizeof *b->samples_ns * (size_t)o->repetitions);
    b->random = o->random;
    if (!b->appends || !b->drawn || !b->seqs || !b->tokens || !b->samples_ns)
        return fail("out of memory");
    fill_tokens(b->tokens, b->n_tokens, vocab_size);
    return describe(b, o->verbose);
}

static void release(struct bench *b)
{
    free(b->samples_ns);
    free(b->tokens);
    free(b->seqs);
    free(b->drawn);
    free(b->appends);
    close_model(&b->opened);
}

/* All tests with this number of threads; the last of them ends the table. */
static int run_tests(struct bench *b, struct options *o, size_t i_threads)
{
    o->threads = o->n_threads.at[i_threads];
    int status = open_model(o, &b->opened);
    if (status == EXIT_OK) status = prepare(b, o);
    if (status == EXIT_OK && i_threads == 0) bench_print_begin(&b->subject);
    for (size_t d = 0; d < o->n_depth.n; d++)
        for (size_t i = 0; i < o->n_seqs.n && status == EXIT_OK; i++)
            status = run_at(b, o->n_depth.at[d], o->n_seqs.at[i]);
    if (status == EXIT_OK && i_threads == o->n_threads.n - 1) bench_print_end(&b->subject);
    release(b);
    return status;
}

int bench_model(const struct options *given)
{
    struct options o = *given;
    const int64_t n_prompt = largest(&o.n_prompt), n_gen = largest(&o.n_gen);
    const int64_t n_depth = largest(&o.n_depth), n_test = n_prompt > n_gen ? n_prompt : n_gen;
    if (o.ctx == 0) o.ctx = n_depth + n_test;
    if (n_test == 0) return fail_usage("bench", "--n-prompt and --n-gen are both 0");
    bool printed = false;
    int status = EXIT_OK;
    for (size_t i = 0; i < o.n_threads.n && status == EXIT_OK; i++) {
        struct bench b = {.subject.options = &o,
                          .n_tokens = n_depth > n_test ? n_depth : n_test,
                          .n_seqs = largest(&o.n_seqs),
                          .printed = printed};
        b.subject.opened = &b.opened;
        status = run_tests(&b, &o, i);
        printed = b.printed;
    }
    return status;
}
