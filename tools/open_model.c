/* SPDX-License-Identifier: MIT
 * The model that the options ask for, and the tokens of their text. */
#include "open_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info_json.h"
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

/* With only_info nothing is loaded that would not fit. */
static enum qrn_status check_fit(struct qrn_device *dev, const struct qrn_model_info *info,
                                 struct qrn_error *err)
{
    size_t n_free, n_total;
    QRN_TRY(qrn_device_memory(dev, &n_free, &n_total, err));
    if (n_free == 0 || (double)info->device_bytes <= (double)n_free) return QRN_OK;
    return qrn_fail(err, QRN_ERR_MEMORY, "the model needs %.3f GiB, %.3f of %.3f GiB are free",
                    (double)info->device_bytes / 0x1p30, (double)n_free / 0x1p30,
                    (double)n_total / 0x1p30);
}

enum qrn_status open_host_device(const struct options *o, const struct qrn_device *dev,
                                 struct qrn_device **out, struct qrn_error *err)
{
    *out = NULL;
    if (o->gpu_layers < 0 || strcmp(qrn_device_name(dev), "cpu") == 0) return QRN_OK;
    return open_device_named(o, "cpu", out, err);
}

struct qrn_model_options model_options(const struct options *o, const char *path,
                                       struct qrn_device *dev, struct qrn_device *host_device)
{
    return (struct qrn_model_options){
        .path = path,
        .device = dev,
        .host_device = host_device,
        .n_device_layers = host_device ? o->gpu_layers : 0,
        .host.logger = report_logger(o->verbose),
        .exact = o->exact,
        .exact_batch = o->exact_batch,
        .kv = kv_types[o->kv],
        .max_context = o->command == command_at(COMMAND_perplexity) ? o->window : o->ctx,
        .max_batch = o->batch,
    };
}

/* Puts behind the text that a model does not fit which number of layers does. */
static void advise(struct qrn_model_options m, struct qrn_error *err)
{
    const size_t used = strlen(err->text);
    struct qrn_model *model = NULL;
    struct qrn_error other;
    m.only_info = true;
    if (qrn_model_open(&m, &model, &other) != QRN_OK) return;
    const int64_t n = qrn_model_info(model)->n_layers_fit;
    if (n > 0 && n < qrn_model_info(model)->n_device_layers)
        snprintf(err->text + used, sizeof err->text - used, ": --gpu-layers %" PRId64, n);
    qrn_model_close(model);
}

static enum qrn_status open_on(const struct options *o, bool only_info, struct opened *out,
                               struct qrn_error *err)
{
    QRN_TRY(open_host_device(o, out->device, &out->host_device, err));
    struct qrn_model_options m = model_options(o, out->path, out->device, out->host_device);
    m.only_info = only_info;
    m.progress = progress_step;
    progress_begin("loading");
    const enum qrn_status s = qrn_model_open(&m, &out->model, err);
    progress_end();
    if (s == QRN_OK) out->info = qrn_model_info(out->model);
    m.progress = NULL;
    if (s == QRN_ERR_MEMORY) advise(m, err);
    return s;
}

/* Whether another device may do better. */
static bool is_of_device(enum qrn_status s)
{
    return s == QRN_ERR_MEMORY || s == QRN_ERR_UNSUPPORTED || s == QRN_ERR_DEVICE;
}

/* Tries the devices in turn.  That a machine has no GPU is no news; that there is one which is not used
 * is. */
int try_open_model(const struct options *o, bool only_info, struct opened *out,
                   struct qrn_error *err)
{
    const char *names[MAX_DEVICE_NAMES], *passed = NULL;
    size_t n;
    struct qrn_error why = {.text = ""};
    *out = (struct opened){.model = NULL};
    int status = find_model(o, out->path);
    if (status == EXIT_OK) status = choose_devices(o, names, &n);
    if (status != EXIT_OK) return status;
    if (n == 1 && strcmp(names[0], "cpu") == 0 && o->gpu_layers > 0)
        return fail_usage(o->command->name, "--gpu-layers goes with --device cuda or auto");
    if (o->gpu_layers == 0) {
        names[0] = "cpu";
        n = 1;
    }
    catch_interrupt();
    for (size_t i = 0; i < n && !out->model; i++) {
        const bool is_last = i == n - 1;
        enum qrn_status s = open_device_named(o, names[i], &out->device, err);
        if (s != QRN_OK && is_last) return fail_with(err);
        const bool is_there = s == QRN_OK;
        if (s == QRN_OK) s = open_on(o, only_info, out, err);
        if (s == QRN_OK && !is_last && only_info) s = check_fit(out->device, out->info, err);
        if (s == QRN_OK || is_last) break;
        if (is_there && !is_of_device(s)) break; /* the file's fault */
        close_model(out);
        if (is_there || s != QRN_ERR_UNSUPPORTED || o->verbose) {
            passed = names[i];
            why = *err;
        }
    }
    if (interrupted()) return EXIT_INTERRUPTED;
    if (out->model && passed)
        fprintf(stderr, "quern: runs on %s, not on %s: %s\n", qrn_device_name(out->device), passed,
                why.text);
    return EXIT_OK;
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
    qrn_device_close(opened->host_device);
    opened->model = NULL;
    opened->device = opened->host_device = NULL;
    opened->info = NULL;
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
