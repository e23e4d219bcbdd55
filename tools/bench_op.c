/* SPDX-License-Identifier: MIT
 * quern bench --op: every kernel of an op, timed. */
#include "bench_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cases.h"
#include "clock.h"
#include "core/device_impl.h"
#include "json_out.h"
#include "open_device.h"
#include "peaks.h"
#include "report.h"

#define MOST_RUNS        1000
#define ENOUGH_NS        200000000
#define MOST_COPIES      4096
#define USUAL_PEAK_BYTES ((size_t)256 << 20)

struct result {
    const char *kernel;
    bool picked;             /* for these arguments */
    double ns;               /* of a call, median */
    double n_flops, n_bytes; /* that the op must do; 0: not known */
};

struct op_bench {
    const struct options *options;
    struct qrn_device *dev;
    struct peaks peaks;
    json_t *results; /* with --output json */
    size_t n_results;
};

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* One call, on copies of its data that are used in turn. */
struct copies {
    struct bench_memory *memory;
    struct bench_case *cases;
    size_t n;
};

/* The median time of a call.  A first one warms up, unless it is so long that it is enough. */
static enum qrn_status time_kernel(struct qrn_device *dev, const struct qrn_kernel *kernel,
                                   const struct copies *c, double *ns, struct qrn_error *err)
{
    int64_t samples[MOST_RUNS], total = 0;
    int n = 0;
    size_t turn = 0;
    for (bool warm = false; n < MOST_RUNS && total < ENOUGH_NS && !interrupted(); warm = true) {
        const void *args = &c->cases[turn++ % c->n].args;
        const int64_t begin = now_ns();
        QRN_TRY(qrn_kernel_run(dev, kernel, args, err));
        const int64_t sample = now_ns() - begin;
        if (!warm && sample < ENOUGH_NS) continue;
        samples[n++] = sample;
        total += sample;
    }
    if (n == 0) return qrn_fail(err, QRN_ERR_CANCELLED, "interrupted");
    qsort(samples, (size_t)n, sizeof *samples, ascending);
    *ns = (double)samples[n / 2];
    return QRN_OK;
}

static double share(double value, double peak)
{
    return peak > 0.0 ? 100.0 * value / peak : 0.0;
}

static size_t rotated_bytes(const struct op_bench *b)
{
    return (size_t)b->options->rotate << 20;
}

/* Before the first result: the peaks, and the head of the table. */
static void begin(struct op_bench *b)
{
    const size_t n = rotated_bytes(b) ? rotated_bytes(b) : USUAL_PEAK_BYTES;
    b->peaks = measure_peaks(qrn_device_n_threads(b->dev), b->dev->features, n);
    if (b->results) return;
    printf("%s, %d threads, device %s; peaks: read %.1f GB/s, copy %.1f GB/s, float32 %.0f GFLOP/s",
           b->options->op, qrn_device_n_threads(b->dev), qrn_device_bits(b->dev),
           b->peaks.read_bytes * 1e-9, b->peaks.copy_bytes * 1e-9, b->peaks.float32_ops * 1e-9);
    if (b->peaks.int8_ops > 0.0) printf(", int8 %.0f GOP/s", b->peaks.int8_ops * 1e-9);
    if (b->peaks.amx_int8_ops > 0.0)
        printf(", AMX int8 %.0f, bf16 %.0f", b->peaks.amx_int8_ops * 1e-9,
               b->peaks.amx_bf16_ops * 1e-9);
    printf("\n\n| %-40s | %-36s | pick | %12s | %8s | %5s | %8s | %5s |\n", "case", "kernel", "us",
           "GB/s", "%", "GFLOP/s", "%");
    puts("| ---------------------------------------- | ------------------------------------ | ---- "
         "| "
         "-----------: | -------: | ----: | -------: | ----: |");
}

static void print_row(const struct op_bench *b, const char *name, const struct result *r)
{
    const double bytes = r->n_bytes / r->ns * 1e9, flops = r->n_flops / r->ns * 1e9;
    printf("| %-40s | %-36s | %-4s | %12.2f |", name, r->kernel, r->picked ? "*" : "",
           r->ns * 1e-3);
    if (r->n_bytes > 0.0) {
        printf(" %8.2f | %5.1f | %8.2f | %5.1f |\n", bytes * 1e-9,
               share(bytes, b->peaks.read_bytes), flops * 1e-9, share(flops, b->peaks.float32_ops));
    } else {
        printf(" %8s | %5s | %8s | %5s |\n", "", "", "", "");
    }
    fflush(stdout);
}

