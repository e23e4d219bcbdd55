/* SPDX-License-Identifier: MIT
 * quern logits: the logits and hidden states of a text, as a safetensors file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "formats/safetensors.h"
#include "input.h"
#include "open_model.h"
#include "progress.h"
#include "report.h"

struct ids {
    int32_t *at;
    size_t n;
};

/* --- token ids --- */

static int ids_of_json(const json_t *value, const char *name, struct ids *ids)
{
    if (!json_is_array(value)) return fail("%s: not a JSON array", name);
    ids->n = json_array_size(value);
    ids->at = malloc(sizeof *ids->at * (ids->n + 1));
    if (!ids->at) return fail("out of memory");
    for (size_t i = 0; i < ids->n; i++) {
        const json_t *id = json_array_get(value, i);
        const json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v > INT32_MAX)
            return fail("%s: item %zu is not a token id", name, i);
        ids->at[i] = (int32_t)v;
    }
    return EXIT_OK;
}

static int read_ids(const char *path, struct ids *ids)
{
    char *text;
    size_t n_text;
    const int status = read_file(path, &text, &n_text);
    if (status != EXIT_OK) return status;
    json_error_t reason;
    json_t *value = json_loadb(text, n_text, 0, &reason);
    free(text);
    if (!value) return fail("%s: line %d: %s", input_name(path), reason.line, reason.text);
    const int result = ids_of_json(value, input_name(path), ids);
    json_decref(value);
    return result;
}

static int encode_prompt(const struct options *o, const struct opened *opened, struct ids *ids)
{
    char *text;
    size_t n_text;
    int status = prompt_text(o, "", &text, &n_text);
    if (status != EXIT_OK) return status;
    struct qrn_token_list list = {0};
    status = encode_text(opened, text, n_text, &list);
    free(text);
    ids->n = list.n_ids;
    ids->at = malloc(sizeof *ids->at * (ids->n + 1));
    if (ids->at && ids->n > 0) memcpy(ids->at, list.ids, sizeof *ids->at * ids->n);
    qrn_token_list_free(&list);
    if (status == EXIT_OK && !ids->at) return fail("out of memory");
    return status;
}

/* --- running --- */

struct tape {
    const struct ids *ids;
    int64_t vocab_size, d_model, n_states; /* n_states: hidden states of a token */
    int64_t split;                         /* tokens of a call */
    float *logits;                         /* [n, vocab_size] */
    float *hidden;                         /* [n_states][n][d_model], or NULL */
    float *part;                           /* hidden of one call: [n_states][split][d_model] */
};

/* n * a * b floats, or NULL after a line on standard error. */
static float *new_floats(size_t n, int64_t a, int64_t b)
{
    size_t n_bytes;
    float *out = NULL;
    if (qrn_mul_size(n, (size_t)a, &n_bytes) && qrn_mul_size(n_bytes, (size_t)b, &n_bytes) &&
        qrn_mul_size(n_bytes, sizeof(float), &n_bytes))
        out = malloc(n_bytes);
    if (!out) fail("out of memory: %zu tokens need too much", n);
    return out;
}

static bool tape_create(struct tape *t, const struct options *o, const struct qrn_model_info *info,
                        const struct ids *ids)
{
    *t = (struct tape){.ids = ids,
                       .vocab_size = info->vocab_size,
                       .d_model = info->d_model,
                       .n_states = info->n_layers + 1};
    t->split = o->split > 0 && o->split < (int64_t)ids->n ? o->split : (int64_t)ids->n;
    t->logits = new_floats(ids->n, t->vocab_size, 1);
    if (!t->logits || !o->hidden) return t->logits != NULL;
    t->hidden = new_floats(ids->n, t->n_states, t->d_model);
    t->part = t->hidden ? new_floats((size_t)t->split, t->n_states, t->d_model) : NULL;
    return t->part != NULL;
}

static void tape_free(struct tape *t)
{
    free(t->logits);
    free(t->hidden);
    free(t->part);
}

