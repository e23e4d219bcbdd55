/* SPDX-License-Identifier: MIT
 * What op tests share: seeded inputs, memory that ends at a guard page, poisoned outputs, every kernel
 * of the device in turn against the float64 reference. */
#ifndef QUERN_TESTS_OP_TEST_H
#define QUERN_TESTS_OP_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/device_impl.h"

/* --- seeded numbers (splitmix64) --- */
struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *r);
double rng_uniform(struct rng *r, double low, double high);
double rng_normal(struct rng *r);
int64_t rng_below(struct rng *r, int64_t n); /* 0 .. n - 1 */

/* --- memory: freed together by mem_free_all, which every test's end calls --- */
struct mem {
    void *blocks;
};
/* n_bytes whose end touches a page that faults, 64-byte aligned only if n_bytes is a multiple. */
void *mem_guarded(struct mem *m, size_t n_bytes);
/* A contiguous float32 tensor ending at a guard page; filled(...) with normal * scale. */
struct qrn_tensor mem_tensor(struct mem *m, enum qrn_dtype dtype, int n_dims, const int64_t *shape);
struct qrn_tensor mem_filled(struct mem *m, struct rng *r, double scale, int n_dims,
                             const int64_t *shape);
void mem_free_all(struct mem *m);

/* Devices with every set of features that matters on this machine, newest first: all, then AVX-512
 * VNNI off, AVX-512 off, AVX2 off; on Arm i8mm off, dotprod off, NEON off.  n_threads as given.  Opened once, closed by test_devices_close. */
#define MAX_DEVICES 10
struct devices {
    struct qrn_device *dev[MAX_DEVICES];
    size_t n;
};
void devices_open(struct devices *d, int n_threads);
/* The same, and a GPU, real or emulated, if there is one that has a kernel for the op.  It is the one
 * that the environment variable QRN_TEST_CUDA names: "real", the path of an emulator, or "" for none;
 * without the variable the emulator that was built with the tests.  Memory of mem_guarded is shared
 * with it; other memory of the host must not be given to ops that it runs.  For matmul it is there a
 * second time, with cuBLASLt, if that is there. */
void devices_open_for(struct devices *d, int n_threads, enum qrn_op_id op);
/* Whether that names the machine's own. */
bool op_test_gpu_is_real(void);
/* That GPU, opened once more; NULL when there is none. */
struct qrn_device *op_test_open_gpu(struct qrn_error *err);
struct qrn_device *op_test_open_gpu_apart(struct qrn_error *err); /* without joints */
/* The path of cuBLASLt, an emulated one or, on a real GPU, what QRN_CUDA_BLAS names, and that GPU with
 * it; NULL when there is none. */
const char *op_test_blas(void);
struct qrn_device *op_test_open_gpu_blas(struct qrn_error *err);
/* The same for tests of op, whose memory it shares from now on; NULL when there is none. */
struct qrn_device *op_test_open_gpu_for(enum qrn_op_id op);
void devices_close(struct devices *d);

/* Runs the reference of op into F64 copies of the written operands, then every kernel of dev that
 * supports args on poisoned outputs, and asserts for each written float operand
 *     max |got - want| <= tolerance * max(rms(want), floor)
 * and bytes around strided outputs unchanged.  Integer outputs must be equal.  Operands that are read
 * and written as the same view are restored between kernels.  what names the case in messages.
 * A GPU's kernels may leave out calls if they say what they serve.
 * Devices share kernels: one that has passed an equal case with as many threads is not run again. */
void op_test_against_reference(struct qrn_device *dev, enum qrn_op_id op, const void *args,
                               double tolerance, const char *what);
/* The same bits from the direct call with 1, 2 and 3 threads and from an encoder submitted twice; on a
 * GPU that has the op, the same among themselves. */
void op_test_same_bits(enum qrn_op_id op, const void *args, const char *what);
/* The call fails with that status and a text that contains the fragment. */
void op_test_fails(struct qrn_device *dev, enum qrn_op_id op, const void *args,
                   enum qrn_status status, const char *fragment);

#endif
