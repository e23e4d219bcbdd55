/* SPDX-License-Identifier: MIT
 * What this machine reaches at best: memory, and multiply-adds in registers. */
#ifndef QUERN_TOOLS_PEAKS_H
#define QUERN_TOOLS_PEAKS_H

#include <stddef.h>
#include <stdint.h>
#include <quern/device.h>

/* A second; a multiply-add is two operations.  0: not there. */
struct peaks {
    double read_bytes;
    double copy_bytes; /* read and written ones together */
    double float32_ops;
    double int8_ops; /* vpdpbusd */
    double amx_int8_ops, amx_bf16_ops;
    double matrix_bf16_ops; /* of a device: products of large bf16 matrices */
};

/* With n_threads at the same time, instruction sets of an open device's features, and memory of
 * n_bytes, which should be more than all caches; takes two or three seconds. */
struct peaks measure_peaks(int n_threads, uint64_t features, size_t n_bytes);

/* Of a device that has a clock of its own: copies of n_bytes; products of large matrices, if there is a
 * library for them and n_bytes are a gigabyte or more. */
struct peaks measure_device_peaks(struct qrn_device *dev, size_t n_bytes);

#endif
