/* SPDX-License-Identifier: MIT
 * Devices, their memory, and recorded work.
 *
 * Thread contract: a device may be used from any thread; its work is done one call at a time.
 * Buffers may be retained and released from any thread.  A pool may be used from any thread.  An
 * encoder belongs to one thread at a time. */
#ifndef QUERN_DEVICE_H
#define QUERN_DEVICE_H

#include <quern/host.h>
#include <quern/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct qrn_device;
struct qrn_buffer;
struct qrn_pool;
struct qrn_encoder;

/* --- devices --- */

/** Whether tile instructions (AMX) may be used.  Auto: where the processor has them, the system grants
 * them to this process, and a child process has shown that they work. */
enum qrn_amx { QRN_AMX_AUTO, QRN_AMX_OFF };

/** All zero: the CPU, a thread for each core this process may use, malloc, no limits. */
struct qrn_device_options {
    const char *name;                      /* "cpu" or "cuda"; NULL: "cpu" */
    int n_threads;                         /* 0: one for each core the process may run on */
    const struct qrn_thread_pool *threads; /* copied; NULL: threads of our own */
    struct qrn_host host;
    const char *cpu_disable; /* comma-separated CPU features not to use: "avx512f,fma"; NULL: the
                                environment variable QRN_CPU_DISABLE; "": none */
    const char *kernels;     /* comma-separated op=kernel to prefer: "rms_norm=cpu.rms_norm.avx2";
                                NULL: the environment variable QRN_KERNEL; "": none */
    enum qrn_amx amx;
    /* Of the device "cuda", which a build may leave out; n_threads, threads and amx say nothing to it. */
    const char *cuda_driver; /* path of the driver's library; NULL: the environment variable
                                QRN_CUDA_DRIVER; "": libcuda.so.1, where the system finds it */
    const char *cuda_blas;   /* path of the library cuBLASLt, version 12 or later, for products of many
                                rows of bf16 in any order; "": none; NULL: the same in the environment
                                variable QRN_CUDA_BLAS.  Where that is not set: the first that the
                                system finds and that works of libcublasLt.so.13, .so.12 and .so, on
                                GPUs other than of compute capability 9.0 (for which quern has
                                products of its own), and with the system's driver only */
    int cuda_device;         /* which GPU, from 0 on, as the driver counts them */
    void *cuda_context;      /* a CUcontext to work in, which must outlive the device; cuda_device is
                                then not looked at.  NULL: the GPU's primary context */
    void *cuda_stream;       /* a CUstream of that context to work on; NULL: one of our own */
    bool cuda_apart;         /* each recorded op by a launch of its own, also where one could do several: the
                                same bits, slower */
    bool cuda_alone;         /* nothing else on the GPU, of this process or of others by MPS, waits for blocks
                                of its own launch while this device works: launches that do need not be
                                cooperative, and a token takes less time.  If it is not so they may wait for
                                ever.  Not looked at in a context that was given, or under MPS */
};

/**
 * Opens a device.  Errors: QRN_ERR_ARGUMENT (unknown device, feature, op or kernel name; negative
 * n_threads; a value of amx that is none; no such GPU), QRN_ERR_UNSUPPORTED (a kernel that this
 * machine cannot run; no driver, or one too old; the same of a cuBLASLt that is named),
 * QRN_ERR_MEMORY, QRN_ERR_DEVICE (threads cannot be started; the driver fails).
 *
 * A GPU that has failed in the midst of its work is lost: each call on such a device is
 * QRN_ERR_DEVICE with the reason.  Other devices are not touched by it.
 */
QRN_API enum qrn_status qrn_device_open(const struct qrn_device_options *options,
                                        struct qrn_device **out, struct qrn_error *err);

/** Everything made on the device must be gone.  NULL is allowed. */
QRN_API void qrn_device_close(struct qrn_device *dev);

QRN_API const char *qrn_device_name(const struct qrn_device *dev); /* "cpu", "cuda" */
QRN_API int qrn_device_n_threads(const struct qrn_device *dev);

/** What a person calls it: "NVIDIA H200"; "" when that cannot be told.  Lives as long as dev. */
QRN_API const char *qrn_device_model(const struct qrn_device *dev);

/** Bytes of memory that buffers come from: what nobody uses now, and all of it; 0 when that cannot be
 * told.  Errors: QRN_ERR_DEVICE. */
QRN_API enum qrn_status qrn_device_memory(struct qrn_device *dev, size_t *n_free, size_t *n_total,
                                          struct qrn_error *err);

/** What decides the bits of a result on this device: "cpu avx512vnni", "cuda sm_90".  Lives as long
 * as dev. */
QRN_API const char *qrn_device_bits(const struct qrn_device *dev);

/* --- buffers --- */

/** n_bytes of zeroed, 64-byte aligned device memory with one reference; n_bytes > 0.
 * Errors: QRN_ERR_ARGUMENT, QRN_ERR_MEMORY. */
QRN_API enum qrn_status qrn_buffer_create(struct qrn_device *dev, size_t n_bytes,
                                          struct qrn_buffer **out, struct qrn_error *err);

/** A part of parent as a buffer of its own, which keeps parent alive.  offset counts from the
 * beginning of parent, also when that is a slice.  Errors: QRN_ERR_ARGUMENT, QRN_ERR_MEMORY. */
