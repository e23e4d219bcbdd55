/* SPDX-License-Identifier: MIT
 * The model that the options ask for, and the tokens of their text. */
#include "open_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input.h"
#include "open_device.h"
#include "progress.h"
#include "report.h"

/* --- which model --- */

/* Where fairy may lie, as seen from the folder of the program: a build, an installation. */
static const char *const beside_program[] = {"/../models/fairy", "/../share/quern/models/fairy"};

/* The folder that the program is in, without a slash at its end; "" if that cannot be told. */
static void program_folder(char *out, size_t n_out)
{
    const ssize_t n = readlink("/proc/self/exe", out, n_out - 1);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash) *slash = '\0';
}

int find_model(const struct options *o, char path[MODEL_PATH_BYTES])
{
    const char *named = o->n_arguments > 0 ? o->arguments[0] : o->model;
    if (named) {
        if (snprintf(path, MODEL_PATH_BYTES, "%s", named) >= MODEL_PATH_BYTES)
            return fail("the path of the model is longer than %d bytes", MODEL_PATH_BYTES - 1);
        return EXIT_OK;
    }
    snprintf(path, MODEL_PATH_BYTES, "models/fairy");
    if (access(path, R_OK) == 0) return EXIT_OK;
    for (size_t i = 0; i < sizeof beside_program / sizeof *beside_program; i++) {
        program_folder(path, MODEL_PATH_BYTES - 64);
        strcat(path, beside_program[i]);
        if (access(path, R_OK) == 0) return EXIT_OK;
    }
    return fail("no model was named, and models/fairy is neither here nor beside the program");
}

/* --- opening --- */

static const enum qrn_kv_type kv_types[] = {
    [KV_AUTO] = QRN_KV_DEFAULT, [KV_F16] = QRN_KV_F16, [KV_F32] = QRN_KV_F32};

int try_open_model(const struct options *o, bool only_info, struct opened *out,
                   struct qrn_error *err)
{
    *out = (struct opened){.model = NULL};
    int status = find_model(o, out->path);
    if (status == EXIT_OK) status = open_device(o, &out->device);
    if (status != EXIT_OK) return status;
    catch_interrupt();
    const struct qrn_model_options model_options = {
        .path = out->path,
        .device = out->device,
        .host.logger = report_logger(o->verbose),
        .exact = o->exact,
        .only_info = only_info,
        .kv = kv_types[o->kv],
        .max_context = o->command == command_at(COMMAND_perplexity) ? o->window : o->ctx,
        .max_batch = o->batch,
        .progress = progress_step,
    };
    progress_begin("loading");
    const enum qrn_status s = qrn_model_open(&model_options, &out->model, err);
    progress_end();
    if (s == QRN_OK) out->info = qrn_model_info(out->model);
    return interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

int open_model(const struct options *o, struct opened *out)
{
    struct qrn_error err;
    const int status = try_open_model(o, false, out, &err);
    if (status != EXIT_OK || out->model) return status;
    close_model(out);
    return fail_with(&err);
}

void close_model(struct opened *opened)
{
    qrn_model_close(opened->model);
    qrn_device_close(opened->device);
    opened->model = NULL;
    opened->device = NULL;
}

/* --- text --- */

int encode_text(const struct opened *opened, const char *text, size_t n_text,
                struct qrn_token_list *out)
{
    const struct qrn_tokenizer *tokenizer = qrn_model_tokenizer(opened->model);
    if (!tokenizer) return fail("%s has no tokenizer: it takes ids, not text", opened->path);
    struct qrn_error err;
    if (qrn_tokenizer_encode(tokenizer, text, n_text, QRN_ENCODE_CONTROL, out, &err) != QRN_OK)
        return fail_with(&err);
    return EXIT_OK;
}

int prompt_text(const struct options *o, const char *otherwise, char **out, size_t *n_out)
{
    if (o->prompt && o->file)
        return fail_usage(o->command->name, "--prompt and --file exclude each other");
    if (o->file) {
        const int status = read_file(o->file, out, n_out);
        if (status == EXIT_OK && *n_out > 0 && (*out)[*n_out - 1] == '\n') --*n_out;
        return status;
    }
    const char *text = o->prompt ? o->prompt : otherwise;
    *n_out = strlen(text);
    *out = strdup(text);
    return *out ? EXIT_OK : fail("out of memory");
}
