/* SPDX-License-Identifier: MIT
 * What this machine reaches at best: reading memory, and float32 multiply-adds. */
#ifndef QUERN_TOOLS_PEAKS_H
#define QUERN_TOOLS_PEAKS_H

struct peaks {
    double read_bytes;  /* a second, from buffers larger than caches */
    double float32_ops; /* a second, a multiply-add being two, in registers */
};

/* With n_threads at the same time; takes 1.5 seconds.  0 where there is no memory. */
struct peaks measure_peaks(int n_threads);

#endif
