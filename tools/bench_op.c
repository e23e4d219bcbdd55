/* SPDX-License-Identifier: MIT
 * quern bench --op: every kernel of an op, timed. */
#include "bench_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_time.h"
#include "core/timing.h"
#include "json_out.h"
#include "open_device.h"
#include "peaks.h"
#include "report.h"

#define MOST_COPIES        4096
#define MOST_DEVICE_COPIES 64 /* of 3 MB: as much as is used in turn */
#define USUAL_PEAK_BYTES   ((size_t)256 << 20)
/* Of a GPU: what is used in turn is far more than its cache; copies are of so much. */
#define DEVICE_ROTATE_BYTES ((size_t)192 << 20)
#define DEVICE_PEAK_BYTES   ((size_t)2 << 30)

struct result {
    const char *kernel;
    bool picked; /* for these arguments */
    bool wrote_nan;
    struct bench_time time;
    double n_flops, n_bytes; /* that the op must do; 0: not known */
};

struct op_bench {
    const struct options *options;
    struct qrn_device *dev;
    bool on_device; /* with a clock and memory of its own */
    struct peaks peaks;
    json_t *results; /* with --output json */
    size_t n_results;
    char last[80]; /* the case before, which other sizes may have made the same */
};

static double share(double value, double peak)
{
    return peak > 0.0 ? 100.0 * value / peak : 0.0;
}

static size_t rotated_bytes(const struct op_bench *b)
{
    if (b->on_device && b->options->rotate == 0) return DEVICE_ROTATE_BYTES;
    return (size_t)b->options->rotate << 20;
}

/* What a call is measured against: a device copies, a CPU mostly reads. */
static double peak_bytes(const struct op_bench *b)
{
    return b->on_device ? b->peaks.copy_bytes : b->peaks.read_bytes;
}

static double peak_flops(const struct op_bench *b)
{
    return b->on_device ? b->peaks.matrix_bf16_ops : b->peaks.float32_ops;
}

static void print_peaks(const struct op_bench *b)
{
    const struct peaks *p = &b->peaks;
    if (b->on_device) {
        printf("%s, device %s (%s); peaks: copy %.1f GB/s", b->options->op, qrn_device_bits(b->dev),
               qrn_device_model(b->dev), p->copy_bytes * 1e-9);
        if (p->matrix_bf16_ops > 0.0)
            printf(", bf16 matrix product %.1f TFLOP/s", p->matrix_bf16_ops * 1e-12);
        return;
    }
    printf("%s, %d threads, device %s; peaks: read %.1f GB/s, copy %.1f GB/s, float32 %.0f GFLOP/s",
           b->options->op, qrn_device_n_threads(b->dev), qrn_device_bits(b->dev),
           p->read_bytes * 1e-9, p->copy_bytes * 1e-9, p->float32_ops * 1e-9);
    if (p->int8_ops > 0.0) printf(", int8 %.0f GOP/s", p->int8_ops * 1e-9);
    if (p->amx_int8_ops > 0.0)
        printf(", AMX int8 %.0f, bf16 %.0f", p->amx_int8_ops * 1e-9, p->amx_bf16_ops * 1e-9);
}

/* Before the first result: the peaks, and the head of the table. */
static void begin(struct op_bench *b)
{
    const size_t rotated = (size_t)b->options->rotate << 20;
    if (b->on_device) {
        b->peaks = measure_device_peaks(b->dev, rotated ? rotated : DEVICE_PEAK_BYTES);
    } else {
        b->peaks = measure_peaks(qrn_device_n_threads(b->dev), b->dev->features,
                                 rotated ? rotated : USUAL_PEAK_BYTES);
    }
    if (b->results) return;
    print_peaks(b);
    printf("\n\n| %-40s | %-36s | pick | %12s | %8s | %5s | %8s | %5s |\n", "case", "kernel", "us",
           "GB/s", "%", "GFLOP/s", "%");
    puts("| ---------------------------------------- | ------------------------------------ | ---- "
         "| "
         "-----------: | -------: | ----: | -------: | ----: |");
}

static void print_row(const struct op_bench *b, const char *name, const struct result *r)
{
    const double bytes = r->n_bytes / r->time.ns * 1e9, flops = r->n_flops / r->time.ns * 1e9;
    printf("| %-40s | %-36s | %-4s | %12.2f |", name, r->kernel, r->picked ? "*" : "",
           r->time.ns * 1e-3);
    if (r->n_bytes > 0.0) {
        printf(" %8.2f | %5.1f | %8.2f | %5.1f |", bytes * 1e-9, share(bytes, peak_bytes(b)),
               flops * 1e-9, share(flops, peak_flops(b)));
    } else {
        printf(" %8s | %5s | %8s | %5s |", "", "", "", "");
    }
    puts(r->wrote_nan ? " NaN" : "");
    fflush(stdout);
}

