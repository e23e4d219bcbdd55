/* SPDX-License-Identifier: MIT
 * Small copies from and to memory of the host that the device shares, at the ends of recordings and between them: by a
 * kernel, for copy engines take longer between two recordings (docs/experiments_gpu.md).  And notes, which tell
 * how far the device has come without waiting for all that was queued. */
#ifndef QUERN_BACKENDS_CUDA_SHARED_H
#define QUERN_BACKENDS_CUDA_SHARED_H

#include "backends/cuda/launch.h"

/* Whole words. */
void qrn_cuda_launch_copy(struct qrn_cuda_stream *s, const struct qrn_shared_copy *copy);

/* As struct qrn_replays has them. */
enum qrn_status qrn_cuda_copy_shared(struct qrn_device *dev, struct qrn_shared_copy copy,
                                     struct qrn_error *err);
enum qrn_status qrn_cuda_note(struct qrn_device *dev, int turn, struct qrn_error *err);
enum qrn_status qrn_cuda_wait_noted(struct qrn_device *dev, int turn, struct qrn_error *err);
void qrn_cuda_notes_destroy(struct qrn_cuda *cuda); /* the context is current */

#endif
