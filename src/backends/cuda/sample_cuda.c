/* SPDX-License-Identifier: MIT
 * sample. */
#include "backends/cuda/ranking_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(sample);

static size_t scratch_bytes(const void *args, int n_threads)
{
    const struct qrn_sample_args *a = args;
    (void)n_threads;
    return (size_t)a->logits.shape[0] * (sizeof(float) + sizeof(int32_t));
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_sample, "qrn_sample", 0};
    const struct qrn_sample_args *a = args;
    float *x = (float *)(uintptr_t)((struct qrn_cuda_stream *)stream)->scratch;
    const struct qrn_sample_params p = {.logits = a->logits.data,
                                        .history = a->history.n_dims ? a->history.data : NULL,
                                        .id = a->id.data,
                                        .probability =
                                            a->probability.n_dims ? a->probability.data : NULL,
                                        .x = x,
                                        .counts = (int32_t *)(x + a->logits.shape[0]),
                                        .n = a->logits.shape[0],
                                        .n_history = a->history.n_dims ? a->history.shape[0] : 0,
                                        .seed = a->seed,
                                        .position = a->position,
                                        .temperature = a->temperature,
                                        .top_p = a->top_p,
                                        .min_p = a->min_p,
                                        .repeat_penalty = a->repeat_penalty,
                                        .presence_penalty = a->presence_penalty,
                                        .frequency_penalty = a->frequency_penalty,
                                        .top_k = a->top_k};
    qrn_cuda_launch(stream, &f, (struct qrn_cuda_grid){.n_blocks = 1, .n_threads = 1024}, &p);
}

const struct qrn_kernel qrn_cuda_sample_block = {
    .op = QRN_OP_sample,
    .name = "cuda.sample.block",
    .needs = QRN_CUDA_SM80,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
