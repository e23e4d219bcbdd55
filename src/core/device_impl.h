/* SPDX-License-Identifier: MIT
 * Inside a device: what core keeps, and what a backend must offer. */
#ifndef QUERN_CORE_DEVICE_IMPL_H
#define QUERN_CORE_DEVICE_IMPL_H

#include <pthread.h>
#include <quern/device.h>
#include "core/kernel.h"

/* One recorded or direct call. */
struct qrn_step {
    const struct qrn_op *op;
    const struct qrn_kernel *kernel;
    const void *args;
    int lane;          /* the one that runs it, or QRN_ALL_LANES */
    size_t back;       /* it begins when what stood this many steps before it, and all earlier, is
                          done; 0: at once */
    size_t scratch_at; /* bytes into scratch */
    bool check_late;   /* numbers that op->check_data looks at may come from a step before it */
    uint32_t stays;    /* bit i: no step before it writes operand i, but through addresses */
};
#define QRN_ALL_LANES (-1)

/* A small copy from or to memory of the host that the device shares; n_bytes 0: none. */
struct qrn_shared_copy {
    void *to;
    const void *from;
    size_t n_bytes;
};

struct qrn_recording {
    const struct qrn_step *steps;
    size_t n_steps, scratch_bytes;
    struct qrn_shared_copy first, last; /* before all steps, behind all */
};

struct qrn_copies;
struct qrn_replays;

struct qrn_backend {
    const char *name;
    const struct qrn_kernel *const *kernels; /* NULL at the end; best first within an op */
    enum qrn_status (*open)(struct qrn_device *dev, const struct qrn_device_options *options,
                            struct qrn_error *err);
    void (*close)(struct qrn_device *dev);
    /* Runs the steps, those on one lane in order; scratch_bytes is for all of them together.  Where
     * check_late is not set the numbers inside tensors have been checked. */
    enum qrn_status (*execute)(struct qrn_device *dev, const struct qrn_step *steps, size_t n_steps,
                               size_t scratch_bytes, struct qrn_error *err);
    void *(*alloc)(struct qrn_device *dev, size_t n_bytes); /* zeroed; NULL when there is none */
    void (*free)(struct qrn_device *dev, void *memory, size_t n_bytes);
    void (*zero)(struct qrn_device *dev, void *memory, size_t n_bytes);
    const char *(*feature_name)(int bit); /* NULL past the last */

    /* NULL where the host reads and writes the device's memory itself.  Elsewhere core looks at no
     * numbers inside tensors, and kernels must bear any: they access nothing outside, and what
     * cannot be worked out becomes NaN. */
    const struct qrn_copies *copies;
    /* NULL where a recording is run by execute as often as it is submitted. */
    const struct qrn_replays *replays;
};

/* Between the host's memory and the device's; done on return.  dev->lock is held. */
struct qrn_copies {
    /* Queues a write; from does not change until the device was waited for. */
    enum qrn_status (*upload)(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                              struct qrn_error *err);
    /* Until all that was queued is done. */
    enum qrn_status (*wait)(struct qrn_device *dev, struct qrn_error *err);
    enum qrn_status (*write)(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                             struct qrn_error *err);
    enum qrn_status (*read)(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                            struct qrn_error *err);
    enum qrn_status (*within)(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                              struct qrn_error *err);
    /* Makes host memory readable and writable by the device at the same address, until it is
     * forgotten; begin and n_bytes are whole pages. */
    enum qrn_status (*share)(struct qrn_device *dev, void *begin, size_t n_bytes,
                             struct qrn_error *err);
    void (*unshare)(struct qrn_device *dev, void *begin);
    /* QRN_OK, or why nothing on the device works any more. */
    enum qrn_status (*state)(struct qrn_device *dev, struct qrn_error *err);
    /* Bytes of the device's memory: not in use by anybody, and all. */
    enum qrn_status (*memory)(struct qrn_device *dev, size_t *n_free, size_t *n_total,
                              struct qrn_error *err);
};

/* Recordings that are kept in a form of the backend's own, and work that is queued.  dev->lock is
 * held; a backend that has these has copies. */
