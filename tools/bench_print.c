/* SPDX-License-Identifier: MIT
 * Results of quern bench in the columns and with the keys of llama-bench. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <quern/version.h>

#include "bench_model.h"
#include "report.h"

struct summary {
    double mean_ns, stddev_ns, mean_ts, stddev_ts; /* ts: tokens a second */
};

static double tokens_per_second(const struct bench_test *t, int64_t i)
{
    const double n = (double)((t->n_prompt + t->n_gen) * t->n_seqs);
    return t->samples_ns[i] > 0 ? n * 1e9 / (double)t->samples_ns[i] : 0.0;
}

/* Standard deviation of n values with these sums. */
static double deviation(double n, double sum, double sum_of_squares)
{
    const double variance = n > 1.0 ? (sum_of_squares - sum * sum / n) / (n - 1.0) : 0.0;
    return variance > 0.0 ? sqrt(variance) : 0.0;
}

static struct summary summarise(const struct bench_test *t)
{
    double ns = 0.0, ns2 = 0.0, ts = 0.0, ts2 = 0.0;
    for (int64_t i = 0; i < t->n_samples; i++) {
        const double a = (double)t->samples_ns[i], b = tokens_per_second(t, i);
        ns += a;
        ns2 += a * a;
        ts += b;
        ts2 += b * b;
    }
    const double n = (double)t->n_samples;
    return (struct summary){ns / n, deviation(n, ns, ns2), ts / n, deviation(n, ts, ts2)};
}

static const char *kv_name(const struct options *o)
{
    return o->kv == KV_F32 || (o->kv == KV_AUTO && o->exact) ? "f32" : "f16";
}

/* As llama-bench has it. */
static const char *backend_name(const struct bench_subject *s)
{
    const char *name = qrn_device_name(s->opened->device);
    return strcmp(name, "cpu") == 0 ? "CPU" : strcmp(name, "cuda") == 0 ? "CUDA" : name;
}

static int n_threads(const struct bench_subject *s)
{
    const struct opened *o = s->opened;
    return qrn_device_n_threads(o->host_device ? o->host_device : o->device);
}

static int n_gpu_layers(const struct bench_subject *s)
{
    const bool is_cpu = strcmp(qrn_device_name(s->opened->device), "cpu") == 0;
    return is_cpu ? 0 : (int)s->opened->info->n_device_layers;
}

/* The processor's name as the kernel tells it; "" if it does not. */
static void processor_name(char *out, size_t n_out)
{
    *out = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (file && *out == '\0' && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(out, n_out, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (file) fclose(file);
}

/* --- columns --- */

static bool shows_kv(const struct options *o)
{
    return o->exact || o->kv != KV_AUTO;
}

static void md_begin(const struct bench_subject *s)
{
    const bool kv = shows_kv(s->options);
    printf("| %-30s | %10s | %10s | %-10s | %7s |%s %15s | %20s |\n", "model", "size", "params",
           "backend", "threads", kv ? " type_k | type_v |" : "", "test", "t/s");
    printf("| ------------------------------ | ---------: | ---------: | ---------- | ------: |%s "
           "--------------: | -------------------: |\n",
           kv ? " -----: | -----: |" : "");
}

static void md_row(const struct bench_subject *s, const struct bench_test *t)
{
    const struct options *o = s->options;
    const struct summary sum = summarise(t);
    const double size = (double)s->size, params = (double)s->opened->info->n_parameters;
    char test[80], speed[80], cells[4][40];
    int n = snprintf(test, sizeof test, "%s%" PRId64, t->n_gen > 0 ? "tg" : "pp",
                     t->n_prompt + t->n_gen);
    if (t->n_depth > 0)
        n += snprintf(test + n, sizeof test - (size_t)n, " @ d%" PRId64, t->n_depth);
    if (t->n_seqs > 1) snprintf(test + n, sizeof test - (size_t)n, " B%" PRId64, t->n_seqs);
    /* the sign of plus or minus is two bytes and one column */
    snprintf(speed, sizeof speed, "%.2f \xc2\xb1 %.2f", sum.mean_ts, sum.stddev_ts);
    const bool gib = size >= 1024.0 * 1024.0 * 1024.0, billions = params >= 1e9;
    snprintf(cells[0], sizeof cells[0], "%.2f %s", size / (gib ? 0x1p30 : 0x1p20),
             gib ? "GiB" : "MiB");
    snprintf(cells[1], sizeof cells[1], "%.2f %s", params / (billions ? 1e9 : 1e6),
             billions ? "B" : "M");
    printf("| %-30s | %10s | %10s | %-10s | %7d |", s->type, cells[0], cells[1], backend_name(s),
           n_threads(s));
    if (shows_kv(o)) printf(" %6s | %6s |", kv_name(o), kv_name(o));
    printf(" %15s | %21s |\n", test, speed);
}

/* --- JSON and CSV --- */

/* Everything but the samples, in the order of llama-bench.  NULL: no memory. */
static json_t *record(const struct bench_subject *s, const struct bench_test *t)
{
    const struct options *o = s->options;
    const struct summary sum = summarise(t);
    char processor[256];
    processor_name(processor, sizeof processor);
    json_t *fields = json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:s, s:s, s:i, s:i}",
        "build_commit", qrn_version(), "build_number", 0, "cpu_info", processor, "gpu_info",
        qrn_device_model(s->opened->device), "backends", backend_name(s), "model_filename",
        s->opened->path, "model_type", s->type, "model_size", (json_int_t)s->size, "model_n_params",
        (json_int_t)s->opened->info->n_parameters, "n_batch",
        (json_int_t)s->opened->info->max_batch, "n_ubatch", (json_int_t)s->opened->info->max_batch, "n_threads", n_threads(s), "type_k", kv_name(o), "type_v", kv_name(o),
        "n_gpu_layers", n_gpu_layers(s), "flash_attn", 1);
    json_t *results = json_pack(
        "{s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f, s:I}", "n_prompt", (json_int_t)t->n_prompt,
        "n_gen", (json_int_t)t->n_gen, "n_depth", (json_int_t)t->n_depth, "test_time", "", "avg_ns",
        (json_int_t)sum.mean_ns, "stddev_ns", (json_int_t)sum.stddev_ns, "avg_ts", sum.mean_ts,
        "stddev_ts", sum.stddev_ts, "n_seqs", (json_int_t)t->n_seqs);
    if (!fields || !results || json_object_update(fields, results) != 0) {
        json_decref(fields);
        fields = NULL;
    }
    json_decref(results);
    return fields;
}

