/* SPDX-License-Identifier: MIT
 * Perplexity of fairy on tales it has not seen, by the rule of tests/data/fairy_perplexity.json: every
 * tale as title, blank line, text, then token 4093; joined, cut into windows of 512 tokens, each from
 * an empty state; the mean negative log likelihood of tokens 2 .. 512 of each window. */
#include "support/model_test.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <quern/text.h>
#include "support/sanitized.h"
#include "support/shared.h"

enum { WINDOW = 512, END_OF_TALE = 4093, N_AT_ONCE = 8 };

/* The tokens of all tales; free() them. */
static int32_t *read_tales(const struct qrn_tokenizer *t, size_t *n)
{
    json_t *tales = json_load_file("tests/data/fairy_heldout_tales.json", 0, NULL), *tale;
    struct qrn_token_list all = {0};
    struct qrn_error err;
    size_t i;
    assert_non_null(tales);
    json_array_foreach(tales, i, tale)
    {
        const char *title = json_string_value(json_object_get(tale, "title"));
        const char *body = json_string_value(json_object_get(tale, "text"));
        const size_t n_bytes = strlen(title) + strlen(body) + 3;
        char *text = malloc(n_bytes);
        struct qrn_token_list ids = {0};
        assert_non_null(text);
        (void)snprintf(text, n_bytes, "%s\n\n%s", title, body);
        if (qrn_tokenizer_encode(t, text, strlen(text), 0, &ids, &err) != QRN_OK)
            fail_msg("%s", err.text);
        all.ids = realloc(all.ids, (all.n_ids + ids.n_ids + 1) * sizeof *all.ids);
        assert_non_null(all.ids);
        memcpy(all.ids + all.n_ids, ids.ids, ids.n_ids * sizeof *ids.ids);
        all.n_ids += ids.n_ids;
        all.ids[all.n_ids++] = END_OF_TALE;
        qrn_token_list_free(&ids);
        free(text);
    }
    json_decref(tales);
    *n = all.n_ids;
    return all.ids;
}

/* The sum of -ln p(next token) over a window's logits. */
static double window_nll(const float *logits, const int32_t *ids, int64_t vocab_size)
{
    double sum = 0.0;
    for (int64_t t = 0; t + 1 < WINDOW; t++) {
        const float *row = logits + t * vocab_size;
        double largest = (double)row[0], total = 0.0;
        for (int64_t i = 1; i < vocab_size; i++)
            if ((double)row[i] > largest) largest = (double)row[i];
        for (int64_t i = 0; i < vocab_size; i++)
            total += (double)expf((float)((double)row[i] - largest));
        sum += largest + log(total) - (double)row[ids[t + 1]];
    }
    return sum;
}

static double perplexity(struct qrn_model *model, const int32_t *ids, size_t n_windows)
{
    const int64_t vocab_size = qrn_model_info(model)->vocab_size;
    double sum = 0.0;
    float *logits = malloc((size_t)(N_AT_ONCE * WINDOW * vocab_size) * sizeof *logits);
    assert_non_null(logits);
    for (size_t w = 0; w < n_windows; w += N_AT_ONCE) {
        struct qrn_append a[N_AT_ONCE];
        struct qrn_error err;
        const size_t n = n_windows - w < N_AT_ONCE ? n_windows - w : N_AT_ONCE;
        for (size_t i = 0; i < n; i++)
            a[i] = (struct qrn_append){.seq = test_seq(model, 0),
                                       .tokens = ids + (w + i) * WINDOW,
                                       .n_tokens = WINDOW,
                                       .want = QRN_LOGITS_ALL,
                                       .logits = logits + (int64_t)i * WINDOW * vocab_size};
        if (qrn_model_append(model, a, n, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++) {
            sum += window_nll(a[i].logits, a[i].tokens, vocab_size);
            qrn_seq_destroy(a[i].seq);
        }
    }
    free(logits);
    return exp(sum / ((double)n_windows * (WINDOW - 1)));
}

/* Four digits of want; or, with rounded activations, half a percent. */
static void check(struct qrn_device *dev, const char *path, bool exact, double want,
                  size_t n_windows)
{
    struct qrn_model *model = test_model(dev, path, exact, QRN_KV_DEFAULT);
    size_t n;
    int32_t *ids = read_tales(qrn_model_tokenizer(model), &n);
    assert_int_equal(n, 31506);
    const double got = perplexity(model, ids, n_windows);
    print_message("%-32s %s: perplexity %.4f, wants %.4f\n", path, exact ? "exact" : "rounded", got,
                  want);
    if (fabs(got - want) > (exact ? 0.00005 : 0.005) * want)
        fail_msg("%s: %.4f, wants %.4f", path, got, want);
    free(ids);
    qrn_model_close(model);
}

/* Minutes of the code that the other tests run too. */
static bool too_slow(void)
{
    struct qrn_device *dev = test_device(1);
    const bool generic = strstr(qrn_device_bits(dev), "generic") != NULL;
    qrn_device_close(dev);
    return generic || SANITIZED;
}

static void test_fairy(void **state)
{
    (void)state;
    if (too_slow()) skip();
    struct qrn_device *dev = test_device(0);
    json_t *rule = json_load_file("tests/data/fairy_perplexity.json", 0, NULL);
    const double want = json_real_value(json_object_get(rule, "perplexity"));
    check(dev, "models/fairy", true, want, 61);
    check(dev, "models/fairy", false, want, 61);
    json_decref(rule);
    qrn_device_close(dev);
}

static void test_shared(void **state)
{
    static const char *const types[] = {"Q8_0", "Q4_0", "Q4_K_M", "Q2_K"};
    (void)state;
    if (too_slow() || !shared_path("references")) skip();
    struct qrn_device *dev = test_device(0);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char path[128], model[1024];
        struct qrn_safetensors st;
        (void)snprintf(path, sizeof path, "models/gguf/fairy-%s.gguf", types[i]);
        (void)snprintf(model, sizeof model, "%s", shared_path(path));
        (void)snprintf(path, sizeof path, "references/fairy-%s.safetensors", types[i]);
        test_open_reference(shared_path(path), &st);
        double want;
        memcpy(&want, test_reference(&st, "perplexity")->data, sizeof want);
        check(dev, model, true, want, 61);
        check(dev, model, false, want, 61);
        qrn_safetensors_close(&st);
    }
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fairy), cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