QRN_API enum qrn_status qrn_buffer_slice(struct qrn_buffer *parent, size_t offset, size_t n_bytes,
                                         struct qrn_buffer **out, struct qrn_error *err);
QRN_API void qrn_buffer_retain(struct qrn_buffer *buffer);
QRN_API void qrn_buffer_release(struct qrn_buffer *buffer); /* NULL is allowed */
/** An address of the device: the host may use it only where the device is the CPU. */
QRN_API void *qrn_buffer_data(const struct qrn_buffer *buffer);
QRN_API size_t qrn_buffer_size(const struct qrn_buffer *buffer); /* a slice's own */

/** Copies between memory of the host and a buffer, or between buffers of one device (which may be
 * the same one, ranges apart); done on return, and after all that was submitted before.
 * Errors: QRN_ERR_ARGUMENT (outside of a buffer; two devices; ranges that overlap),
 * QRN_ERR_DEVICE. */
QRN_API enum qrn_status qrn_buffer_write(struct qrn_buffer *buffer, size_t offset, const void *data,
                                         size_t n_bytes, struct qrn_error *err);
QRN_API enum qrn_status qrn_buffer_read(const struct qrn_buffer *buffer, size_t offset, void *data,
                                        size_t n_bytes, struct qrn_error *err);
QRN_API enum qrn_status qrn_buffer_copy(struct qrn_buffer *dst, size_t dst_offset,
                                        const struct qrn_buffer *src, size_t src_offset,
                                        size_t n_bytes, struct qrn_error *err);

/** A contiguous tensor at offset bytes into buffer, with the rest of the buffer as its extent.
 * Errors: QRN_ERR_ARGUMENT, QRN_ERR_SHAPE (does not fit). */
QRN_API enum qrn_status qrn_buffer_tensor(const struct qrn_buffer *buffer, size_t offset,
                                          enum qrn_dtype dtype, int n_dims, const int64_t *shape,
                                          struct qrn_tensor *out, struct qrn_error *err);

/* --- pools --- */

struct qrn_pool_stats {
    size_t budget_bytes, in_use_bytes, free_bytes, peak_bytes; /* peak of in use + free */
};

/** Keeps released buffers for the next acquire of about the same size.  budget_bytes bounds what is
 * in use and kept together; 0: none. */
QRN_API enum qrn_status qrn_pool_create(struct qrn_device *dev, size_t budget_bytes,
                                        struct qrn_pool **out, struct qrn_error *err);
/** A zeroed buffer of exactly n_bytes; released with qrn_buffer_release, as often as retained, which
 * returns the memory to the pool.  Errors: QRN_ERR_ARGUMENT, QRN_ERR_LIMIT, QRN_ERR_MEMORY. */
QRN_API enum qrn_status qrn_pool_acquire(struct qrn_pool *pool, size_t n_bytes,
                                         struct qrn_buffer **out, struct qrn_error *err);
QRN_API void qrn_pool_trim(struct qrn_pool *pool); /* gives back what is not in use */
QRN_API struct qrn_pool_stats qrn_pool_stats(struct qrn_pool *pool);
/** Frees what is not in use; buffers still in use keep working and are freed on release. */
QRN_API void qrn_pool_destroy(struct qrn_pool *pool);

/* --- encoders --- */

/** An empty recording.  Ops are added by the qrn_encode_<op> functions of ops.h: arguments are
 * checked and copied at once, a kernel is chosen, and the first failure sticks until submit. */
QRN_API enum qrn_status qrn_encoder_create(struct qrn_device *dev, struct qrn_encoder **out,
                                           struct qrn_error *err);
QRN_API void qrn_encoder_destroy(struct qrn_encoder *enc); /* NULL is allowed */
QRN_API void qrn_encoder_reset(struct qrn_encoder *enc);   /* empty again, no failure */

/**
 * Runs what was recorded, as if each op were called in turn; may be called again (replay), after
 * which tensors' memory may have changed, their shapes not.  Ops whose reads and writes do not
 * touch may run side by side.  Returns the failure that recording left, else what the ops return.
 */
QRN_API enum qrn_status qrn_encoder_submit(struct qrn_encoder *enc, struct qrn_error *err);
/** Waits until what was submitted is done (on the CPU submit has waited already). */
QRN_API enum qrn_status qrn_encoder_wait(struct qrn_encoder *enc, struct qrn_error *err);
QRN_API size_t qrn_encoder_n_ops(const struct qrn_encoder *enc);

/* --- the registry --- */

struct qrn_kernel_info {
    const char *name; /* "cpu.rms_norm.avx2"; static */
    char needs[96];   /* "avx2 fma"; "" for any machine */
    bool usable;      /* on this device */
    /* Which calls it serves and how; "" for all calls of the op; static */
    const char *serves;
};
/** Names of ops, in a fixed order; NULL past the end.  Any thread. */
QRN_API const char *qrn_op_name(size_t i_op);
/** Kernel i of an op in the order of choice; false past the end. */
QRN_API bool qrn_kernel_info(const struct qrn_device *dev, size_t i_op, size_t i_kernel,
                             struct qrn_kernel_info *info);

#ifdef __cplusplus
}
#endif
#endif
