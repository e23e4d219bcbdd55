/* SPDX-License-Identifier: MIT
 * argmax, top_k and sample in portable C. */
#include "backends/cpu/ranking_walk.h"
#include "backends/cpu/sample_walk.h"

static void argmax_run(void *lane, const void *args)
{
    argmax_walk(lane, args);
}

static void top_k_run(void *lane, const void *args)
{
    top_k_walk(lane, args, NULL);
}

static void sample_run(void *lane, const void *args)
{
    sample_walk(lane, args, NULL);
}

const struct qrn_kernel qrn_cpu_argmax_generic = {
    .op = QRN_OP_argmax,
    .name = "cpu.argmax.generic",
    .run = argmax_run,
};
const struct qrn_kernel qrn_cpu_top_k_generic = {
    .op = QRN_OP_top_k,
    .name = "cpu.top_k.generic",
    .run = top_k_run,
};
const struct qrn_kernel qrn_cpu_sample_generic = {
    .op = QRN_OP_sample,
    .name = "cpu.sample.generic",
    .scratch_bytes = sample_scratch,
    .run = sample_run,
};
