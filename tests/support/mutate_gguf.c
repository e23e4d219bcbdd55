/* SPDX-License-Identifier: MIT
 * Mutations of GGUF bytes, field by field. */
#include "support/mutate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS 4096

/* A number of the file, or the bytes of a string. */
struct field {
    size_t at, n;
    bool is_text;
};

/* The fields of a good file, and where its entries (values and tensors) begin. */
struct map {
    struct field fields[MAX_FIELDS];
    size_t entries[MAX_FIELDS / 4];
    size_t n_fields, n_entries, n_values, n_head;
};

static uint64_t number(const struct mutate_bytes *b, size_t at, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n && at + i < b->n; i++) v |= (uint64_t)b->bytes[at + i] << (8 * i);
    return v;
}

static size_t add(struct map *m, size_t at, size_t n, bool is_text)
{
    if (n && m->n_fields < MAX_FIELDS) m->fields[m->n_fields++] = (struct field){at, n, is_text};
    return at + n;
}

static size_t add_string(const struct mutate_bytes *b, struct map *m, size_t at)
{
    const size_t n = (size_t)number(b, at, 8);
    return add(m, add(m, at, 8, false), n, true);
}

static size_t add_value(const struct mutate_bytes *b, struct map *m, size_t at)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    at = add_string(b, m, at);
    const uint64_t type = number(b, at, 4);
    at = add(m, at, 4, false);
    if (type == 8) return add_string(b, m, at);
    if (type != 9) return add(m, at, sizes[type], false);
    const uint64_t element = number(b, at, 4), n = number(b, at + 4, 8);
    at = add(m, add(m, at, 4, false), 8, false);
    for (uint64_t i = 0; i < n; i++)
        at = element == 8 ? add_string(b, m, at) : add(m, at, sizes[element], false);
    return at;
}

static size_t add_tensor(const struct mutate_bytes *b, struct map *m, size_t at)
{
    at = add_string(b, m, at);
    const uint64_t n_dims = number(b, at, 4);
    at = add(m, at, 4, false);
    for (uint64_t i = 0; i < n_dims; i++) at = add(m, at, 8, false);
    return add(m, add(m, at, 4, false), 8, false);
}

static void read_map(const struct mutate_bytes *b, struct map *m)
{
    const uint64_t n_tensors = number(b, 8, 8), n_values = number(b, 16, 8);
    m->n_fields = m->n_entries = 0;
    m->n_values = (size_t)n_values;
    size_t at = add(m, 0, 4, false);
    at = add(m, at, 4, false);
    at = add(m, at, 8, false);
    at = add(m, at, 8, false);
    for (uint64_t i = 0; i < n_values + n_tensors; i++) {
        m->entries[m->n_entries++] = at;
        at = i < n_values ? add_value(b, m, at) : add_tensor(b, m, at);
    }
    m->entries[m->n_entries] = m->n_head = at;
}

static void put(struct mutate_bytes *b, size_t at, size_t n, uint64_t v)
{
    for (size_t i = 0; i < n; i++) b->bytes[at + i] = (uint8_t)(v >> (8 * i));
}

static const struct field *any_number(struct mutate_random *r, const struct map *m)
{
    for (;;) {
        const struct field *f = &m->fields[mutate_below(r, m->n_fields)];
        if (!f->is_text) return f;
    }
}

static void set_number(struct mutate_random *r, struct mutate_bytes *b, const struct map *m)
{
    static const uint64_t extremes[] = {
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
        13,
        16,
        20,
        31,
        32,
        33,
        39,
        40,
        42,
        43,
        63,
        64,
        65,
        127,
        128,
        255,
        256,
        1024,
        65535,
        65536,
        1u << 20,
        1u << 30,
        INT32_MAX,
        (uint64_t)1 << 31,
        UINT32_MAX,
        (uint64_t)1 << 32,
        (uint64_t)1 << 40,
        (uint64_t)1 << 61,
        (uint64_t)1 << 62,
        INT64_MAX,
        (uint64_t)1 << 63,
        UINT64_MAX,
        UINT64_MAX - 31,
        0x7fc00000,
        0x7f800000,
        0xff800000,
        0x7ff8000000000000u,
    };
    const struct field *f = any_number(r, m);
    const uint64_t old = number(b, f->at, f->n);
    uint64_t v;
    switch (mutate_below(r, 6)) {
    case 0:
        v = old + 1;
        break;
    case 1:
        v = old - 1;
        break;
    case 2:
        v = mutate_below(r, 2) ? old * 2 : old / 2;
        break;
    case 3:
        v = old + 32 * mutate_below(r, 9) - 128;
        break;
    case 4: {
        const struct field *g = any_number(r, m);
        v = number(b, g->at, g->n);
        break;
    }
    default:
        v = extremes[mutate_below(r, sizeof extremes / sizeof *extremes)];
        break;
    }
    put(b, f->at, f->n, v);
}

