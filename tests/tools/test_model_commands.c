/* SPDX-License-Identifier: MIT
 * The commands that run a model, on fairy. */
#include "support/temp.h"
#include "run_program.h"

#include <jansson.h>
#include <signal.h>

#define FAIRY "models/fairy"

static void need_fairy(void)
{
    if (access(FAIRY "/config.json", R_OK) != 0) skip();
}

static char *output_of(struct outcome o)
{
    expect_status(&o, 0);
    free(o.err);
    return o.out;
}

static void expect_failure(struct outcome o, const char *part)
{
    expect_status(&o, 1);
    assert_int_equal(count_lines(o.err), 1);
    expect_text(o.err, part);
    outcome_free(&o);
}

static json_t *json_of(struct outcome o)
{
    char *text = output_of(o);
    json_t *value = json_loads(text, 0, NULL);
    if (!value) print_error("not JSON: %s\n", text);
    assert_non_null(value);
    free(text);
    return value;
}

/* A file with that text, removed by its user; the path is valid until eight further calls. */
static const char *temporary(const void *bytes, size_t n)
{
    static int n_files;
    char name[32];
    (void)snprintf(name, sizeof name, "file%d", n_files++);
    return temp_file(name, bytes, n);
}

/* --- run --- */

static void test_run_is_the_same_each_time(void **state)
{
    (void)state;
    need_fairy();
    char *a = output_of(RUN("run", "-p", "A fox met a", "-n", "8", "--temp", "0"));
    char *b = output_of(
        RUN("run", FAIRY, "-p", "A fox met a", "-n", "8", "--temp", "0", "-t", "1", "-s", "9"));
    assert_string_equal(a, b);
    assert_int_equal(strncmp(a, "A fox met a", 11), 0);
    assert_true(strlen(a) > 15);
    char *c = output_of(RUN("run", "-n", "8", "-s", "5", "--temp", "2"));
    char *d = output_of(RUN("run", "-m", FAIRY, "-n", "8", "--seed=5", "--temp", "2", "-t", "1"));
    char *e = output_of(RUN("run", "-n", "8", "-s", "6", "--temp", "2"));
    assert_string_equal(c, d);
    assert_string_not_equal(c, e);
    assert_int_equal(strncmp(c, "Once upon a time", 16), 0);
    free(a);
    free(b);
    free(c);
    free(d);
    free(e);
}

static void test_run_stops(void **state)
{
    (void)state;
    need_fairy();
    struct outcome o = RUN("run", "-p", "A fox met a", "-n", "8", "--temp", "0");
    expect_status(&o, 0);
    expect_text(o.err, "prompt 4 tokens, ");
    expect_text(o.err, "; text 8 tokens, ");
    expect_text(o.err, "; seed 1\n");
    assert_int_equal(count_lines(o.err), 1);
    /* the last five characters as a stop text: everything before them remains */
    const char *stop = o.out + o.n_out - 5;
    char *cut = output_of(RUN("run", "-p", "A fox met a", "-n", "20", "--temp", "0", "--stop",
                              "never", "--stop", stop));
    const size_t n = strlen("A fox met a");
    const char *first = strstr(o.out + n, stop);
    assert_int_equal(strlen(cut), first - o.out);
    assert_memory_equal(cut, o.out, strlen(cut));
    free(cut);
    outcome_free(&o);

    o = RUN("run", "-p", "A fox met a", "-n", "-1", "-c", "10", "--temp", "0");
    expect_status(&o, 0);
    expect_text(o.err, "; the context is full\n");
    outcome_free(&o);
    expect_failure(RUN("run", "-p", ""), "the prompt is empty");
}

static void test_prompt_from_file_and_input(void **state)
{
    (void)state;
    need_fairy();
    const char *path = temporary("A fox met a\n", 12);
    char *a = output_of(RUN("run", "-f", path, "-n", "4", "--temp", "0"));
    char *b = output_of(RUN("run", "-p", "A fox met a", "-n", "4", "--temp", "0"));
    char *c = output_of(RUN_WITH_INPUT("A fox met a", "run", "-f", "-", "-n", "4", "--temp", "0"));
    unlink(path);
    assert_string_equal(a, b);
    assert_string_equal(a, c);
    free(a);
    free(b);
    free(c);
}

