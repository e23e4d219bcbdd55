/* SPDX-License-Identifier: MIT
 * Pools that serve several devices under one budget. */
#ifndef QUERN_CORE_POOL_H
#define QUERN_CORE_POOL_H

#include <quern/device.h>

/* Anything: for those who write all of it before anybody reads it. */
enum qrn_pool_contents { QRN_POOL_ZEROS, QRN_POOL_ANYTHING };

/* As qrn_pool_acquire, of another device's memory.  The device outlives the pool and its buffers. */
enum qrn_status qrn_pool_acquire_on(struct qrn_pool *pool, struct qrn_device *dev, size_t n_bytes,
                                    enum qrn_pool_contents contents, struct qrn_buffer **out,
                                    struct qrn_error *err);

#endif
