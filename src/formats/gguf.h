/* SPDX-License-Identifier: MIT
 * GGUF version 3 (and 2, which has the same layout): reading and writing. */
#ifndef QUERN_FORMATS_GGUF_H
#define QUERN_FORMATS_GGUF_H

#include <quern/span.h>
#include "formats/archive.h"
#include "formats/file.h"

enum qrn_gguf_type {
    QRN_GGUF_U8, QRN_GGUF_I8, QRN_GGUF_U16, QRN_GGUF_I16, QRN_GGUF_U32, QRN_GGUF_I32, QRN_GGUF_F32,
    QRN_GGUF_BOOL, QRN_GGUF_STRING, QRN_GGUF_ARRAY, QRN_GGUF_U64, QRN_GGUF_I64, QRN_GGUF_F64,
    QRN_GGUF_TYPE_COUNT
};

/* One metadata value.  Scalars are widened; arrays keep their bytes in the file. */
struct qrn_gguf_value {
    struct qrn_span key;
    enum qrn_gguf_type type, element; /* element: of an array */
    union {
        uint64_t u; /* U8 .. U64, BOOL */
        int64_t i;  /* I8 .. I64 */
        double f;   /* F32, F64 */
        struct qrn_span string;
        struct {
            const uint8_t *bytes;
            uint64_t n;
        } array; /* strings inside: u64 length and bytes, checked on opening */
    } as;
};

struct qrn_gguf {
    struct qrn_gguf_value *values; /* of the first file of a split set, sorted by key */
    size_t n_values;
    struct qrn_archive archive; /* the tensors of all files */
    struct qrn_file *files;
    size_t n_files;
    struct qrn_allocator allocator;
};

/* Opens path, or name in source (source wins if not NULL), and the other files of a split set
 * ("x-00001-of-00003.gguf").  Everything is checked: sizes, offsets, overlaps, duplicate names,
 * types of keys that we use later.  Tensors of unknown types are listed.
 * Errors: QRN_ERR_IO, QRN_ERR_FORMAT, QRN_ERR_MEMORY, QRN_ERR_UNSUPPORTED (big-endian, version). */
enum qrn_status qrn_gguf_open(const char *path, const struct qrn_source *source,
                              const struct qrn_host *host, struct qrn_gguf *gguf,
                              struct qrn_error *err);
void qrn_gguf_close(struct qrn_gguf *gguf); /* zeroed structs are allowed */

/* NULL if the key is absent. */
const struct qrn_gguf_value *qrn_gguf_find(const struct qrn_gguf *gguf, const char *key);

/* Reads as an integer (any integer type or bool), a number, a bool; false if absent, of another
 * kind or out of the range of the result.  Floats that are whole are not integers. */
bool qrn_gguf_i64(const struct qrn_gguf *gguf, const char *key, int64_t *out);
bool qrn_gguf_f64(const struct qrn_gguf *gguf, const char *key, double *out);
bool qrn_gguf_string(const struct qrn_gguf *gguf, const char *key, struct qrn_span *out);

/* Element i of an array of integers/bools, numbers, strings; false as above.  Strings are found by
 * walking: use qrn_gguf_strings to take them all. */
bool qrn_gguf_array_i64(const struct qrn_gguf_value *value, uint64_t i, int64_t *out);
bool qrn_gguf_array_f64(const struct qrn_gguf_value *value, uint64_t i, double *out);
/* Writes up to n spans; the array has value->as.array.n. false if it is not one of strings. */
bool qrn_gguf_strings(const struct qrn_gguf_value *value, struct qrn_span *out, uint64_t n);

/* --- writing --- */

/* A file being written: metadata first, then the list of tensors, then their bytes in order.
 * Errors stick; finish returns the first. */
struct qrn_gguf_writer;

enum qrn_status qrn_gguf_writer_create(const char *path, const struct qrn_host *host,
                                       struct qrn_gguf_writer **out, struct qrn_error *err);
void qrn_gguf_write_u32(struct qrn_gguf_writer *w, const char *key, uint32_t value);
void qrn_gguf_write_f32(struct qrn_gguf_writer *w, const char *key, float value);
void qrn_gguf_write_bool(struct qrn_gguf_writer *w, const char *key, bool value);
void qrn_gguf_write_string(struct qrn_gguf_writer *w, const char *key, struct qrn_span value);
void qrn_gguf_write_i32s(struct qrn_gguf_writer *w, const char *key, const int32_t *v, uint64_t n);
void qrn_gguf_write_bools(struct qrn_gguf_writer *w, const char *key, const bool *v, uint64_t n);
void qrn_gguf_write_strings(struct qrn_gguf_writer *w, const char *key, const struct qrn_span *v,
                            uint64_t n);
/* Copies a value of a file that was read, as it is. */
void qrn_gguf_write_value(struct qrn_gguf_writer *w, const struct qrn_gguf_value *value);
/* Announces a tensor; shape outermost first. */
void qrn_gguf_write_tensor(struct qrn_gguf_writer *w, const char *name, enum qrn_dtype dtype,
                           int n_dims, const int64_t *shape);
/* Appends bytes of the tensors, in the order announced; any cut into calls. The first call writes
 * the header. */
void qrn_gguf_write_data(struct qrn_gguf_writer *w, const void *bytes, size_t n_bytes);
/* The first failure so far: whether going on makes sense. */
enum qrn_status qrn_gguf_writer_status(const struct qrn_gguf_writer *w);
/* Checks that all bytes came, closes, frees.  On failure the file is removed. */
enum qrn_status qrn_gguf_writer_finish(struct qrn_gguf_writer *w, struct qrn_error *err);
/* Removes the file, frees. */
void qrn_gguf_writer_discard(struct qrn_gguf_writer *w);

#endif