static void test_interrupt(void **state)
{
    (void)state;
    need_fairy();
    char *words[] = {strdup("quern"),  strdup("run"), strdup("-n"), strdup("-1"),
                     strdup("--temp"), strdup("0"),   NULL};
    int out[2];
    assert_int_equal(pipe(out), 0);
    FILE *err = tmpfile();
    const int null = open("/dev/null", O_RDONLY);
    const pid_t child = start_program(words, null, out[1], fileno(err), NULL);
    close(out[1]);
    char text[20];
    size_t n = 0;
    while (n < sizeof text) { /* the prompt is 16 bytes: some text has come */
        const ssize_t more = read(out[0], text + n, sizeof text - n);
        assert_true(more > 0);
        n += (size_t)more;
    }
    kill(child, SIGINT);
    char rest[4096];
    while (read(out[0], rest, sizeof rest) > 0) continue;
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    size_t n_said;
    char *said = read_stream(err, &n_said);
    expect_text(said, "tokens/s; seed 1");
    free(said);
    close(out[0]);
    close(null);
    for (size_t i = 0; words[i]; i++) free(words[i]);
}

/* --- logits --- */

static char *bytes_of(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    return read_stream(file, n);
}

static void test_logits_do_not_depend_on_the_split(void **state)
{
    (void)state;
    need_fairy();
    char path[64], ids[64];
    strcpy(path, temporary("", 0));
    strcpy(ids, temporary("[2851, 729, 258, 538, 11]", 25));
    size_t n_first = 0, n;
    char *first = NULL;
    const char *const splits[] = {"0", "1", "2", "3"};
    for (size_t i = 0; i < 4; i++) {
        free(output_of(RUN("logits", "--ids", ids, "--split", splits[i], "--hidden", "-o", path)));
        char *bytes = bytes_of(path, &n);
        if (i == 0) {
            first = bytes;
            n_first = n;
            continue;
        }
        assert_int_equal(n, n_first);
        assert_memory_equal(bytes, first, n);
        free(bytes);
    }
    uint64_t n_header;
    memcpy(&n_header, first, sizeof n_header);
    json_t *header = json_loadb(first + 8, n_header, 0, NULL);
    assert_non_null(header);
    json_int_t a, b;
    assert_int_equal(json_unpack(header, "{s:{s:[I]}, s:{s:[I,I]}}", "ids", "shape", &n, "logits",
                                 "shape", &a, &b),
                     0);
    assert_int_equal(a, 5);
    assert_int_equal(b, 4096);
    assert_non_null(json_object_get(header, "hidden.00"));
    assert_non_null(json_object_get(header, "hidden.08"));
    assert_null(json_object_get(header, "hidden.09"));
    json_decref(header);
    free(first);

    FILE *file = fopen(ids, "w");
    fputs("[1, \"two\"]", file);
    fclose(file);
    expect_failure(RUN("logits", "--ids", ids, "-o", path), "item 1 is not a token id");
    file = fopen(ids, "w");
    fputs("[1, 4096]", file);
    fclose(file);
    expect_failure(RUN("logits", "--ids", ids, "-o", path), "4096");
    unlink(ids);
    unlink(path);
}

/* --- perplexity --- */

static void test_perplexity(void **state)
{
    (void)state;
    need_fairy();
    const char *text =
        "Once upon a time there lived a rich man who had three sons. When they grew up, "
        "he sent the eldest to travel and see the world.";
    const char *path = temporary(text, strlen(text));
    json_t *value = json_of(RUN("perplexity", "-f", path, "-c", "10", "--json", "--exact"));
    double perplexity, nll;
    json_int_t windows, scored;
    assert_int_equal(json_unpack(value, "{s:F, s:F, s:I, s:I}", "perplexity", &perplexity,
                                 "mean_nll", &nll, "windows", &windows, "scored", &scored),
                     0);
    assert_true(perplexity > 2.0 && perplexity < 200.0);
    assert_int_equal(scored, windows * 4); /* after tokens 5 .. 8 of each 10 */
    json_decref(value);
    char *line = output_of(RUN("perplexity", FAIRY, "-f", path, "-c", "10", "--exact", "-t", "1"));
    char want[40];
    snprintf(want, sizeof want, "perplexity %.4f +/- ", perplexity);
    expect_text(line, want);
    free(line);
    expect_failure(RUN("perplexity", "-f", path, "-c", "5000"), "fewer than a window of 5000");
    unlink(path);
}

/* --- tokenize --- */

