/* SPDX-License-Identifier: MIT
 * The model that the options ask for, and the tokens of their text. */
#ifndef QUERN_TOOLS_OPEN_MODEL_H
#define QUERN_TOOLS_OPEN_MODEL_H

#include <quern/model.h>
#include <quern/text.h>
#include "options.h"

/* All of these return EXIT_OK, or another exit status after a line on standard error. */

#define MODEL_PATH_BYTES 4096

/* The argument MODEL, else --model or its variable, else fairy: ./models/fairy, or beside the
 * program as a build or an installation puts it. */
int find_model(const struct options *options, char path[MODEL_PATH_BYTES]);

/* The first device that --device allows and that the model runs on. */
struct opened {
    char path[MODEL_PATH_BYTES];
    struct qrn_device *device;
    struct qrn_device *host_device; /* the CPU, if --gpu-layers leaves layers to it; else NULL */
    struct qrn_model *model;
    const struct qrn_model_info *info;
};

/* Finds and opens the model, with a progress bar.  From here on an interrupt is only noted. */
int open_model(const struct options *options, struct opened *out);
/* The same, but a model that is refused is EXIT_OK with out->model NULL and the reason in *err.
 * only_info: without its weights. */
int try_open_model(const struct options *options, bool only_info, struct opened *out,
                   struct qrn_error *err);
void close_model(struct opened *opened); /* zeroed structs are allowed */

/* The first layers' device, where --gpu-layers asks for another than dev; else *out is NULL. */
enum qrn_status open_host_device(const struct options *options, const struct qrn_device *dev,
                                 struct qrn_device **out, struct qrn_error *err);
/* How the model is opened on those devices. */
struct qrn_model_options model_options(const struct options *options, const char *path,
                                       struct qrn_device *dev, struct qrn_device *host_device);

/* Appends the tokens of a text, in which control tokens count as such. */
int encode_text(const struct opened *opened, const char *text, size_t n_text,
                struct qrn_token_list *out);

/* The text of --prompt or --file; if neither is given, otherwise.  One newline at the end of a file
 * is dropped.  Freed with free(). */
int prompt_text(const struct options *options, const char *otherwise, char **out, size_t *n_out);

#endif