static void replace(struct mutate_bytes *b, size_t at, size_t n, const uint8_t *bytes,
                    size_t n_bytes)
{
    struct mutate_bytes out = {malloc(b->n - n + n_bytes + 1), b->n - n + n_bytes};
    if (!out.bytes) abort();
    memcpy(out.bytes, b->bytes, at);
    if (n_bytes) memcpy(out.bytes + at, bytes, n_bytes);
    memcpy(out.bytes + at + n_bytes, b->bytes + at + n, b->n - at - n);
    free(b->bytes);
    *b = out;
}

/* An entry goes, doubles or takes the place of another; the counts follow, mostly. */
static void move_entry(struct mutate_random *r, struct mutate_bytes *b, const struct map *m)
{
    const size_t i = mutate_below(r, m->n_entries), j = mutate_below(r, m->n_entries);
    const size_t at = m->entries[i], n = m->entries[i + 1] - at;
    const size_t to = m->entries[j], n_to = m->entries[j + 1] - to;
    const size_t count_at = i < m->n_values ? 16 : 8;
    const bool count_follows = mutate_below(r, 8) != 0;
    struct mutate_bytes entry = mutate_copy(b->bytes + at, n);
    switch (mutate_below(r, 3)) {
    case 0:
        replace(b, at, n, NULL, 0);
        if (count_follows) put(b, count_at, 8, number(b, count_at, 8) - 1);
        break;
    case 1:
        replace(b, at, 0, entry.bytes, n);
        if (count_follows) put(b, count_at, 8, number(b, count_at, 8) + 1);
        break;
    default:
        replace(b, to, n_to, entry.bytes, n);
        break;
    }
    free(entry.bytes);
}

static void change_text(struct mutate_random *r, struct mutate_bytes *b, const struct map *m)
{
    for (int tries = 0; tries < 100; tries++) {
        const struct field *f = &m->fields[mutate_below(r, m->n_fields)];
        const struct field *g = &m->fields[mutate_below(r, m->n_fields)];
        if (!f->is_text) continue;
        if (mutate_below(r, 2)) {
            static const uint8_t odd[] = {0, 0xff, '/', '.', '"', 0x1b, '\n'};
            b->bytes[f->at + mutate_below(r, f->n)] = odd[mutate_below(r, sizeof odd)];
            return;
        }
        if (!g->is_text || g->n != f->n || g == f) continue;
        memcpy(b->bytes + f->at, b->bytes + g->at, f->n); /* a name twice */
        return;
    }
}

/* Scales and all else of the data: infinities, NaNs, noise. */
static void change_data(struct mutate_random *r, struct mutate_bytes *b, const struct map *m)
{
    if (b->n <= m->n_head) return;
    const size_t at = m->n_head + mutate_below(r, b->n - m->n_head);
    const size_t n = 1 + mutate_below(r, b->n - at);
    switch (mutate_below(r, 3)) {
    case 0:
        memset(b->bytes + at, 0xff, n);
        break;
    case 1:
        memset(b->bytes + at, 0x7e, n);
        break;
    default:
        for (size_t i = 0; i < n; i++) b->bytes[at + i] = (uint8_t)mutate_next(r);
        break;
    }
}

static void mutate_once(struct mutate_random *r, struct mutate_bytes *b, const struct map *m)
{
    switch (mutate_below(r, 20)) {
    case 0:
        b->n = mutate_below(r, b->n + 1);
        break;
    case 1:
        b->n = m->fields[mutate_below(r, m->n_fields)].at;
        break;
    case 2: {
        static const uint8_t noise[40] = {1, 2, 3, 255};
        replace(b, mutate_below(r, b->n + 1), 0, noise, 1 + mutate_below(r, sizeof noise));
        break;
    }
    case 3:
    case 4:
        move_entry(r, b, m);
        break;
    case 5:
    case 6:
        change_text(r, b, m);
        break;
    case 7:
        change_data(r, b, m);
        break;
    default:
        set_number(r, b, m);
        break;
    }
}

void mutate_gguf(struct mutate_random *r, struct mutate_bytes *b)
{
    static struct map m;
    read_map(b, &m);
    /* Later changes go by the map of the good file: only those that move nothing are repeated. */
    size_t n = mutate_below(r, 3) / 2;
    for (; n > 0; n--) set_number(r, b, &m);
    mutate_once(r, b, &m);
}