static void test_tokenize(void **state)
{
    (void)state;
    need_fairy();
    char *ids = output_of(
        RUN_WITH_INPUT("[\"Once upon a time\", \"\", \"<|im_start|>na\\u00efve\\n\"]", "tokenize"));
    expect_text(ids, "[\n [2851, 729, 258, 538],\n [],\n [4094, ");
    json_t *texts = json_of(RUN_WITH_INPUT(ids, "tokenize", FAIRY, "--decode"));
    assert_int_equal(json_array_size(texts), 3);
    assert_string_equal(json_string_value(json_array_get(texts, 0)), "Once upon a time");
    assert_string_equal(json_string_value(json_array_get(texts, 2)), "<|im_start|>na\xc3\xafve\n");
    json_decref(texts);
    free(ids);
    expect_failure(RUN_WITH_INPUT("{}", "tokenize"), "not a JSON array");
    expect_failure(RUN_WITH_INPUT("[1]", "tokenize"), "item 0 is not a string");
    expect_failure(RUN_WITH_INPUT("[\"a\"]", "tokenize", "--decode"), "item 0 is not an array");
    expect_failure(RUN_WITH_INPUT("[[1], [4096]]", "tokenize", "--decode"), "item 1: token 4096");
    expect_failure(RUN_WITH_INPUT("[", "tokenize"), "standard input: line 1");
}

/* --- info --- */

static void test_info(void **state)
{
    (void)state;
    need_fairy();
    json_t *value = json_of(RUN("info", "--json", "--tensors", "--exact"));
    const char *architecture, *bits;
    json_int_t n, kv;
    assert_int_equal(json_unpack(value, "{s:{s:s, s:s, s:I, s:I}}", "model", "architecture",
                                 &architecture, "bits", &bits, "n_parameters", &n,
                                 "kv_bytes_per_token", &kv),
                     0);
    assert_string_equal(architecture, "qwen35");
    assert_true(n > 11000000 && n < 11100000);
    assert_int_equal(kv, 2 * 2 * 2 * 256 * 4); /* layers, K and V, heads, dims, float32 */
    expect_text(bits, "f32");
    assert_true(json_array_size(json_object_get(value, "tensors")) > 100);
    json_decref(value);
    char *text = output_of(RUN("info", FAIRY));
    expect_text(text, "BF16");
    expect_text(text, "qwen35");
    expect_text(text, "weights");
    expect_text(text, "cache per token");
    free(text);
}

/* --- devices --- */

/* What info says of a device. */
static json_t *device_of(json_t *info, const char *name)
{
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(info, "devices"), i,
                       value) if (strcmp(json_string_value(json_object_get(value, "name")), name) ==
                                  0) return value;
    fail_msg("info does not list the device %s", name);
    return NULL;
}

static void test_devices(void **state)
{
    (void)state;
    need_fairy();
    char *text;
    const char *emulator = QRN_TEST_EMULATOR;
    json_t *value = json_of(RUN("info", FAIRY, "--json", "--device", "cpu"));
    assert_int_equal(json_array_size(json_object_get(value, "devices")), 1);
    assert_true(json_is_true(json_object_get(device_of(value, "cpu"), "fits")));
    json_decref(value);
    if (!*emulator || access(emulator, R_OK) != 0) return;

    /* too small a GPU: info tells, and run goes to the CPU with a word */
    assert_int_equal(setenv("QRN_CUDA_DRIVER", emulator, 1), 0);
    assert_int_equal(setenv("QRN_EMULATED_MEMORY", "20000000", 1), 0);
    value = json_of(RUN("info", FAIRY, "--json", "--device", "auto"));
    assert_true(json_is_false(json_object_get(device_of(value, "cuda"), "fits")));
    assert_int_equal(json_integer_value(json_object_get(device_of(value, "cuda"), "total_bytes")),
                     20000000);
    assert_true(json_integer_value(json_object_get(device_of(value, "cuda"), "needed_bytes")) >
                20000000);
    json_decref(value);
    struct outcome o = RUN("run", FAIRY, "-n", "3", "--device", "auto");
    expect_status(&o, 0);
    expect_text(o.err, "runs on cpu, not on cuda: the model does not fit on the device: 0.0");
    expect_text(o.err, "0.019 of 0.019 GiB are free");
    outcome_free(&o);
    expect_failure(RUN("run", FAIRY, "--device", "cuda"), "does not fit on the device");

    /* and one that some layers fit on: told, taken, as on the CPU */
    assert_int_equal(setenv("QRN_EMULATED_MEMORY", "30000000", 1), 0);
    expect_failure(RUN("run", FAIRY, "--device", "cuda", "-b", "64"),
                   "its last 4 of 8 layers would fit: --gpu-layers 4");
    text = output_of(RUN("info", FAIRY, "--device", "cuda", "-b", "64"));
    expect_text(text, "; --gpu-layers 4 would fit");
    free(text);
    value =
        json_of(RUN("info", FAIRY, "--json", "--device", "cuda", "-b", "64", "--gpu-layers", "4"));
    assert_true(json_is_true(json_object_get(device_of(value, "cuda"), "fits")));
    assert_int_equal(json_integer_value(json_object_get(device_of(value, "cuda"), "layers")), 4);
    json_decref(value);
    char *split = output_of(RUN("run", FAIRY, "-p", "A fox met a", "-n", "2", "--temp", "0",
                                "--device", "cuda", "-b", "64", "--gpu-layers", "4"));
    text = output_of(RUN("run", FAIRY, "-p", "A fox met a", "-n", "2", "--temp", "0", "--device",
                         "cuda", "--gpu-layers", "0"));
    assert_string_equal(split, text);
    free(split);
    free(text);
    o = RUN("run", FAIRY, "--gpu-layers", "4");
    expect_status(&o, 2);
    expect_text(o.err, "--gpu-layers goes with --device cuda or auto");
    outcome_free(&o);

    /* a large one */
    assert_int_equal(unsetenv("QRN_EMULATED_MEMORY"), 0);
    text = output_of(RUN("info", FAIRY, "--device", "auto"));
    expect_text(text, "cuda                    emulated, fits: 0.0");
    free(text);

    /* none */
    assert_int_equal(setenv("QRN_CUDA_DRIVER", "no/such/driver", 1), 0);
    o = RUN("run", FAIRY, "-n", "3", "-v", "--device", "auto");
    expect_status(&o, 0);
    expect_text(o.err, "runs on cpu, not on cuda: no NVIDIA driver");
    outcome_free(&o);
    expect_failure(RUN("run", FAIRY, "--device", "cuda"), "no NVIDIA driver");
    assert_int_equal(unsetenv("QRN_CUDA_DRIVER"), 0);
}

