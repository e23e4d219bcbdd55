/* SPDX-License-Identifier: MIT
 * Snapshots in memory: a fork that nobody appends to. */
#include "base/error.h"
#include "base/memory.h"
#include "model/seq.h"

struct qrn_snapshot {
    struct qrn_seq *seq;
};

enum qrn_status qrn_snapshot_take(const struct qrn_seq *seq, struct qrn_snapshot **out,
                                  struct qrn_error *err)
{
    const struct qrn_allocator *a = &seq->model->host.allocator;
    struct qrn_snapshot *snapshot = qrn_alloc_zeroed(a, sizeof *snapshot);
    if (!snapshot) return qrn_fail_memory(err, sizeof *snapshot, "a snapshot");
    const enum qrn_status s = qrn_seq_fork(seq, &snapshot->seq, err);
    if (s != QRN_OK) {
        qrn_free(a, snapshot, sizeof *snapshot);
        return s;
    }
    *out = snapshot;
    return QRN_OK;
}

enum qrn_status qrn_snapshot_restore(const struct qrn_snapshot *snapshot, struct qrn_seq **out,
                                     struct qrn_error *err)
{
    return qrn_seq_fork(snapshot->seq, out, err);
}

void qrn_snapshot_free(struct qrn_snapshot *snapshot)
{
    if (!snapshot) return;
    const struct qrn_allocator a = snapshot->seq->model->host.allocator;
    qrn_seq_destroy(snapshot->seq);
    qrn_free(&a, snapshot, sizeof *snapshot);
}
