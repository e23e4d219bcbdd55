/* SPDX-License-Identifier: MIT
 * Files in memory behind struct qrn_source.  All in the header: fuzz targets use it too. */
#ifndef TESTS_SUPPORT_MEMORY_SOURCE_H
#define TESTS_SUPPORT_MEMORY_SOURCE_H

#include <stdbool.h>
#include <string.h>
#include <quern/host.h>

struct memory_file {
    const char *name; /* NULL: any name that no other file has */
    const void *bytes;
    size_t n_bytes;
};

struct memory_source {
    const struct memory_file *files;
    size_t n_files;
    bool copies;  /* offer no map: the library must read */
    int n_open;   /* opened and not closed */
    bool misused; /* a read outside the size */
};

static inline enum qrn_status memory_source_open(void *user, const char *name, void **file,
                                                 uint64_t *n_bytes, struct qrn_error *err)
{
    struct memory_source *s = user;
    const struct memory_file *found = NULL;
    (void)err;
    for (size_t i = 0; i < s->n_files; i++)
        if (s->files[i].name && strcmp(s->files[i].name, name) == 0) found = &s->files[i];
    for (size_t i = 0; i < s->n_files && !found; i++)
        if (!s->files[i].name) found = &s->files[i];
    if (!found) return QRN_ERR_IO;
    memcpy(file, &found, sizeof found);
    *n_bytes = found->n_bytes;
    s->n_open++;
    return QRN_OK;
}

static inline enum qrn_status memory_source_read(void *user, void *file, uint64_t offset, void *dst,
                                                 size_t n_bytes, struct qrn_error *err)
{
    const struct memory_file *f = file;
    (void)err;
    if (offset > f->n_bytes || n_bytes > f->n_bytes - offset) {
        ((struct memory_source *)user)->misused = true;
        return QRN_ERR_IO;
    }
    memcpy(dst, (const uint8_t *)f->bytes + offset, n_bytes);
    return QRN_OK;
}

static inline const void *memory_source_map(void *user, void *file)
{
    (void)user;
    return ((const struct memory_file *)file)->bytes;
}

static inline void memory_source_close(void *user, void *file)
{
    (void)file;
    ((struct memory_source *)user)->n_open--;
}

static inline struct qrn_source memory_source_interface(struct memory_source *s)
{
    return (struct qrn_source){.open = memory_source_open,
                               .read = memory_source_read,
                               .map = s->copies ? NULL : memory_source_map,
                               .close = memory_source_close,
                               .user = s};
}

#endif
