/* SPDX-License-Identifier: MIT
 * A model whose tokens take the long joints of a GPU: to the bit what a launch for each op gives. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <quern/quantize.h>

#include "support/emulated_faults.h"
#include "support/model_test.h"
#include "support/op_test.h"
#include "support/temp.h"
#include "support/toy_model.h"

enum { N = 5, VOCAB = 96 }; /* tokens */

/* Launches less for a token: two mixers of Gated DeltaNet 5 each, one of attention 7, products and norms from one mixer
 * to the next one, or to the head, 6; with experts 14. */
enum { MIXERS = 5 + 5 + 7, SAVED = MIXERS + 3 * 6, SAVED_MOE = MIXERS + 3 * 14 };

/* Logits of N tokens, one by one; closes the device. */
static float *decode(struct qrn_device *dev, const char *file, long *n)
{
    static const int32_t ids[N] = {3, 77, 0, 14, 95};
    struct qrn_model *model = test_model(dev, file, false, QRN_KV_DEFAULT);
    struct qrn_seq *seq = test_seq(model, 0);
    const long before = emulated_launches();
    float *logits = test_append_all(model, seq, ids, N, 1);
    *n = emulated_launches() - before;
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    qrn_device_close(dev);
    return logits;
}

static void test_type(const char *type, enum toy_kind kind, long saved)
{
    char dir[512], name[32], file[512];
    struct qrn_error err;
    long n_joined, n_apart;
    struct qrn_device *joined = op_test_open_gpu(&err);
    if (!joined) skip();
    (void)snprintf(name, sizeof name, "%s-%d", type, (int)kind);
    (void)snprintf(dir, sizeof dir, "%s", temp_path(name));
    (void)snprintf(name, sizeof name, "%s-%d.gguf", type, (int)kind);
    (void)snprintf(file, sizeof file, "%s", temp_path(name));
    assert_int_equal(mkdir(dir, 0777), 0);
    toy_model_write(dir, kind);
    const struct qrn_quantize_options o = {.path = dir, .out_path = file, .type = type};
    if (qrn_quantize(&o, &err) != QRN_OK) fail_msg("%s", err.text);
    float *got = decode(joined, file, &n_joined),
          *want = decode(op_test_open_gpu_apart(&err), file, &n_apart);
    if (n_apart && n_apart - n_joined != N * saved)
        fail_msg("%s: %ld launches of %ld, wants %ld less", type, n_joined, n_apart, N * saved);
    assert_memory_equal(got, want, sizeof(float) * N * VOCAB);
    free(got);
    free(want);
}

static void test_packed(void **state)
{
    (void)state;
    test_type("Q8_0", TOY_WIDE, SAVED);
}

static void test_bf16(void **state)
{
    (void)state;
    test_type("BF16", TOY_WIDE, SAVED);
}

/* Each group of the stream is one block's. */
static void test_experts(void **state)
{
    (void)state;
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", "21", 1), 0);
    test_type("Q8_0", TOY_WIDE_MOE, SAVED_MOE);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed), cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
