/* SPDX-License-Identifier: MIT
 * quern bench --op: cases of other sizes, kernels by name, and devices with a clock and memory of their
 * own, of which the emulated one is there. */
#include "run_program.h"

#include <jansson.h>

#include "support/op_test.h"

/* The summary that it prints as JSON; freed by json_decref. */
static json_t *json_of(struct outcome o)
{
    expect_status(&o, 0);
    json_t *value = json_loads(o.out, 0, NULL);
    if (!value) print_error("not JSON: %s\n", o.out);
    assert_non_null(value);
    outcome_free(&o);
    return value;
}

static const json_t *results_of(const json_t *value, size_t n)
{
    const json_t *results = json_object_get(value, "results");
    assert_int_equal(json_array_size(results), n);
    return results;
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    assert_non_null(text);
    return text;
}

/* Times of all kernels; none of them left its output as it was. */
static void expect_rows(const json_t *value, const char *name)
{
    const json_t *row;
    size_t i;
    assert_true(json_array_size(json_object_get(value, "results")) > 0);
    json_array_foreach(json_object_get(value, "results"), i, row)
    {
        assert_string_equal(text_of(row, "case"), name);
        assert_true(json_real_value(json_object_get(row, "ns")) > 0.0);
        assert_true(json_is_false(json_object_get(row, "wrote_nan")));
    }
}

static void test_sizes_and_kernels(void **state)
{
    (void)state;
    json_t *value = json_of(RUN("bench", "--op", "rms_norm", "--sizes", "3,64", "-o", "json",
                                "--seconds", "0.001", "--kernel", "picked"));
    expect_rows(value, "3x64 fused residual"); /* both rows of the table became this one */
    assert_true(json_is_true(json_object_get(json_array_get(results_of(value, 1), 0), "picked")));
    json_decref(value);
    value = json_of(RUN("bench", "--op", "rms_norm", "--case", "512x", "--sizes", "3,64", "-o",
                        "json", "--seconds", "0.001", "--kernel", "generic"));
    expect_rows(value, "3x64 fused residual");
    assert_string_equal(text_of(json_array_get(results_of(value, 1), 0), "kernel"),
                        "cpu.rms_norm.generic");
    json_decref(value);
    struct outcome o = RUN("bench", "--op", "rms_norm", "--kernel", "moon");
    expect_status(&o, 1);
    outcome_free(&o);
}

/* Each with sizes in place of its own, which an emulated device is too slow for. */
static const struct {
    const char *op, *find, *sizes, *name;
} cases[] = {
    {"rms_norm", "512x4096", "3,64", "3x64 fused residual"},
    {"matmul", "q4_k 4096x14336 M 512 q8 packed, x", "64,256,5",
     "q4_k 64x256 M 5 q8 packed, x rounded"},
    {"matmul", "bf16 4096x14336 M 1 bf16", "64,256,2", "bf16 64x256 M 2 bf16"},
    {"matmul_id", "q4_0 8/32 512x2048 T 64 q8 packed", "2,4,64,256,3",
     "q4_0 2/4 64x256 T 3 q8 packed"},
    {"embedding", "bf16 4096x4096", "16,64,5", "bf16 16x64 T 5"},
    {"ssm_conv", "bf16 T 934", "9,64,4", "bf16 T 9 C 64 K 4"},
    {"gated_delta_net", "f32 2x512", "2,5,1,2,32", "f32 2x5 Hk 1 Hv 2 d 32"},
    {"gdn_open_chunk", "f32 2x512 at 0 Hk 16 Hv 32 d 128$", "2,5,1,2,32",
     "f32 2x5 at 0 Hk 1 Hv 2 d 32"},
    {"gdn_open_chunk", "8 seqs, each place Hk", "2,1,2,32", "2 seqs, each place Hk 1 Hv 2 d 32"},
    {"gdn_open_chunk", "each place apart", "2,1,2,32", "2 seqs, each place apart Hk 1 Hv 2 d 32"},
    {"attention", "bf16 T 512 of 512 H 16/2 d 256 window 128", "9,9,2,1,64",
     "bf16 T 9 of 9 H 2/1 d 64 window 128"},
    {"attention_paged", "f16 T 1 at 511", "1,70,2,1,64", "f16 T 1 at 70 H 2/1 d 64"},
};

static void test_on_a_device(void **state)
{
    (void)state;
    const char *emulator = QRN_TEST_EMULATOR;
    char variable[4200];
    if (!*emulator) skip();
    (void)snprintf(variable, sizeof variable, "QRN_CUDA_DRIVER=%s", emulator);
    /* half of it is for copies: with many of them the emulator is slow */
    assert_int_equal(setenv("QRN_EMULATED_MEMORY", "3000000", 1), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = json_of(RUN_WITH_VARIABLE(variable, "bench", "--op", cases[i].op, "--case",
                                                  cases[i].find, "--sizes", cases[i].sizes, "-o",
                                                  "json", "--device", "cuda", "--seconds", "0.01",
                                                  "--rotate", "1", "--kernel", "picked"));
        expect_rows(value, cases[i].name);
        assert_true(json_real_value(json_object_get(value, "peak_copy_gb_s")) > 0.0);
        assert_null(json_object_get(value, "peak_read_gb_s"));
        json_decref(value);
    }
    struct outcome o =
        run_words((const char *const[]){"bench", "--op", "add", "--case", "1x4096", "--device",
                                        "cuda", "--seconds", "0.01", "--rotate", "1", NULL},
                  NULL, variable);
    expect_status(&o, 0);
    expect_text(o.out, "add, device cuda sm_90 (emulated); peaks: copy ");
    expect_text(o.out, "| cuda.add.rows ");
    outcome_free(&o);
    assert_int_equal(unsetenv("QRN_EMULATED_MEMORY"), 0);
}

/* A kernel of a library that is named. */
static void test_library(void **state)
{
    (void)state;
    const char *emulator = QRN_TEST_EMULATOR, *blas = op_test_blas();
    char variable[4200];
    if (!*emulator || !blas || !strstr(blas, "emulated")) skip();
    (void)snprintf(variable, sizeof variable, "QRN_CUDA_DRIVER=%s", emulator);
    assert_int_equal(setenv("QRN_EMULATED_MEMORY", "100000000", 1), 0);
    assert_int_equal(setenv("QRN_CUDA_BLAS", blas, 1), 0);
    json_t *value = json_of(RUN_WITH_VARIABLE(variable, "bench", "--op", "matmul", "--case",
                                              "bf16 4096x14336 M 1 bf16$", "--sizes", "64,256,70",
                                              "-o", "json", "--device", "cuda", "--seconds", "0.01",
                                              "--rotate", "1", "--kernel", "cublaslt"));
    assert_int_equal(unsetenv("QRN_CUDA_BLAS"), 0);
    assert_int_equal(unsetenv("QRN_EMULATED_MEMORY"), 0);
    expect_rows(value, "bf16 64x256 M 70 bf16");
    const json_t *row = json_array_get(results_of(value, 1), 0);
    assert_string_equal(text_of(row, "kernel"), "cuda.matmul.cublaslt");
    assert_true(json_is_true(json_object_get(row, "picked")));
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_and_kernels),
        cmocka_unit_test(test_on_a_device),
        cmocka_unit_test(test_library),
    };
    (void)unsetenv("QUERN_DEVICE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
