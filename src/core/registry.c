/* SPDX-License-Identifier: MIT
 * Which kernels there are, and which one runs a call. */
#include "core/device_impl.h"

#include <stdio.h>
#include <string.h>

static bool can_run(const struct qrn_device *dev, const struct qrn_kernel *kernel)
{
    return (kernel->needs & ~dev->features) == 0;
}

const struct qrn_kernel *qrn_kernel_at(const struct qrn_device *dev, enum qrn_op_id op, size_t i)
{
    for (int last = 0; last < 2; last++)
        for (const struct qrn_kernel *const *k = dev->backend->kernels; *k; k++) {
            const bool is_last = ((*k)->wants & ~dev->features) != 0;
            if ((*k)->op == op && can_run(dev, *k) && is_last == last && i-- == 0) return *k;
        }
    return NULL;
}

enum qrn_status qrn_kernel_choose(const struct qrn_device *dev, enum qrn_op_id op, const void *args,
                                  const struct qrn_kernel **out, struct qrn_error *err)
{
    const struct qrn_kernel *k = dev->preferred[op];
    if (k && (!k->supports || k->supports(args))) {
        *out = k;
        return QRN_OK;
    }
    for (size_t i = 0; (k = qrn_kernel_at(dev, op, i)) != NULL; i++)
        if (!k->supports || k->supports(args)) {
            *out = k;
            return QRN_OK;
        }
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s: no kernel of device %s takes these arguments",
                    qrn_op(op)->name, dev->bits);
}

bool qrn_kernel_info(const struct qrn_device *dev, size_t i_op, size_t i_kernel,
                     struct qrn_kernel_info *info)
{
    for (const struct qrn_kernel *const *k = dev->backend->kernels; *k; k++) {
        if ((size_t)(*k)->op != i_op || i_kernel-- != 0) continue;
        *info = (struct qrn_kernel_info){.name = (*k)->name,
                                         .usable = can_run(dev, *k),
                                         .serves = (*k)->serves ? (*k)->serves : ""};
        size_t used = 0;
        for (int bit = 0; dev->backend->feature_name(bit); bit++) {
            if (!((*k)->needs >> bit & 1u) || used + 32 > sizeof info->needs) continue;
            used += (size_t)snprintf(info->needs + used, sizeof info->needs - used, "%s%s",
                                     used ? " " : "", dev->backend->feature_name(bit));
        }
        return true;
    }
    return false;
}
