/* SPDX-License-Identifier: MIT
 * sample. */
#include "backends/cuda/ranking_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(sample);

/* Scratch, one array after the other. */
struct scratch {
    size_t x, counts, bins, states, firsts, sums, equals, n_bytes;
};

static int64_t n_parts(int64_t n)
{
    return (n + QRN_SAMPLE_PART - 1) / QRN_SAMPLE_PART;
}

static struct scratch scratch_of(int64_t n)
{
    const size_t column = ((size_t)n * sizeof(float) + 15) / 16 * 16,
                 part = (size_t)n_parts(n) * sizeof(uint64_t);
    struct scratch s = {.counts = column, .bins = 2 * column};
    s.states = s.bins + (size_t)QRN_SAMPLE_PASSES * QRN_SAMPLE_BINS * sizeof(uint64_t);
    s.firsts = s.states + (QRN_SAMPLE_PASSES + 1) * sizeof(struct qrn_sample_state);
    s.sums = s.firsts + part;
    s.equals = s.sums + part;
    s.n_bytes = s.equals + part;
    return s;
}

static size_t scratch_bytes(const void *args, int n_threads)
{
    const struct qrn_sample_args *a = args;
    (void)n_threads;
    return scratch_of(a->logits.shape[0]).n_bytes;
}

/* Sums of n weights stay below 2^62. */
static int32_t bits_of(int64_t n)
{
    int32_t bits = 62;
    for (; n > 1; n = (n + 1) / 2) bits--;
    return bits < 40 ? bits : 40;
}

static struct qrn_sample_params params_of(const struct qrn_sample_args *a, char *scratch)
{
    const int64_t n = a->logits.shape[0];
    const struct scratch at = scratch_of(n);
    return (struct qrn_sample_params){
        .logits = a->logits.data,
        .history = a->history.n_dims ? a->history.data : NULL,
        .id = a->id.data,
        .probability = a->probability.n_dims ? a->probability.data : NULL,
        .x = (float *)(void *)(scratch + at.x),
        .counts = (int32_t *)(void *)(scratch + at.counts),
        .bins = (unsigned long long *)(void *)(scratch + at.bins),
        .states = (struct qrn_sample_state *)(void *)(scratch + at.states),
        .firsts = (unsigned long long *)(void *)(scratch + at.firsts),
        .sums = (unsigned long long *)(void *)(scratch + at.sums),
        .equals = (unsigned long long *)(void *)(scratch + at.equals),
        .n = n,
        .n_history = a->history.n_dims ? a->history.shape[0] : 0,
        .n_parts = n_parts(n),
        .seed = a->seed,
        .position = a->position,
        .temperature = a->temperature,
        .top_p = a->top_p,
        .min_p = a->min_p,
        .repeat_penalty = a->repeat_penalty,
        .presence_penalty = a->presence_penalty,
        .frequency_penalty = a->frequency_penalty,
        .top_k = a->top_k,
        .before = -1,
        .bits = bits_of(n)};
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function begin = {qrn_cuda_image_sample, "qrn_sample_begin", 0},
                                          penalise = {qrn_cuda_image_sample, "qrn_sample_penalise",
                                                      0},
                                          pass = {qrn_cuda_image_sample, "qrn_sample_pass", 0},
                                          sum = {qrn_cuda_image_sample, "qrn_sample_sum", 0},
                                          draw = {qrn_cuda_image_sample, "qrn_sample_draw", 0};
    struct qrn_sample_params p =
        params_of(args, (char *)(uintptr_t)((struct qrn_cuda_stream *)stream)->scratch);
    const struct qrn_cuda_grid all = {.n_blocks = p.n_parts, .n_threads = QRN_SAMPLE_THREADS},
                               one = {.n_blocks = 1, .n_threads = QRN_SAMPLE_THREADS};
    qrn_cuda_launch(stream, &begin, all, &p);
    if (p.n_history) {
        qrn_cuda_launch(stream, &penalise, one, &p);
        p.logits = p.x;
        qrn_cuda_launch(stream, &begin, all, &p);
    }
    const bool counts = p.top_k > 0 && p.top_k<p.n, weighs = p.top_p> 0.0f && p.top_p < 1.0f;
    if (p.temperature > 0.0f) {
        for (p.pass = counts ? 0 : 3; p.pass < (weighs   ? QRN_SAMPLE_PASSES
                                                : counts ? 3
                                                         : 0);
             p.pass++) {
            qrn_cuda_launch(stream, &pass, all, &p);
            p.before = p.pass;
        }
        qrn_cuda_launch(stream, &sum, all, &p);
    }
    qrn_cuda_launch(stream, &draw, one, &p);
}

const struct qrn_kernel qrn_cuda_sample_passes = {
    .op = QRN_OP_sample,
    .name = "cuda.sample.passes",
    .needs = QRN_CUDA_SM80,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
