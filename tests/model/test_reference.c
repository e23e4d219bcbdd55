/* SPDX-License-Identifier: MIT
 * Models against PyTorch and Hugging Face transformers in float32: logits, hidden states, greedy text. */
#include "support/model_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/shared.h"

/* Logits of a prompt; the reference holds all positions, or the last ones. */
static void check_logits(struct qrn_model *model, const struct qrn_safetensors *st,
                         const char *what, const char *prompt, const char *kind, double allowed)
{
    char name[64];
    int64_t n;
    (void)snprintf(name, sizeof name, "%s.ids", prompt);
    const int32_t *ids = test_ids(st, name, &n);
    (void)snprintf(name, sizeof name, "%s.%s", prompt, kind);
    const struct qrn_archive_tensor *want = test_reference(st, name);
    const int64_t rows = want->shape[0], vocab_size = want->shape[1];
    assert_int_equal(vocab_size, qrn_model_info(model)->vocab_size);
    struct qrn_seq *seq = test_seq(model, 0);
    float *got = test_append_all(model, seq, ids, n, 0);
    const double worst = test_max_difference(
        got + (n - rows) * vocab_size, (const float *)(const void *)want->data, rows * vocab_size);
    print_message("%-28s %-6s %4lld positions: max |difference| %.2g\n", what, prompt,
                  (long long)rows, worst);
    if (!(worst <= allowed)) fail_msg("%s, %s: %g, %g allowed", what, prompt, worst, allowed);
    free(got);
    qrn_seq_destroy(seq);
}

static void check_hidden(struct qrn_model *model, const struct qrn_safetensors *st,
                         const char *prompt, double allowed)
{
    struct qrn_error err;
    char name[64];
    int64_t n;
    (void)snprintf(name, sizeof name, "%s.ids", prompt);
    const int32_t *ids = test_ids(st, name, &n);
    const int64_t n_states = qrn_model_info(model)->n_layers + 1,
                  d = qrn_model_info(model)->d_model;
    float *hidden = malloc((size_t)(n_states * n * d) * sizeof *hidden);
    struct qrn_seq *seq = test_seq(model, 0);
    struct qrn_append a = {.seq = seq, .tokens = ids, .n_tokens = n, .hidden = hidden};
    if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < n_states; i++) {
        (void)snprintf(name, sizeof name, "%s.hidden.%02d", prompt, (int)i);
        const double worst = test_max_difference(hidden + i * n * d, test_floats(st, name), n * d);
        if (!(worst <= allowed)) fail_msg("%s: %g, %g allowed", name, worst, allowed);
    }
    qrn_seq_destroy(seq);
    free(hidden);
}

/* Token by token; a difference counts only where the reference was not torn between two. */
static void check_greedy(struct qrn_model *model, const struct qrn_safetensors *st,
                         const char *prompt)
{
    struct qrn_error err;
    char name[64];
    int64_t n, n_greedy;
    (void)snprintf(name, sizeof name, "%s.ids", prompt);
    const int32_t *ids = test_ids(st, name, &n);
    (void)snprintf(name, sizeof name, "%s.greedy", prompt);
    const int32_t *want = test_ids(st, name, &n_greedy);
    (void)snprintf(name, sizeof name, "%s.greedy_margin", prompt);
    const float *margin = test_floats(st, name);
    const int64_t vocab_size = qrn_model_info(model)->vocab_size;
    float *logits = malloc((size_t)vocab_size * sizeof *logits);
    struct qrn_seq *seq = test_seq(model, 0);
    for (int64_t i = 0; i < n_greedy; i++) {
        struct qrn_append a = {.seq = seq,
                               .tokens = i ? want + i - 1 : ids,
                               .n_tokens = i ? 1 : n,
                               .want = QRN_LOGITS_LAST,
                               .logits = logits};
        if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        int32_t best = 0;
        for (int32_t t = 1; t < vocab_size; t++)
            if (logits[t] > logits[best]) best = t;
        if (best == want[i]) continue;
        if (margin[i] >= 1e-3f)
            fail_msg("%s: token %lld is %d, wants %d (margin %g)", prompt, (long long)i, best,
                     want[i], (double)margin[i]);
        break; /* a tie that fell the other way: another text from here */
    }
    qrn_seq_destroy(seq);
    free(logits);
}

static void test_fairy_in_the_repository(void **state)
{
    (void)state;
    struct qrn_safetensors st;
    test_open_reference("tests/data/fairy_reference.safetensors", &st);
    struct qrn_device *dev = test_device(0);
    struct qrn_model *model = test_model(dev, "models/fairy", true, QRN_KV_DEFAULT);
    check_logits(model, &st, "fairy", "once", "logits", 1e-3);
    check_logits(model, &st, "fairy", "chat", "logits", 1e-3);
    check_logits(model, &st, "fairy", "page", "logits", 1e-3);
    check_hidden(model, &st, "once", 1e-3);
    check_greedy(model, &st, "once");
    check_greedy(model, &st, "chat");
    qrn_model_close(model);
    qrn_device_close(dev);
    qrn_safetensors_close(&st);
}

static const struct {
    const char *model, *reference, *kind;
    const char *prompts[4];
    double allowed;
    const char *hidden; /* prompt with hidden states and greedy text, or NULL */
} files[] = {
    {"models/fairy", "fairy", "logits", {"once", "chat", "page", "long"}, 1e-3, "once"},
    {"models/moe_small", "moe_small", "logits", {"a", "b"}, 2e-3, "a"},
    {"models/next_small", "next_small", "logits", {"a", "b"}, 2e-3, "a"},
    {"models/gguf/fairy-Q8_0.gguf", "fairy-Q8_0", "logits", {"once", "chat", "page"}, 1e-3, NULL},
    {"models/gguf/fairy-Q4_0.gguf", "fairy-Q4_0", "logits", {"once", "chat", "page"}, 1e-3, NULL},
    {"models/gguf/fairy-Q4_K_M.gguf",
     "fairy-Q4_K_M",
     "logits",
     {"once", "chat", "page"},
     1e-3,
     NULL},
    {"models/gguf/fairy-Q2_K.gguf", "fairy-Q2_K", "logits", {"once", "chat", "page"}, 1e-3, NULL},
    {"models/fairy-mlx-4bit",
     "fairy-mlx-4bit",
     "logits_float32",
     {"once", "chat", "page"},
     1e-3,
     NULL},
    {"models/fairy-mlx-6bit",
     "fairy-mlx-6bit",
     "logits_float32",
     {"once", "chat", "page"},
     1e-3,
     NULL},
};

static void test_shared(void **state)
{
    (void)state;
    char path[256], model_path[1024];
    if (!shared_path("references")) skip();
    struct qrn_device *dev = test_device(0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct qrn_safetensors st;
        const char *found = shared_path(files[i].model);
        assert_non_null(found);
        (void)snprintf(model_path, sizeof model_path, "%s", found);
        (void)snprintf(path, sizeof path, "references/%s.safetensors", files[i].reference);
        found = shared_path(path);
        assert_non_null(found);
        test_open_reference(found, &st);
        struct qrn_model *model = test_model(dev, model_path, true, QRN_KV_DEFAULT);
        for (size_t p = 0; p < 4 && files[i].prompts[p]; p++)
            check_logits(model, &st, files[i].model, files[i].prompts[p], files[i].kind,
                         files[i].allowed);
        if (files[i].hidden) {
            check_hidden(model, &st, files[i].hidden, files[i].allowed);
            check_greedy(model, &st, files[i].hidden);
        }
        qrn_model_close(model);
        qrn_safetensors_close(&st);
    }
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fairy_in_the_repository),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