/* The tokens in calls of split tokens. */
static int tape_run(struct tape *t, struct qrn_model *model)
{
    struct qrn_seq *seq;
    struct qrn_error err;
    enum qrn_status s = qrn_seq_create(model, NULL, &seq, &err);
    if (s != QRN_OK) return fail_with(&err);
    const int64_t n_tokens = (int64_t)t->ids->n;
    progress_begin("running");
    for (int64_t first = 0; first < n_tokens && s == QRN_OK; first += t->split) {
        const int64_t n = n_tokens - first < t->split ? n_tokens - first : t->split;
        struct qrn_append append = {.seq = seq,
                                    .tokens = t->ids->at + first,
                                    .n_tokens = n,
                                    .want = QRN_LOGITS_ALL,
                                    .logits = t->logits + first * t->vocab_size,
                                    .hidden = t->part};
        s = qrn_model_append(model, &append, 1, interrupt_requested, NULL, &err);
        for (int64_t i = 0; t->hidden && i < t->n_states; i++)
            memcpy(t->hidden + (i * n_tokens + first) * t->d_model, t->part + i * n * t->d_model,
                   sizeof(float) * (size_t)(n * t->d_model));
        progress_show((double)(first + n) / (double)n_tokens, NULL);
    }
    progress_end();
    qrn_seq_destroy(seq);
    return s == QRN_OK ? EXIT_OK : fail_with(&err);
}

/* --- writing --- */

static struct qrn_archive_tensor tensor(const char *name, enum qrn_dtype dtype, const void *data,
                                        int64_t n0, int64_t n1)
{
    return (struct qrn_archive_tensor){.name = name,
                                       .dtype = dtype,
                                       .n_dims = n1 > 0 ? 2 : 1,
                                       .shape = {n0, n1},
                                       .data = data,
                                       .n_bytes = 4 * (size_t)n0 * (size_t)(n1 > 0 ? n1 : 1)};
}

static int tape_write(const struct tape *t, const char *path)
{
    const int64_t n = (int64_t)t->ids->n, n_hidden = t->hidden ? t->n_states : 0;
    struct qrn_archive_tensor *tensors = calloc((size_t)n_hidden + 2, sizeof *tensors);
    char(*names)[32] = calloc((size_t)n_hidden + 1, sizeof *names);
    int status = tensors && names ? EXIT_OK : fail("out of memory");
    if (status == EXIT_OK) {
        tensors[0] = tensor("ids", QRN_I32, t->ids->at, n, 0);
        tensors[1] = tensor("logits", QRN_F32, t->logits, n, t->vocab_size);
        for (int64_t i = 0; i < n_hidden; i++) {
            snprintf(names[i], sizeof names[i], "hidden.%02" PRId64, i);
            tensors[2 + i] =
                tensor(names[i], QRN_F32, t->hidden + i * n * t->d_model, n, t->d_model);
        }
        struct qrn_error err;
        if (qrn_safetensors_write(path, tensors, (size_t)n_hidden + 2, NULL, &err) != QRN_OK)
            status = fail_with(&err);
    }
    free(names);
    free(tensors);
    return status;
}

static int run(const struct options *o, const struct opened *opened, const struct ids *ids)
{
    if (ids->n == 0) return fail("there are no tokens");
    struct tape tape;
    int status = tape_create(&tape, o, opened->info, ids) ? EXIT_OK : EXIT_FAILED;
    if (status == EXIT_OK) status = tape_run(&tape, opened->model);
    if (status == EXIT_OK) status = tape_write(&tape, o->output);
    tape_free(&tape);
    return status;
}

int cmd_logits(const struct options *o)
{
    if (!o->output) return fail_usage("logits", "wants --output FILE");
    if (!o->prompt + !o->file + !o->ids != 2)
        return fail_usage("logits", "wants one of --prompt, --file and --ids");
    struct ids ids = {NULL, 0};
    struct opened opened = {.model = NULL};
    int status = o->ids ? read_ids(o->ids, &ids) : EXIT_OK;
    if (status == EXIT_OK) status = open_model(o, &opened);
    if (status == EXIT_OK && !o->ids) status = encode_prompt(o, &opened, &ids);
    if (status == EXIT_OK) status = run(o, &opened, &ids);
    close_model(&opened);
    free(ids.at);
    return status;
}
