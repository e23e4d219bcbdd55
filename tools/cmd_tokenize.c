/* SPDX-License-Identifier: MIT
 * quern tokenize: texts to ids or back, JSON in and out.  Only the model's tokenizer is loaded. */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>
#include <quern/text.h>

#include "input.h"
#include "model/files.h"
#include "open_model.h"
#include "report.h"

/* Item i of the input as the text that stands for it in the output; NULL after a line on standard
 * error. */
typedef json_t *(*convert_fn)(const struct qrn_tokenizer *tokenizer, const json_t *item, size_t i);

static json_t *no_memory(void)
{
    fail("out of memory");
    return NULL;
}

static json_t *encode(const struct qrn_tokenizer *tokenizer, const json_t *item, size_t i)
{
    if (!json_is_string(item)) {
        fail("standard input: item %zu is not a string", i);
        return NULL;
    }
    struct qrn_token_list ids = {0};
    struct qrn_error err;
    if (qrn_tokenizer_encode(tokenizer, json_string_value(item), json_string_length(item),
                             QRN_ENCODE_CONTROL, &ids, &err) != QRN_OK) {
        fail_with(&err);
        return NULL;
    }
    json_t *out = json_array();
    for (size_t k = 0; k < ids.n_ids; k++) json_array_append_new(out, json_integer(ids.ids[k]));
    const bool whole = json_array_size(out) == ids.n_ids;
    qrn_token_list_free(&ids);
    if (whole) return out;
    json_decref(out);
    return no_memory();
}

static json_t *decode_ids(const struct qrn_tokenizer *tokenizer, const int32_t *ids, size_t n_ids,
                          size_t i)
{
    struct qrn_string text = {0};
    struct qrn_error err;
    if (qrn_tokenizer_decode(tokenizer, ids, n_ids, QRN_DECODE_CONTROL, &text, &err) != QRN_OK) {
        fail("standard input: item %zu: %s", i, err.text);
        return NULL;
    }
    json_t *out = json_stringn(text.bytes ? text.bytes : "", text.n_bytes);
    qrn_string_free(&text);
    return out ? out : no_memory();
}

static json_t *decode(const struct qrn_tokenizer *tokenizer, const json_t *item, size_t i)
{
    const size_t n = json_array_size(item);
    int32_t *ids = malloc(sizeof *ids * (n + 1));
    if (!ids) return no_memory();
    bool good = json_is_array(item);
    for (size_t k = 0; k < n && good; k++) {
        const json_t *id = json_array_get(item, k);
        good = json_is_integer(id) && json_integer_value(id) >= 0 &&
               json_integer_value(id) <= INT32_MAX;
        ids[k] = (int32_t)json_integer_value(id);
    }
    json_t *out = NULL;
    if (good) {
        out = decode_ids(tokenizer, ids, n, i);
    } else {
        fail("standard input: item %zu is not an array of token ids", i);
    }
    free(ids);
    return out;
}

/* One line for each item, so that they can be read and compared. */
static void print_lines(const json_t *items)
{
    const size_t n = json_array_size(items);
    fputs(n ? "[\n" : "[", stdout);
    for (size_t i = 0; i < n; i++) {
        putchar(' ');
        json_dumpf(json_array_get(items, i), stdout, JSON_ENCODE_ANY);
        fputs(i + 1 < n ? ",\n" : "\n", stdout);
    }
    puts("]");
}

/* Nothing is printed unless all items are right. */
static int convert(const struct qrn_tokenizer *tokenizer, const json_t *in, convert_fn fn)
{
    json_t *items = json_array();
    int status = EXIT_OK;
    for (size_t i = 0; i < json_array_size(in) && status == EXIT_OK; i++) {
        json_t *item = fn(tokenizer, json_array_get(in, i), i);
        if (!item) {
            status = EXIT_FAILED;
        } else if (json_array_append_new(items, item) != 0) {
            status = fail("out of memory");
        }
    }
    if (status == EXIT_OK) print_lines(items);
    json_decref(items);
    return status;
}

static int convert_input(const struct qrn_tokenizer *tokenizer, bool back)
{
    char *text;
    size_t n_text;
    int status = read_file("-", &text, &n_text);
    if (status != EXIT_OK) return status;
    json_error_t reason;
    json_t *in = json_loadb(text, n_text, JSON_ALLOW_NUL, &reason);
    free(text);
    if (!in) return fail("standard input: line %d: %s", reason.line, reason.text);
    status = json_is_array(in) ? convert(tokenizer, in, back ? decode : encode)
                               : fail("standard input: not a JSON array");
    json_decref(in);
    return status;
}

int cmd_tokenize(const struct options *o)
{
    char path[MODEL_PATH_BYTES];
    int status = find_model(o, path);
    if (status != EXIT_OK) return status;
    const struct qrn_model_options model_options = {.path = path,
                                                    .host.logger = report_logger(o->verbose)};
    struct qrn_model_files files;
    struct qrn_error err;
    if (qrn_model_files_open(&model_options, &files, &err) != QRN_OK) return fail_with(&err);
    status = files.tokenizer ? convert_input(files.tokenizer, o->decode)
                             : fail("%s has no tokenizer", path);
    qrn_model_files_close(&files);
    return status;
}
