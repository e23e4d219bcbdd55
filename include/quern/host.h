/* SPDX-License-Identifier: MIT
 * What the library asks of the program around it: memory, a log, files, threads.  Every part is
 * optional; a struct of zeros means malloc, silence, the file system and threads of our own. */
#ifndef QUERN_HOST_H
#define QUERN_HOST_H

#include <quern/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory.  Both functions set, or both NULL; called from any thread. */
struct qrn_allocator {
    /* n_bytes > 0, alignment a power of two; NULL when there is none.  Contents undefined.
     * Memory of 2 MiB and more is asked for with an alignment of 2 MiB, so that it may lie in huge
     * pages; whether it does is left to the allocator, or without one to the system. */
    void *(*alloc)(void *user, size_t n_bytes, size_t alignment);
    void (*free)(void *user, void *memory, size_t n_bytes); /* the n_bytes that alloc was given */
    void *user;
};

enum qrn_log_level { QRN_LOG_ERROR, QRN_LOG_WARNING, QRN_LOG_INFO, QRN_LOG_DEBUG };

/** A log.  line is one line without its newline, valid during the call; called from any thread. */
struct qrn_logger {
    void (*write)(void *user, enum qrn_log_level level, const char *line);
    void *user;
    enum qrn_log_level level; /* lines above it are not made */
};

/**
 * Files by name.  The names are those that a model's directory would have ("config.json",
 * "model-00001-of-00002.safetensors") or the one name of a single-file model.
 */
struct qrn_source {
    /* Opens name; writes a handle and the size.  A file that is absent is QRN_ERR_IO. */
    enum qrn_status (*open)(void *user, const char *name, void **file, uint64_t *n_bytes,
                            struct qrn_error *err);
    /* Copies n_bytes from offset; the library never asks beyond the size that open told. */
    enum qrn_status (*read)(void *user, void *file, uint64_t offset, void *dst, size_t n_bytes,
                            struct qrn_error *err);
    /* Optional: the whole file in memory, unchanged until close; NULL if it is not there. */
    const void *(*map)(void *user, void *file);
    void (*close)(void *user, void *file);
    void *user;
};

/**
 * Threads.  run calls fn(arg, 0) ... fn(arg, n - 1), all of them at the same time on threads of
 * their own (the caller's may be one): they wait for each other inside, so running one after the
 * other would never end.  It returns when all have returned.  n is at most n_threads.
 */
struct qrn_thread_pool {
    void (*run)(void *user, int n, void (*fn)(void *arg, int i), void *arg);
    int n_threads;
    void *user;
};

/** All of it, given where a device or a model is opened.  The structs are copied, users are not. */
struct qrn_host {
    struct qrn_allocator allocator;
    struct qrn_logger logger;
};

#ifdef __cplusplus
}
#endif
#endif