static void keep_row(const struct op_bench *b, const char *name, const struct result *r,
                     size_t n_copies)
{
    json_t *row = json_pack("{s:s, s:s, s:b, s:f, s:I, s:I, s:I, s:b}", "case", name, "kernel",
                            r->kernel, "picked", r->picked, "ns", r->time.ns, "samples",
                            (json_int_t)r->time.n_samples, "calls", (json_int_t)r->time.n_calls,
                            "copies", (json_int_t)n_copies, "wrote_nan", r->wrote_nan);
    if (r->n_bytes > 0.0) {
        const double bytes = r->n_bytes / r->time.ns * 1e9, flops = r->n_flops / r->time.ns * 1e9;
        json_object_set_new(row, "gb_s", json_real(bytes * 1e-9));
        json_object_set_new(row, "gflop_s", json_real(flops * 1e-9));
        json_object_set_new(row, b->on_device ? "copy_share" : "read_share",
                            json_real(share(bytes, peak_bytes(b)) / 100));
        json_object_set_new(row, b->on_device ? "matrix_share" : "float32_share",
                            json_real(share(flops, peak_flops(b)) / 100));
    }
    json_array_append_new(b->results, row);
}

/* --kernel: "picked", or a part of the name */
static bool wants_kernel(const struct op_bench *b, const struct qrn_kernel *k, bool picked)
{
    const char *wanted = b->options->kernel;
    if (!wanted) return true;
    return strcmp(wanted, "picked") == 0 ? picked : strstr(k->name, wanted) != NULL;
}

/* How long a kernel may take; others than the one that is taken may be very slow. */
static double seconds_of(const struct op_bench *b, bool picked)
{
    if (b->options->seconds > 0.0) return b->options->seconds;
    return !b->on_device ? 0.2 : picked ? 6.0 : 1.0;
}

static int run_kernel(struct op_bench *b, const struct qrn_kernel *k, const struct bench_copies *c,
                      bool picked)
{
    struct qrn_error err;
    const enum qrn_op_id op = k->op;
    struct result r = {.kernel = k->name, .picked = picked};
    bench_cost(c->memory, op, c->cases, &r.n_flops, &r.n_bytes);
    if (bench_time(b->dev, k, c, seconds_of(b, picked), &r.time, &err) != QRN_OK)
        return interrupted() ? EXIT_INTERRUPTED
                             : fail("case %s, %s: %s", c->cases->name, k->name, err.text);
    r.wrote_nan = bench_wrote_nan(c->memory, op, c->cases);
    b->n_results++;
    if (b->results) {
        keep_row(b, c->cases->name, &r, c->n);
    } else {
        print_row(b, c->cases->name, &r);
    }
    return EXIT_OK;
}

/* The kernel that is taken; EXIT_OK without one: the op does not take such types, or this device has
 * no kernel for them. */
static int choose(const struct op_bench *b, enum qrn_op_id op, const struct bench_case *c,
                  const struct qrn_kernel **picked)
{
    struct qrn_error err;
    const void *args = &c->args;
    enum qrn_status status = qrn_op_check(qrn_op(op), args, &err);
    *picked = NULL;
    if (status == QRN_ERR_DTYPE) return EXIT_OK;
    if (status == QRN_OK && qrn_op(op)->check_data && qrn_device_host_reads(b->dev))
        status = qrn_op(op)->check_data(args, &err);
    if (status == QRN_OK) status = qrn_kernel_choose(b->dev, op, args, picked, &err);
    if (status == QRN_ERR_UNSUPPORTED) *picked = NULL;
    if (status == QRN_OK || status == QRN_ERR_UNSUPPORTED) return EXIT_OK;
    return fail("case %s: %s", c->name, err.text);
}

static int run_case(struct op_bench *b, enum qrn_op_id op, const struct bench_copies *copies)
{
    const struct qrn_kernel *picked, *k;
    const void *args = &copies->cases->args;
    int status = choose(b, op, copies->cases, &picked);
    if (!picked) return status;
    if (b->n_results == 0) begin(b);
    for (size_t i = 0; status == EXIT_OK && (k = qrn_kernel_at(b->dev, op, i)) != NULL; i++)
        if ((!k->supports || k->supports(args)) && wants_kernel(b, k, k == picked))
            status = run_kernel(b, k, copies, k == picked);
    return status;
}

/* Of what a call moves: a device's memory has more in it than that. */
static size_t moved_bytes(const struct op_bench *b, enum qrn_op_id op, const struct bench_memory *m,
                          const struct bench_case *c)
{
    double n_flops, n_bytes;
    if (!b->on_device) return m->n_bytes;
    bench_cost(m, op, c, &n_flops, &n_bytes);
    return n_bytes > 0.0 && n_bytes < (double)m->n_bytes ? (size_t)n_bytes : m->n_bytes;
}

