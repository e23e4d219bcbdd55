/* SPDX-License-Identifier: MIT
 * A joint of Gated DeltaNet: gdn_open_chunk of one token of more than a few sequences, and the gated norm behind. */
#include "backends/cuda/gdn.h"
#include "backends/cuda/joints.h"
#include "core/overlap.h"

/* A head's columns pass on to its norm by shared memory: nothing else of it may be what gdn_open_chunk touches. */
static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_gdn_open_chunk_args *a = steps[0].args;
    const struct qrn_rms_norm_args *n = steps[1].args;
    const struct qrn_tensor *o = &a->out;
    return !qrn_cuda_gdn_is_few(a, cuda->n_multiprocessors) && qrn_same_view(&n->x, o) &&
           n->residual.n_dims == 0 && n->sum.n_dims == 0 && !qrn_same_view(&n->gate, o) &&
           qrn_cuda_is_joined(&steps[1], steps, 1, &o, 1);
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    qrn_cuda_gdn_decode(s, steps[0].args, steps[1].args);
}

const struct qrn_cuda_joint qrn_cuda_joint_gdn_decode_norm = {
    .name = "gdn_decode_norm",
    .kernels = {&qrn_cuda_gdn_open_chunk_decode, &qrn_cuda_rms_norm_registers},
    .n_steps = 2,
    .matches = matches,
    .run = run,
};
