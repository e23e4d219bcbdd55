/* SPDX-License-Identifier: MIT
 * The option table and what comes from it: parsing, environment, help, manual page, completion. */
#include "run_program.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/op_test.h"
#include "support/temp.h"

/* --- the tables --- */

enum {
#define COMMAND(name, ...) COMMAND_##name,
#include "../../tools/commands.inc"
#undef COMMAND
    COMMAND_COUNT
};

static const char *const command_names[] = {
#define COMMAND(name, ...) #name,
#include "../../tools/commands.inc"
#undef COMMAND
};

static const struct row {
    const char *field, *name, *value;
    char letter;
    bool env;
    unsigned commands;
    const char *help;
} rows[] = {
#define ON(command) (1u << COMMAND_##command)
#define EVERY       ((1u << COMMAND_COUNT) - 1)
#define OPTION(kind, field, letter, name, value, preset, least, most, env, commands, help) \
    {#field, name, value, letter, env, commands, help},
#include "../../tools/options.inc"
#undef OPTION
};
#define N_ROWS (sizeof rows / sizeof *rows)

static void test_names_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        assert_true(rows[i].commands != 0);
        assert_true(strlen(rows[i].help) > 5);
        for (size_t k = 0; k < i; k++) {
            if (!(rows[i].commands & rows[k].commands)) continue;
            if (strcmp(rows[i].name, rows[k].name) == 0 ||
                (rows[i].letter && rows[i].letter == rows[k].letter))
                fail_msg("%s and %s clash", rows[i].field, rows[k].field);
        }
    }
}

/* --- usage errors --- */

static void expect_usage(struct outcome o, const char *part)
{
    expect_status(&o, 2);
    assert_string_equal(o.out, "");
    assert_int_equal(count_lines(o.err), 1);
    expect_text(o.err, part);
    outcome_free(&o);
}

static void test_usage_errors(void **state)
{
    (void)state;
    expect_usage(RUN("fly"), "quern: unknown command \"fly\"");
    expect_usage(RUN("--threads", "2"), "the command comes first");
    expect_usage(RUN("run", "--thread", "2"), "unknown option --thread; did you mean --threads?");
    expect_usage(RUN("run", "--qqq"), "quern run: unknown option --qqq (see quern help run)");
    expect_usage(RUN("run", "-z"), "unknown option -z");
    expect_usage(RUN("run", "--temp"), "--temp wants a value: --temp T");
    expect_usage(RUN("run", "--temp", "hot"), "--temp wants a number from 0 to 100, not \"hot\"");
    expect_usage(RUN("run", "--temp=-1"), "not \"-1\"");
    expect_usage(RUN("run", "--temp", "nan"), "not \"nan\"");
    expect_usage(RUN("run", "-n", "1.5"), "-n wants a whole number of -1 or more, not \"1.5\"");
    expect_usage(RUN("run", "-n", "99999999999999999999"), "-n wants a whole number");
    expect_usage(RUN("run", "--top-p", "1.1"), "--top-p wants a number from 0 to 1");
    expect_usage(RUN("run", "--kv", "f8"), "--kv wants one of auto|f16|f32, not \"f8\"");
    expect_usage(RUN("run", "--stop", ""), "--stop wants a text that is not empty");
    expect_usage(RUN("run", "--exact=1"), "--exact takes no value");
    expect_usage(RUN("run", "--no-help"), "unknown option --no-help");
    expect_usage(RUN("run", "a", "b"), "unexpected argument \"b\"");
    expect_usage(RUN("run", "-p", "a", "-f", "b"), "--prompt and --file exclude each other");
    expect_usage(RUN("bench", "-p", "1,,2"), "-p wants up to 32 whole numbers");
    expect_usage(RUN("bench", "-p", "0", "-n", "0"), "--n-prompt and --n-gen are both 0");
    expect_usage(RUN("bench", "--op", "fly"), "there is no op \"fly\"");
    expect_usage(RUN("bench", "--case", "x"), "--case goes with --op");
    expect_usage(RUN("bench", "--rotate", "8"), "--rotate goes with --op");
    expect_usage(RUN("bench", "--sizes", "8"), "--sizes goes with --op");
    expect_usage(RUN("bench", "--kernel", "x"), "--kernel goes with --op");
    expect_usage(RUN("bench", "--seconds", "1"), "--seconds goes with --op");
    expect_usage(RUN("bench", "--op", "add", "-t", "1,2"), "--op wants one number of --threads");
    expect_usage(RUN("logits", "-p", "a"), "wants --output FILE");
    expect_usage(RUN("logits", "-o", "x"), "wants one of --prompt, --file and --ids");
    expect_usage(RUN("perplexity"), "wants --file FILE");
    expect_usage(RUN("quantize", "a", "b"), "quern quantize: wants MODEL OUT.gguf TYPE");
    expect_usage(RUN("quantize", "a", "b", "Q9"), "TYPE is \"Q9\", wants one of");
    expect_usage(RUN("help", "fly"), "unknown command \"fly\"");
    expect_usage(RUN("ops", "model"), "unexpected argument \"model\"");
}

