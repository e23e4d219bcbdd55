/* SPDX-License-Identifier: MIT
 * quern ops: the registry of ops and kernels. */
#include <stdio.h>
#include <string.h>

#include "core/device_impl.h"
#include "json_out.h"
#include "open_device.h"
#include "report.h"

/* The kernel that is asked first on this device, or NULL. */
static const char *picked(const struct qrn_device *dev, size_t i_op)
{
    const struct qrn_kernel *k = dev->preferred[i_op];
    if (!k) k = qrn_kernel_at(dev, (enum qrn_op_id)i_op, 0);
    return k ? k->name : NULL;
}

static bool is_picked(const struct qrn_kernel_info *info, const char *pick)
{
    return pick && strcmp(info->name, pick) == 0;
}

static void print_text(const struct qrn_device *dev)
{
    printf("device %s, %d threads; kernels in the order of choice: a call goes to the first that\n"
           "serves it; * asked first here, - not on this machine\n",
           qrn_device_bits(dev), qrn_device_n_threads(dev));
    const char *name;
    for (size_t i = 0; (name = qrn_op_name(i)); i++) {
        printf("%s\n", name);
        const char *pick = picked(dev, i);
        struct qrn_kernel_info info;
        for (size_t k = 0; qrn_kernel_info(dev, i, k, &info); k++) {
            const char mark = is_picked(&info, pick) ? '*' : info.usable ? ' ' : '-';
            printf("  %c %-*s%s\n", mark, *info.needs ? 45 : 0, info.name, info.needs);
            if (*info.serves) printf("      %s\n", info.serves);
        }
    }
}

static json_t *kernels_json(const struct qrn_device *dev, size_t i_op)
{
    json_t *kernels = json_array();
    const char *pick = picked(dev, i_op);
    struct qrn_kernel_info info;
    for (size_t k = 0; qrn_kernel_info(dev, i_op, k, &info); k++) {
        json_array_append_new(kernels,
                              json_pack("{s:s, s:s, s:b, s:b, s:s}", "name", info.name, "needs",
                                        info.needs, "usable", info.usable, "picked",
                                        is_picked(&info, pick), "serves", info.serves));
    }
    return kernels;
}

static int print_json(const struct qrn_device *dev)
{
    json_t *ops = json_array();
    const char *name;
    for (size_t i = 0; (name = qrn_op_name(i)); i++) {
        json_array_append_new(
            ops, json_pack("{s:s, s:o}", "name", name, "kernels", kernels_json(dev, i)));
    }
    return json_out(json_pack("{s:s, s:s, s:i, s:o}", "device", qrn_device_name(dev), "bits",
                              qrn_device_bits(dev), "threads", qrn_device_n_threads(dev), "ops",
                              ops));
}

int cmd_ops(const struct options *o)
{
    struct qrn_device *dev;
    int status = open_device(o, &dev);
    if (status != EXIT_OK) return status;
    if (o->json) {
        status = print_json(dev);
    } else {
        print_text(dev);
    }
    qrn_device_close(dev);
    return status;
}
