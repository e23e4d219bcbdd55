/* SPDX-License-Identifier: MIT
 * quern info: what is in a model's files, and what running it takes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_fits.h"
#include "info_json.h"
#include "listing.h"
#include "open_model.h"
#include "report.h"

static void print_size(const char *label, double n_bytes, const char *more)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (n_bytes >= 1024.0 && u < 4) {
        n_bytes /= 1024.0;
        u++;
    }
    printf("  %-24s%.*f %s%s\n", label, u ? 2 : 0, n_bytes, units[u], more);
}

/* --- files --- */

/* Names and texts of a file that may hold anything: control characters become dots. */
static void print_plain(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        putchar(c < 32 || c == 127 ? '.' : c);
    }
}

static void print_text_value(struct qrn_span text)
{
    putchar('"');
    print_plain(text.bytes, text.n_bytes < 60 ? text.n_bytes : 60);
    putchar('"');
    if (text.n_bytes > 60) printf("... (%zu bytes)", text.n_bytes);
    putchar('\n');
}

static void print_value(const struct qrn_gguf_value *v)
{
    fputs("  ", stdout);
    print_plain(v->key.bytes, v->key.n_bytes);
    printf("%*s ", v->key.n_bytes < 42 ? 42 - (int)v->key.n_bytes : 0, "");
    switch (v->type) {
    case QRN_GGUF_STRING:
        print_text_value(v->as.string);
        return;
    case QRN_GGUF_BOOL:
        puts(v->as.u ? "true" : "false");
        return;
    case QRN_GGUF_F32:
    case QRN_GGUF_F64:
        printf("%g\n", v->as.f);
        return;
    case QRN_GGUF_ARRAY:
        printf("%" PRIu64 " %s\n", v->as.array.n, gguf_type_name(v->element));
        return;
    case QRN_GGUF_I8:
    case QRN_GGUF_I16:
    case QRN_GGUF_I32:
    case QRN_GGUF_I64:
        printf("%" PRId64 "\n", v->as.i);
        return;
    default:
        printf("%" PRIu64 "\n", v->as.u);
        return;
    }
}

static void print_tensors(const struct listing *l)
{
    puts("tensors:");
    for (size_t i = 0; i < l->archive->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &l->archive->tensors[i];
        char shape[200] = "";
        for (int d = 0; d < t->n_dims; d++) {
            const size_t used = strlen(shape);
            snprintf(shape + used, sizeof shape - used, "%s%" PRId64, d ? " x " : "", t->shape[d]);
        }
        printf("  %-10s %-24s %12zu  ", t->type_name, shape, t->n_bytes);
        print_plain(t->name, strlen(t->name));
        putchar('\n');
    }
}

static int print_files(const struct listing *l, const char *path, bool with_tensors)
{
    printf("%s\n", path);
    printf("  %-24s%s, %zu file%s, %" PRIu64 " bytes\n", "format",
           l->is_gguf ? "gguf" : "safetensors", l->n_files, l->n_files == 1 ? "" : "s",
           l->file_bytes);
    if (l->gguf.n_values > 0) puts("metadata:");
    for (size_t i = 0; i < l->gguf.n_values; i++) print_value(&l->gguf.values[i]);
    size_t n;
    struct type_total *totals = listing_types(l, &n);
    if (!totals) return fail("out of memory");
    puts("types:");
    for (size_t i = 0; i < n; i++)
        printf("  %-10s %5zu tensors %14.0f elements %14" PRIu64 " bytes\n", totals[i].name,
               totals[i].n_tensors, totals[i].n_elements, totals[i].n_bytes);
    free(totals);
    if (with_tensors) print_tensors(l);
    return EXIT_OK;
}

/* --- the model --- */

static void print_count(const char *label, int64_t n)
{
    if (n > 0) printf("  %-24s%" PRId64 "\n", label, n);
}

static void print_model(const struct qrn_model_info *m)
{
    puts("model:");
    printf("  %-24s%s\n", "architecture", m->architecture);
    printf("  %-24s%.2f million\n", "parameters", (double)m->n_parameters / 1e6);
    printf("  %-24s%" PRId64 ", %" PRId64 " of them attention\n", "layers", m->n_layers,
           m->n_attention_layers);
    print_count("width", m->d_model);
    print_count("vocabulary", m->vocab_size);
    print_count("context", m->context_length);
    printf("  %-24s%" PRId64 " heads, %" PRId64 " of keys, of %" PRId64 "\n", "attention",
           m->n_heads, m->n_kv_heads, m->head_dim);
    printf("  %-24s%" PRId64 " heads of %" PRId64 ", %" PRId64 " of keys of %" PRId64
           ", convolution over %" PRId64 "\n",
           "gated delta net", m->n_v_heads, m->d_v, m->n_k_heads, m->d_k, m->conv_kernel);
    print_count("feed-forward width", m->d_ff);
    if (m->n_experts > 0)
        printf("  %-24s%" PRId64 ", %" PRId64 " for a token\n", "experts", m->n_experts,
               m->n_experts_used);
    printf("  %-24s%s\n", "bits", m->bits);
}

static void print_memory(const struct qrn_model_info *m)
{
    const double state = sequence_state_bytes(m), kv = (double)m->kv_bytes_per_token;
    char more[64];
    puts("memory:");
    print_size("weights", (double)m->weight_bytes, "");
    print_size("read per token", (double)m->read_bytes_per_token, "");
    print_size("buffers", (double)m->work_bytes, "");
    print_size("state of a sequence", state, "");
    print_size("cache per token", kv, "");
    snprintf(more, sizeof more, " (%" PRId64 " tokens)", m->context_length);
    print_size("sequence, full context", state + kv * (double)m->context_length, more);
}

/* --- both --- */

static int print_all(const struct options *o, const struct listing *l, const char *path,
                     const struct opened *opened, const struct qrn_error *reason)
{
    const struct qrn_model_info *model = opened->info;
    struct device_fit fits[MAX_DEVICE_NAMES];
    const size_t n_fits = model ? find_device_fits(o, opened, fits) : 0;
    if (o->json) return info_json(l, path, o->tensors, model, reason, fits, n_fits);
    const int status = print_files(l, path, o->tensors);
    if (status != EXIT_OK) return status;
    if (model) {
        print_model(model);
        print_memory(model);
        print_device_fits(fits, n_fits);
    } else {
        printf("cannot be run: %s\n", reason->text);
    }
    return EXIT_OK;
}

int cmd_info(const struct options *o)
{
    char path[MODEL_PATH_BYTES];
    int status = find_model(o, path);
    if (status != EXIT_OK) return status;
    const struct qrn_host host = {.logger = report_logger(o->verbose)};
    struct listing listing;
    struct qrn_error err;
    if (listing_open(path, &host, &listing, &err) != QRN_OK) {
        listing_close(&listing);
        return fail_with(&err);
    }
    struct opened opened;
    status = try_open_model(o, true, &opened, &err);
    if (status == EXIT_OK) status = print_all(o, &listing, path, &opened, &err);
    close_model(&opened);
    listing_close(&listing);
    return status;
}