static void test_no_command(void **state)
{
    (void)state;
    struct outcome o = RUN("");
    expect_status(&o, 2);
    expect_text(o.err, "Usage: quern COMMAND");
    outcome_free(&o);
}

static void test_failures(void **state)
{
    (void)state;
    struct outcome o = RUN("run", "no/such/model");
    expect_status(&o, 1);
    assert_int_equal(count_lines(o.err), 1);
    expect_text(o.err, "quern: no/such/model");
    outcome_free(&o);

    o = RUN("ops", "--device", "abacus");
    expect_status(&o, 1);
    expect_text(o.err, "this build has no device \"abacus\"; it has auto, cpu");
    outcome_free(&o);

    o = RUN("run", "-f", "no/such/file");
    expect_status(&o, 1);
    expect_text(o.err, "no/such/file: No such file");
    outcome_free(&o);
}

static void test_output_that_cannot_be_written(void **state)
{
    (void)state;
    const int full = open("/dev/full", O_WRONLY), null = open("/dev/null", O_RDWR);
    if (full < 0) skip();
    char *const words[] = {strdup("quern"), strdup("help"), NULL};
    int status;
    waitpid(start_program(words, null, full, null, NULL), &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    free(words[0]);
    free(words[1]);
    close(full);
    close(null);
}

/* --- ways to give an option --- */

static int64_t threads_of(struct outcome o)
{
    expect_status(&o, 0);
    json_t *value = json_loads(o.out, 0, NULL);
    assert_non_null(value);
    const int64_t n = json_integer_value(json_object_get(value, "threads"));
    json_decref(value);
    outcome_free(&o);
    return n;
}

static void test_forms_and_environment(void **state)
{
    (void)state;
    assert_int_equal(threads_of(RUN("ops", "--json", "--threads", "3")), 3);
    assert_int_equal(threads_of(RUN("ops", "--threads=3", "--json")), 3);
    assert_int_equal(threads_of(RUN("ops", "-t", "3", "--json")), 3);
    assert_int_equal(threads_of(RUN("ops", "-vt3", "--json")), 3);
    assert_int_equal(threads_of(RUN_WITH_VARIABLE("QUERN_THREADS=3", "ops", "--json")), 3);
    assert_int_equal(threads_of(RUN_WITH_VARIABLE("QUERN_THREADS=3", "ops", "--json", "-t", "2")),
                     2);
    expect_usage(RUN_WITH_VARIABLE("QUERN_THREADS=many", "ops"),
                 "QUERN_THREADS wants a whole number");
    expect_usage(RUN_WITH_VARIABLE("QUERN_EXACT=perhaps", "run"), "QUERN_EXACT wants 0 or 1");
}

/* --- help and what else comes from the table --- */

static char *output_of(struct outcome o)
{
    expect_status(&o, 0);
    assert_string_equal(o.err, "");
    free(o.err);
    return o.out;
}

static void test_help(void **state)
{
    (void)state;
    char *overview = output_of(RUN("help")), *same = output_of(RUN("--help"));
    assert_string_equal(overview, same);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        expect_text(overview, command_names[c]);
        char *help = output_of(RUN("help", command_names[c]));
        char *flag = output_of(RUN(command_names[c], "--help"));
        assert_string_equal(help, flag);
        for (size_t i = 0; i < N_ROWS; i++) {
            if (!(rows[i].commands >> c & 1u)) continue;
            char form[80];
            snprintf(form, sizeof form, "--%s", rows[i].name);
            expect_text(help, form);
        }
        for (const char *line = help; *line; line += strcspn(line, "\n") + 1)
            assert_true(strcspn(line, "\n") <= 80);
        free(help);
        free(flag);
    }
    free(overview);
    free(same);
}

static void test_version(void **state)
{
    (void)state;
    char *version = output_of(RUN("--version"));
    assert_int_equal(strncmp(version, "quern ", 6), 0);
    assert_int_equal(count_lines(version), 1);
    free(version);
}

/* A copy of text without backslashes, so that words are as in the table. */
static void drop_backslashes(char *text)
{
    char *to = text;
    for (; *text; text++)
        if (*text != '\\') *to++ = *text;
    *to = '\0';
}

static void test_man_and_completion_have_every_option(void **state)
{
    (void)state;
    char *man = output_of(RUN("help", "--man"));
    char *bash = output_of(RUN("help", "--completion", "bash"));
    char *zsh = output_of(RUN("help", "--completion", "zsh"));
    drop_backslashes(man);
    drop_backslashes(zsh);
    for (size_t i = 0; i < N_ROWS; i++) {
        char name[80];
        snprintf(name, sizeof name, "--%s", rows[i].name);
        expect_text(man, name);
        expect_text(bash, name);
        expect_text(zsh, name);
        if (rows[i].env) {
            snprintf(name, sizeof name, "QUERN_%s", rows[i].name);
            for (char *c = name; *c; c++)
                *c = *c == '-' ? '_' : (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
            expect_text(man, name);
        }
    }
    free(man);
    free(bash);
    free(zsh);
}

/* What a shell command prints on both streams; a NULL skips the test: exit status 127. */
static char *shell(const char *command)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    const size_t n = fread(text, 1, 65535, pipe);
    text[n] = '\0';
    const int status = pclose(pipe);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        free(text);
        return NULL;
    }
    return text;
}