struct qrn_replays {
    /* As execute, without waiting. */
    enum qrn_status (*queue)(struct qrn_device *dev, const struct qrn_step *steps, size_t n_steps,
                             size_t scratch_bytes, struct qrn_error *err);
    /* As queue, for steps begin .. end - 1 of a recording; *recorded is the backend's and NULL at
     * first.  Steps that were submitted once do not change until they are forgotten. */
    enum qrn_status (*submit)(struct qrn_device *dev, const struct qrn_recording *recording,
                              size_t begin, size_t end, void **recorded, struct qrn_error *err);
    void (*forget)(struct qrn_device *dev, void *recorded);
    /* Queues a copy within the device's memory. */
    enum qrn_status (*copy)(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                            struct qrn_error *err);
    /* Queues a copy that is no part of a recording. */
    enum qrn_status (*copy_shared)(struct qrn_device *dev, struct qrn_shared_copy copy,
                                   struct qrn_error *err);
    /* Notes that all is done which was queued so far; waits for that, and not for what was queued since.  turn: 0 or
     * 1, which of two notes it is. */
    enum qrn_status (*note)(struct qrn_device *dev, int turn, struct qrn_error *err);
    enum qrn_status (*wait_noted)(struct qrn_device *dev, int turn, struct qrn_error *err);
    /* The device's own clock: from when all that was queued before start is done until all that was
     * queued before stop is, which stop waits for.  Both NULL where there is none. */
    enum qrn_status (*clock_start)(struct qrn_device *dev, struct qrn_error *err);
    enum qrn_status (*clock_stop)(struct qrn_device *dev, double *ns, struct qrn_error *err);
};

struct qrn_device {
    const struct qrn_backend *backend;
    struct qrn_host host;
    uint64_t features;
    int n_threads;
    char bits[64];
    char model[128]; /* what a person calls it; "" when that cannot be told */
    const struct qrn_kernel *preferred[QRN_OP_COUNT]; /* from the options; NULL: as listed */
    pthread_mutex_t lock;                             /* one execute at a time */
    void *impl;                                       /* the backend's */
};

/* Kernel i of op that this device's machine can run, in the order of choice; NULL past the end. */
const struct qrn_kernel *qrn_kernel_at(const struct qrn_device *dev, enum qrn_op_id op, size_t i);

/* The one that runs args.  Errors: QRN_ERR_UNSUPPORTED. */
enum qrn_status qrn_kernel_choose(const struct qrn_device *dev, enum qrn_op_id op, const void *args,
                                  const struct qrn_kernel **out, struct qrn_error *err);

/* Runs one kernel that supports args, which have passed the checks: for tests and benches. */
enum qrn_status qrn_kernel_run(struct qrn_device *dev, const struct qrn_kernel *kernel,
                               const void *args, struct qrn_error *err);

/* What the typed functions of ops.h are: check, choose, run; or check, choose, record. */
enum qrn_status qrn_op_call(struct qrn_device *dev, enum qrn_op_id op, const void *args,
                            struct qrn_error *err);
void qrn_op_record(struct qrn_encoder *enc, enum qrn_op_id op, const void *args);

/* Submits ops begin .. end - 1 of a recording. */
enum qrn_status qrn_encoder_submit_range(struct qrn_encoder *enc, size_t begin, size_t end,
                                         struct qrn_error *err);

/* The same two without waiting, where the device works beside the host: memory that ops touch must
 * live, and what is uploaded must not change, until qrn_device_wait.  What fails on the device may be
 * told as late as then.  Reading a buffer waits, too. */
enum qrn_status qrn_op_queue(struct qrn_device *dev, enum qrn_op_id op, const void *args,
                             struct qrn_error *err);
enum qrn_status qrn_encoder_queue_range(struct qrn_encoder *enc, size_t begin, size_t end,
                                        struct qrn_error *err);
/* Queues a copy of host memory, best of a struct qrn_staging, to an address of the device. */
enum qrn_status qrn_device_upload(struct qrn_device *dev, void *to, const void *from,
                                  size_t n_bytes, struct qrn_error *err);
enum qrn_status qrn_device_wait(struct qrn_device *dev, struct qrn_error *err);

/* Copies with memory that the device shares, that is of a struct qrn_staging which is, and notes: see struct
 * qrn_replays, which has to be there. */
void qrn_encoder_set_copies(struct qrn_encoder *enc, struct qrn_shared_copy first,
                            struct qrn_shared_copy last); /* until it is reset */
enum qrn_status qrn_device_copy_shared(struct qrn_device *dev, struct qrn_shared_copy copy,
                                       struct qrn_error *err);
enum qrn_status qrn_device_note(struct qrn_device *dev, int turn, struct qrn_error *err);
enum qrn_status qrn_device_wait_noted(struct qrn_device *dev, int turn, struct qrn_error *err);

/* Whether the host may read and write the device's memory where it lies. */
static inline bool qrn_device_host_reads(const struct qrn_device *dev)
{
    return dev->backend->copies == NULL;
}

/* Whether somebody else holds the buffer too: then it must not be written. */
bool qrn_buffer_is_shared(const struct qrn_buffer *buffer);

#endif