/* Builds the case until its copies have the wanted size, or half of the device's memory is full. */
static int build_copies(struct op_bench *b, const struct bench_row *row, struct bench_copies *c)
{
    const size_t most_copies = b->on_device ? MOST_DEVICE_COPIES : MOST_COPIES;
    size_t n_moved = 0, n_bytes = 0, most_bytes = SIZE_MAX, n_total;
    if (b->on_device && qrn_device_memory(b->dev, &most_bytes, &n_total, NULL) == QRN_OK)
        most_bytes /= 2;
    do {
        struct bench_memory *m = &c->memory[c->n];
        *m = (struct bench_memory){.dev = b->dev,
                                   .only = b->options->op_case,
                                   .sizes = b->options->sizes.at,
                                   .n_sizes = b->options->sizes.n};
        const bool built = bench_build(row, m, &c->cases[c->n]);
        c->n++;
        if (m->status != QRN_OK) return fail("case %s: %s", c->cases->name, m->err.text);
        if (!built) c->cases->skip = true;
        if (strcmp(c->cases->name, b->last) == 0) c->cases->skip = true;
        if (c->cases->skip) break;
        n_bytes += m->n_bytes;
        n_moved += moved_bytes(b, row->op, m, &c->cases[c->n - 1]);
        if (n_bytes > most_bytes - n_bytes / c->n) break; /* one more would be too much */
    } while ((n_moved < rotated_bytes(b) || (b->on_device && c->cases->once)) &&
             c->n < most_copies && !interrupted());
    return EXIT_OK;
}

static int run_row(struct op_bench *b, const struct bench_row *row)
{
    struct bench_copies c = {.memory = calloc(MOST_COPIES, sizeof *c.memory),
                             .cases = calloc(MOST_COPIES, sizeof *c.cases)};
    int status = c.memory && c.cases ? EXIT_OK : fail("out of memory");
    if (status == EXIT_OK) status = build_copies(b, row, &c);
    if (status == EXIT_OK && !c.cases->skip) {
        status = run_case(b, row->op, &c);
        memcpy(b->last, c.cases->name, sizeof b->last);
    }
    for (size_t i = 0; i < c.n; i++) bench_memory_free(&c.memory[i]);
    free(c.memory);
    free(c.cases);
    return status;
}

static int run_rows(struct op_bench *b, enum qrn_op_id op)
{
    const struct options *o = b->options;
    const struct bench_row *row = bench_row_at(op, 0);
    if (!row) return fail("%s has no cases", o->op);
    for (size_t i = 0; (row = bench_row_at(op, i)) != NULL; i++) {
        const int status = run_row(b, row);
        if (status != EXIT_OK) return status;
    }
    if (b->n_results > 0) return EXIT_OK;
    if (o->op_case)
        return fail("no case of %s that has \"%s\" in its name runs here", o->op, o->op_case);
    return fail("no case of %s runs here", o->op);
}

static json_t *summary(const struct op_bench *b)
{
    const struct peaks *p = &b->peaks;
    json_t *out = json_pack("{s:s, s:s, s:s, s:i, s:f}", "op", b->options->op, "bits",
                            qrn_device_bits(b->dev), "device", qrn_device_model(b->dev), "threads",
                            qrn_device_n_threads(b->dev), "peak_copy_gb_s", p->copy_bytes * 1e-9);
    if (b->on_device) {
        json_object_set_new(out, "peak_bf16_gflop_s", json_real(p->matrix_bf16_ops * 1e-9));
    } else {
        json_object_set_new(out, "peak_read_gb_s", json_real(p->read_bytes * 1e-9));
        json_object_set_new(out, "peak_float32_gflop_s", json_real(p->float32_ops * 1e-9));
        json_object_set_new(out, "peak_int8_gop_s", json_real(p->int8_ops * 1e-9));
        json_object_set_new(out, "peak_amx_bf16_gflop_s", json_real(p->amx_bf16_ops * 1e-9));
    }
    return out;
}

static int run(struct op_bench *b, enum qrn_op_id op)
{
    if (b->options->format == FORMAT_JSON) b->results = json_array();
    const int status = run_rows(b, op);
    if (status != EXIT_OK || !b->results) {
        json_decref(b->results);
        return status;
    }
    json_t *out = summary(b);
    json_object_set_new(out, "results", b->results);
    return json_out(out);
}

int bench_op(const struct options *o)
{
    if (o->format == FORMAT_CSV) return fail_usage("bench", "--op prints md or json, not csv");
    const char *name;
    size_t op = 0;
    while ((name = qrn_op_name(op)) && strcmp(name, o->op) != 0) op++;
    if (!name) return fail_usage("bench", "there is no op \"%s\"; quern ops lists them", o->op);
    struct op_bench b = {.options = o};
    int status = open_device(o, &b.dev);
    if (status != EXIT_OK) return status;
    b.on_device = qrn_device_has_clock(b.dev);
    catch_interrupt();
    status = run(&b, (enum qrn_op_id)op);
    qrn_device_close(b.dev);
    return status;
}
