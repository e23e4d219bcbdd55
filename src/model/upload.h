/* SPDX-License-Identifier: MIT
 * Bytes on their way to a device whose memory the host does not reach: two pieces of pinned memory in
 * turn, one of which is filled while the device copies from the other. */
#ifndef QUERN_MODEL_UPLOAD_H
#define QUERN_MODEL_UPLOAD_H

#include "core/staging.h"

#define QRN_UPLOAD_BYTES ((size_t)8 << 20)

struct qrn_upload {
    struct qrn_device *dev;
    struct qrn_staging staging[2];
    int turn; /* the one that is filled */
    char *to; /* where its n bytes go */
    size_t n;
    struct qrn_buffer *room; /* memory of the device to work in */
};

enum qrn_status qrn_upload_begin(struct qrn_upload *u, struct qrn_device *dev,
                                 struct qrn_error *err);
/* n bytes from the host to that address of the device, now or later: bytes that follow each other
 * there are sent together. */
enum qrn_status qrn_upload_write(struct qrn_upload *u, void *to, const void *from, size_t n,
                                 struct qrn_error *err);
/* All that was written is on its way: what is queued after this finds it there. */
enum qrn_status qrn_upload_flush(struct qrn_upload *u, struct qrn_error *err);
/* n bytes at least of the device's memory, the same at each call that needs no more. */
enum qrn_status qrn_upload_room(struct qrn_upload *u, size_t n, char **out, struct qrn_error *err);
/* All that was flushed is there. */
enum qrn_status qrn_upload_end(struct qrn_upload *u, struct qrn_error *err);

#endif
