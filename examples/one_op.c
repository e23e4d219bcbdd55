/* SPDX-License-Identifier: MIT
 * One op on plain buffers: the root-mean-square norm of two rows. */
#include <quern/quern.h>
#include <stdio.h>

int main(void)
{
    float x[2][4] = {{1, 2, 3, 4}, {-2, 0, 2, 0}}, out[2][4];
    struct qrn_device *dev;
    struct qrn_error err;
    if (qrn_device_open(NULL, &dev, &err) != QRN_OK) return puts(err.text), 1;
    const struct qrn_rms_norm_args args = {.x = qrn_tensor_2d(QRN_F32, x, 2, 4),
                                           .out = qrn_tensor_2d(QRN_F32, out, 2, 4),
                                           .eps = 1e-6f};
    const enum qrn_status status = qrn_rms_norm(dev, &args, &err);
    qrn_device_close(dev);
    if (status != QRN_OK) return puts(err.text), 1;
    for (int i = 0; i < 2; i++)
        printf("%8.4f %8.4f %8.4f %8.4f\n", (double)out[i][0], (double)out[i][1], (double)out[i][2],
               (double)out[i][3]);
    return 0;
}