static size_t put(uint8_t *out, size_t at, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) out[at + i] = (uint8_t)(value >> (8 * i));
    return at + n;
}

static size_t put_text(uint8_t *out, size_t at, const char *text)
{
    at = put(out, at, strlen(text), 8);
    memcpy(out + at, text, strlen(text));
    return at + strlen(text);
}

/* A file of another architecture with a tensor of a type that nobody knows. */
static void test_info_lists_what_cannot_be_run(void **state)
{
    (void)state;
    uint8_t file[512] = "GGUF";
    size_t n = put(file, 4, 3, 4);
    n = put(file, n, 1, 8); /* tensors */
    n = put(file, n, 1, 8); /* keys */
    n = put_text(file, n, "general.architecture");
    n = put(file, n, 8, 4);
    n = put_text(file, n, "toy\033[31m");
    n = put_text(file, n, "strange.weight");
    n = put(file, n, 1, 4);
    n = put(file, n, 32, 8);
    n = put(file, n, 77, 4);
    n = put(file, n, 0, 8);
    n = (n + 31) / 32 * 32 + 64;
    const char *path = temporary(file, n);
    struct outcome o = RUN("info", path, "--tensors");
    expect_status(&o, 0);
    expect_text(o.out, "\"toy.[31m\""); /* no control characters on a terminal */
    expect_text(o.out, "type 77");
    expect_text(o.out, "strange.weight");
    expect_text(o.out, "cannot be run: ");
    outcome_free(&o);
    json_t *value = json_of(RUN("info", path, "--json"));
    assert_non_null(json_object_get(value, "cannot_run"));
    assert_null(json_object_get(value, "model"));
    json_decref(value);
    file[0] = 'X';
    FILE *again = fopen(path, "wb");
    fwrite(file, 1, n, again);
    fclose(again);
    expect_failure(RUN("info", path), path);
    unlink(path);
}

/* --- quantize --- */

static void test_quantize(void **state)
{
    (void)state;
    need_fairy();
    char path[64];
    strcpy(path, temporary("", 0));
    free(output_of(RUN("quantize", FAIRY, path, "q4_0")));
    json_t *value = json_of(RUN("info", path, "--json"));
    const char *format, *type;
    json_int_t file_type;
    assert_int_equal(json_unpack(value, "{s:s, s:{s:I}, s:[{s:s}]}", "format", &format, "metadata",
                                 "general.file_type", &file_type, "types", "type", &type),
                     0);
    assert_string_equal(format, "gguf");
    assert_int_equal(file_type, 2);
    assert_string_equal(type, "q4_0");
    json_decref(value);
    char *text = output_of(RUN("run", path, "-n", "3", "-p", "A fox met a"));
    assert_int_equal(strncmp(text, "A fox met a", 11), 0);
    free(text);
    unlink(path);
    expect_failure(RUN("quantize", "no/such/model", path, "Q4_0"), "no/such/model");
    assert_int_not_equal(access(path, F_OK), 0);
}