static void test_man_is_sound(void **state)
{
    (void)state;
    char command[5000];
    snprintf(command, sizeof command,
             "command -v groff >/dev/null || exit 127; \"%s\" help --man | groff -ww -man -z 2>&1",
             program_path());
    char *said = shell(command);
    if (!said) skip();
    assert_string_equal(said, "");
    free(said);
}

static void test_bash_completes(void **state)
{
    (void)state;
    char command[5000];
    snprintf(command, sizeof command,
             "command -v bash >/dev/null || exit 127; "
             "bash -c 'eval \"$(\"%s\" help --completion bash)\"; "
             "complete_words() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _quern; "
             "echo \"${COMPREPLY[@]}\"; }; "
             "complete_words quern pe; complete_words quern run --thr; "
             "complete_words quern run --kv f3; complete_words quern help tok' 2>&1",
             program_path());
    char *said = shell(command);
    if (!said) skip();
    assert_string_equal(said, "perplexity\n--threads\nf32\ntokenize\n");
    free(said);
}

/* --- ops --- */

static void test_ops(void **state)
{
    (void)state;
    char *text = output_of(RUN("ops", "--json"));
    json_t *value = json_loads(text, 0, NULL), *op, *kernel;
    assert_non_null(value);
    size_t i, k;
    json_array_foreach(json_object_get(value, "ops"), i, op)
    {
        int n_picked = 0, n_usable = 0;
        json_array_foreach(json_object_get(op, "kernels"), k, kernel)
        {
            const bool picked = json_is_true(json_object_get(kernel, "picked"));
            n_picked += picked;
            n_usable += json_is_true(json_object_get(kernel, "usable"));
            if (picked) assert_true(json_is_true(json_object_get(kernel, "usable")));
        }
        assert_int_equal(n_picked, n_usable > 0);
    }
    assert_true(i > 0);
    json_decref(value);
    free(text);
}

static void expect_bits(const char *folder, const char *sm, const char *bits)
{
    char variable[4200], want[64];
    assert_int_equal(setenv("QRN_EMULATED_SM", sm, 1), 0);
    (void)snprintf(variable, sizeof variable, "LD_LIBRARY_PATH=%s", folder);
    char *text = output_of(RUN_WITH_VARIABLE(variable, "ops", "--device", "cuda"));
    assert_int_equal(unsetenv("QRN_EMULATED_SM"), 0);
    (void)snprintf(want, sizeof want, "device %s, ", bits);
    expect_text(text, want);
    free(text);
}

/* Where the system finds a driver and cuBLASLt, both emulated here: what does not work is passed over, for Hopper it
 * is not looked for. */
static void test_libraries_of_the_system(void **state)
{
    (void)state;
    static const char *const links[][2] = {{"libcuda.so.1", "libcuda_emulated.so"},
                                           {"libcuda_emulated.so", "libcuda_emulated.so"},
                                           {"libcublasLt.so.13", "libcuda_incomplete.so"},
                                           {"libcublasLt.so.12", "libcublaslt_emulated.so"}};
    char folder[4096];
    const char *blas = op_test_blas();
    if (!*QRN_TEST_EMULATOR || !blas || !strstr(blas, "emulated")) skip();
    (void)snprintf(folder, sizeof folder, "%s", temp_path("libraries"));
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char from[4200], to[4200], *real = realpath(blas, NULL);
        assert_non_null(real);
        (void)snprintf(to, sizeof to, "%.*s/%s", (int)(strrchr(real, '/') - real), real,
                       links[i][1]);
        (void)snprintf(from, sizeof from, "%s/%s", folder, links[i][0]);
        assert_int_equal(symlink(to, from), 0);
        free(real);
    }
    expect_bits(folder, "80", "cuda sm_80 cublaslt 130000");
    expect_bits(folder, "100", "cuda sm_100 cublaslt 130000");
    expect_bits(folder, "90", "cuda sm_90");
    assert_int_equal(setenv("QRN_CUDA_BLAS", "", 1), 0);
    expect_bits(folder, "80", "cuda sm_80");
    assert_int_equal(unsetenv("QRN_CUDA_BLAS"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_usage_errors),
        cmocka_unit_test(test_no_command),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_output_that_cannot_be_written),
        cmocka_unit_test(test_forms_and_environment),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_man_and_completion_have_every_option),
        cmocka_unit_test(test_man_is_sound),
        cmocka_unit_test(test_bash_completes),
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_libraries_of_the_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
