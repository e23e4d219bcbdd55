/* SPDX-License-Identifier: MIT
 * Bytes on their way to a device. */
#include "model/upload.h"

#include <string.h>
#include "base/error.h"

enum qrn_status qrn_upload_begin(struct qrn_upload *u, struct qrn_device *dev,
                                 struct qrn_error *err)
{
    *u = (struct qrn_upload){.dev = dev};
    enum qrn_status s = qrn_staging_create(dev, QRN_UPLOAD_BYTES, &u->staging[0], err);
    if (s == QRN_OK) s = qrn_staging_create(dev, QRN_UPLOAD_BYTES, &u->staging[1], err);
    if (s != QRN_OK) qrn_staging_free(&u->staging[0]);
    return s;
}

/* The wait is for what was sent from the other piece, while this one was filled. */
enum qrn_status qrn_upload_flush(struct qrn_upload *u, struct qrn_error *err)
{
    if (u->n == 0) return QRN_OK;
    QRN_TRY(qrn_device_wait(u->dev, err));
    QRN_TRY(qrn_device_upload(u->dev, u->to, u->staging[u->turn].bytes, u->n, err));
    u->turn = 1 - u->turn;
    u->n = 0;
    return QRN_OK;
}

enum qrn_status qrn_upload_write(struct qrn_upload *u, void *to, const void *from, size_t n,
                                 struct qrn_error *err)
{
    for (size_t done = 0, some; done < n; done += some) {
        char *at = (char *)to + done;
        if (u->n == QRN_UPLOAD_BYTES || (u->n > 0 && at != u->to + u->n))
            QRN_TRY(qrn_upload_flush(u, err));
        if (u->n == 0) u->to = at;
        some = n - done < QRN_UPLOAD_BYTES - u->n ? n - done : QRN_UPLOAD_BYTES - u->n;
        memcpy(u->staging[u->turn].bytes + u->n, (const char *)from + done, some);
        u->n += some;
    }
    return QRN_OK;
}

enum qrn_status qrn_upload_room(struct qrn_upload *u, size_t n, char **out, struct qrn_error *err)
{
    if (!u->room || qrn_buffer_size(u->room) < n) {
        QRN_TRY(qrn_device_wait(u->dev, err));
        qrn_buffer_release(u->room);
        u->room = NULL;
        QRN_TRY(qrn_buffer_create(u->dev, n, &u->room, err));
    }
    *out = qrn_buffer_data(u->room);
    return QRN_OK;
}

enum qrn_status qrn_upload_end(struct qrn_upload *u, struct qrn_error *err)
{
    if (!u->dev) return QRN_OK;
    const enum qrn_status s = qrn_device_wait(u->dev, err);
    for (int i = 0; i < 2; i++) qrn_staging_free(&u->staging[i]);
    qrn_buffer_release(u->room);
    *u = (struct qrn_upload){0};
    return s;
}