static void keep_row(const struct op_bench *b, const char *name, const struct result *r)
{
    json_t *row = json_pack("{s:s, s:s, s:b, s:f}", "case", name, "kernel", r->kernel, "picked",
                            r->picked, "ns", r->ns);
    if (r->n_bytes > 0.0) {
        const double bytes = r->n_bytes / r->ns * 1e9, flops = r->n_flops / r->ns * 1e9;
        json_object_set_new(row, "gb_s", json_real(bytes * 1e-9));
        json_object_set_new(row, "gflop_s", json_real(flops * 1e-9));
        json_object_set_new(row, "read_share", json_real(share(bytes, b->peaks.read_bytes) / 100));
        json_object_set_new(row, "float32_share",
                            json_real(share(flops, b->peaks.float32_ops) / 100));
    }
    json_array_append_new(b->results, row);
}

static int run_case(struct op_bench *b, enum qrn_op_id op, const struct copies *copies)
{
    struct qrn_error err;
    const char *name = copies->cases->name;
    const void *args = &copies->cases->args;
    const struct qrn_kernel *picked, *k;
    if (qrn_op_check(qrn_op(op), args, &err) != QRN_OK ||
        (qrn_op(op)->check_data && qrn_op(op)->check_data(args, &err) != QRN_OK) ||
        qrn_kernel_choose(b->dev, op, args, &picked, &err) != QRN_OK)
        return fail("case %s: %s", name, err.text);
    if (b->n_results == 0) begin(b);
    for (size_t i = 0; (k = qrn_kernel_at(b->dev, op, i)) != NULL; i++) {
        if (k->supports && !k->supports(args)) continue;
        struct result r = {.kernel = k->name, .picked = k == picked};
        if (qrn_op(op)->cost) qrn_op(op)->cost(args, &r.n_flops, &r.n_bytes);
        if (time_kernel(b->dev, k, copies, &r.ns, &err) != QRN_OK)
            return interrupted() ? EXIT_INTERRUPTED : fail("case %s: %s", name, err.text);
        b->n_results++;
        if (b->results) {
            keep_row(b, name, &r);
        } else {
            print_row(b, name, &r);
        }
    }
    return EXIT_OK;
}

/* Builds the case until its copies have the wanted size. */
static int build_copies(struct op_bench *b, const struct bench_row *row, struct copies *c)
{
    size_t n_bytes = 0;
    do {
        c->memory[c->n] = (struct bench_memory){.dev = b->dev, .only = b->options->op_case};
        struct bench_memory *m = &c->memory[c->n];
        const bool built = bench_build(row, m, &c->cases[c->n]);
        c->n++;
        if (m->status != QRN_OK) return fail("%s", m->err.text);
        if (!built) c->cases->skip = true;
        n_bytes += m->n_bytes;
    } while (!c->cases->skip && n_bytes < rotated_bytes(b) && c->n < MOST_COPIES && !interrupted());
    return EXIT_OK;
}

static int run_row(struct op_bench *b, const struct bench_row *row)
{
    struct copies c = {.memory = calloc(MOST_COPIES, sizeof *c.memory),
                       .cases = calloc(MOST_COPIES, sizeof *c.cases)};
    int status = c.memory && c.cases ? EXIT_OK : fail("out of memory");
    if (status == EXIT_OK) status = build_copies(b, row, &c);
    if (status == EXIT_OK && !c.cases->skip) status = run_case(b, row->op, &c);
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

static int run(struct op_bench *b, enum qrn_op_id op)
{
    if (b->options->format == FORMAT_JSON) b->results = json_array();
    const int status = run_rows(b, op);
    if (status != EXIT_OK || !b->results) {
        json_decref(b->results);
        return status;
    }
    return json_out(
        json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:o}", "op", b->options->op, "bits",
                  qrn_device_bits(b->dev), "threads", qrn_device_n_threads(b->dev),
                  "peak_read_gb_s", b->peaks.read_bytes * 1e-9, "peak_copy_gb_s",
                  b->peaks.copy_bytes * 1e-9, "peak_float32_gflop_s", b->peaks.float32_ops * 1e-9,
                  "peak_int8_gop_s", b->peaks.int8_ops * 1e-9, "results", b->results));
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
    catch_interrupt();
    status = run(&b, (enum qrn_op_id)op);
    qrn_device_close(b.dev);
    return status;
}