static void json_row(json_t *fields, const struct bench_test *t, bool first)
{
    json_t *ns = json_array(), *ts = json_array();
    for (int64_t i = 0; i < t->n_samples; i++) {
        json_array_append_new(ns, json_integer(t->samples_ns[i]));
        json_array_append_new(ts, json_real(tokens_per_second(t, i)));
    }
    json_object_set_new(fields, "samples_ns", ns);
    json_object_set_new(fields, "samples_ts", ts);
    fputs(first ? "" : ",\n", stdout);
    json_dumpf(fields, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
}

static void csv_text(const char *text)
{
    putchar('"');
    for (; *text; text++) fputs(*text == '"' ? "\"\"" : (const char[]){*text, '\0'}, stdout);
    putchar('"');
}

static void csv_row(json_t *fields, bool first)
{
    const char *key, *comma = "";
    json_t *value;
    if (first) {
        json_object_foreach(fields, key, value)
        {
            printf("%s%s", comma, key);
            comma = ",";
        }
        putchar('\n');
        comma = "";
    }
    json_object_foreach(fields, key, value)
    {
        fputs(comma, stdout);
        comma = ",";
        if (json_is_string(value)) {
            csv_text(json_string_value(value));
        } else if (json_is_integer(value)) {
            printf("\"%lld\"", (long long)json_integer_value(value));
        } else {
            printf("\"%f\"", json_real_value(value));
        }
    }
    putchar('\n');
}

/* --- all forms --- */

void bench_print_begin(const struct bench_subject *s)
{
    if (s->options->format == FORMAT_MD) md_begin(s);
    if (s->options->format == FORMAT_JSON) puts("[");
}

int bench_print_test(const struct bench_subject *s, const struct bench_test *t, bool first)
{
    if (s->options->format == FORMAT_MD) {
        md_row(s, t);
        return EXIT_OK;
    }
    json_t *fields = record(s, t);
    if (!fields) return fail("out of memory");
    if (s->options->format == FORMAT_JSON) {
        json_row(fields, t, first);
    } else {
        csv_row(fields, first);
    }
    json_decref(fields);
    return EXIT_OK;
}

void bench_print_end(const struct bench_subject *s)
{
    if (s->options->format == FORMAT_MD) printf("\nbuild: %s\n", s->opened->info->bits);
    if (s->options->format == FORMAT_JSON) puts("\n]");
}