/* --- bench --- */

static void test_bench(void **state)
{
    (void)state;
    need_fairy();
    static const char *const keys[] = {
        "build_commit",   "build_number", "cpu_info",   "gpu_info",       "backends",
        "model_filename", "model_type",   "model_size", "model_n_params", "n_batch",
        "n_ubatch",       "n_threads",    "type_k",     "type_v",         "n_gpu_layers",
        "flash_attn",     "n_prompt",     "n_gen",      "n_depth",        "test_time",
        "avg_ns",         "stddev_ns",    "avg_ts",     "stddev_ts",      "samples_ns",
        "samples_ts"};
    json_t *value =
        json_of(RUN("bench", "-p", "3,5", "-n", "2", "-r", "2", "-d", "0,4", "-o", "json"));
    assert_int_equal(json_array_size(value), 6);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_non_null(json_object_get(json_array_get(value, 5), keys[i]));
    const json_t *last = json_array_get(value, 5);
    assert_int_equal(json_integer_value(json_object_get(last, "n_gen")), 2);
    assert_int_equal(json_integer_value(json_object_get(last, "n_depth")), 4);
    assert_int_equal(json_array_size(json_object_get(last, "samples_ts")), 2);
    assert_true(json_real_value(json_object_get(last, "avg_ts")) > 0.0);
    json_decref(value);
    value = json_of(
        RUN("bench", "-p", "0", "-n", "2", "-r", "1", "-B", "1,3", "-t", "1,2", "-o", "json"));
    assert_int_equal(json_array_size(value), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *row = json_array_get(value, i);
        assert_int_equal(json_integer_value(json_object_get(row, "n_seqs")), i % 2 ? 3 : 1);
        assert_int_equal(json_integer_value(json_object_get(row, "n_threads")), i / 2 + 1);
    }
    json_decref(value);
    char *md = output_of(RUN("bench", "-p", "3", "-n", "0", "-r", "1"));
    expect_text(
        md, "| model                          |       size |     params | backend    | threads |");
    expect_text(md, "| qwen35 11M BF16");
    expect_text(md, "|             pp3 |");
    free(md);
    char *csv = output_of(RUN("bench", "-p", "3", "-n", "2", "-r", "1", "-o", "csv"));
    assert_int_equal(count_lines(csv), 3);
    expect_text(csv, "build_commit,build_number,cpu_info,");
    free(csv);
}

static void test_bench_of_an_op(void **state)
{
    (void)state;
    json_t *value = json_of(RUN("bench", "--op", "rms_norm", "--case", "1x4096", "-o", "json"));
    const json_t *results = json_object_get(value, "results");
    assert_true(json_array_size(results) >= 1);
    const json_t *first = json_array_get(results, 0);
    assert_true(json_real_value(json_object_get(first, "ns")) > 0.0);
    assert_true(json_real_value(json_object_get(first, "gb_s")) > 0.0);
    assert_true(json_is_true(json_object_get(first, "picked")));
    json_decref(value);
    value = json_of(
        RUN("bench", "--op", "rms_norm", "--case", "1x4096", "--rotate", "2", "-o", "json"));
    assert_true(json_real_value(json_object_get(value, "peak_read_gb_s")) > 0.0);
    assert_true(json_real_value(json_object_get(value, "peak_copy_gb_s")) > 0.0);
    assert_true(json_array_size(json_object_get(value, "results")) > 0);
    json_decref(value);
    expect_failure(RUN("bench", "--op", "rms_norm", "--case", "moon"),
                   "no case of rms_norm that has \"moon\" in its name");
}

static void test_every_op_has_cases(void **state)
{
    (void)state;
    json_t *value = json_of(RUN("ops", "--json")), *op;
    size_t i;
    json_array_foreach(json_object_get(value, "ops"), i, op)
    {
        expect_failure(
            RUN("bench", "--op", json_string_value(json_object_get(op, "name")), "--case", "moon"),
            "that has \"moon\" in its name");
    }
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_is_the_same_each_time),
        cmocka_unit_test(test_run_stops),
        cmocka_unit_test(test_prompt_from_file_and_input),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_logits_do_not_depend_on_the_split),
        cmocka_unit_test(test_perplexity),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_info_lists_what_cannot_be_run),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_bench_of_an_op),
        cmocka_unit_test(test_every_op_has_cases),
    };
    (void)setenv("QUERN_DEVICE", "cpu", 1); /* the same on machines with a GPU */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
