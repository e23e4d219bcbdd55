/* SPDX-License-Identifier: MIT
 * What a device with a clock of its own reaches at best: copies of its memory, matrix products. */
#include "peaks.h"

#include "bench_cases.h"
#include "core/timing.h"
#include "cublas.h"

enum { COPIES = 20, ROUNDS = 3, MATRIX = 8192 };
#define MATRIX_MEMORY ((size_t)1 << 30) /* who wants less measured does not want this either */

struct peaks measure_device_peaks(struct qrn_device *dev, size_t n_bytes)
{
    struct peaks peaks = {0};
    struct bench_memory m = {.dev = dev};
    size_t n_free, n_total;
    if (qrn_device_memory(dev, &n_free, &n_total, NULL) == QRN_OK && n_bytes > n_free / 4)
        n_bytes = n_free / 4;
    char *a = bench_bytes(&m, n_bytes), *b = bench_bytes(&m, n_bytes);
    for (int round = 0; a && b && round < ROUNDS; round++) {
        double ns = 0.0;
        if (qrn_time_copies(dev, a, b, n_bytes, COPIES, &ns, NULL) != QRN_OK || ns <= 0.0) break;
        const double rate = 2.0 * COPIES * (double)n_bytes / ns * 1e9;
        if (rate > peaks.copy_bytes) peaks.copy_bytes = rate;
    }
    bench_memory_free(&m);
    if (n_bytes >= MATRIX_MEMORY) peaks.matrix_bf16_ops = cublas_bf16_rate(dev, MATRIX);
    return peaks;
}
