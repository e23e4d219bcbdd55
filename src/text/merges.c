/* SPDX-License-Identifier: MIT
 * Byte pair encoding.  Short words are searched through for each merge; long ones keep their pairs
 * in a heap. */
#include "text/merges.h"

#include "base/memory.h"
#include "text/hash.h"

/* Up to here n * n simple steps cost less than a heap. */
#define SHORT_WORD 48

enum qrn_status qrn_merges_init(struct qrn_merges *m, size_t n, struct qrn_error *err)
{
    if (n > INT32_MAX)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%zu merges, at most %d are possible", n, INT32_MAX);
    m->n_slots = qrn_hash_n_slots(n);
    const size_t n_bytes = m->n_slots * sizeof *m->slots;
    m->slots = qrn_alloc(&m->allocator, n_bytes);
    if (!m->slots) return qrn_fail_memory(err, n_bytes, "the merges");
    for (size_t i = 0; i < m->n_slots; i++) m->slots[i] = (struct qrn_merge){.rank = QRN_NO_MERGE};
    return QRN_OK;
}

void qrn_merges_free(struct qrn_merges *m)
{
    qrn_free(&m->allocator, m->slots, m->n_slots * sizeof *m->slots);
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The merge of a pair; an empty slot if there is none. */
static const struct qrn_merge *find(const struct qrn_merges *m, int32_t left, int32_t right)
{
    const uint64_t pair = pair_of(left, right);
    size_t i = (size_t)qrn_hash_mix(pair) & (m->n_slots - 1);
    while (m->slots[i].rank != QRN_NO_MERGE && m->slots[i].pair != pair)
        i = (i + 1) & (m->n_slots - 1);
    return &m->slots[i];
}

static enum qrn_status insert(struct qrn_merges *m, uint64_t pair, size_t rank, int32_t id,
                              struct qrn_error *err)
{
    size_t i = (size_t)qrn_hash_mix(pair) & (m->n_slots - 1);
    for (int n_probes = 0; n_probes < QRN_HASH_MAX_PROBES; n_probes++) {
        if (m->slots[i].rank == QRN_NO_MERGE) {
            m->slots[i] = (struct qrn_merge){.pair = pair, .rank = (uint32_t)rank, .id = id};
            return QRN_OK;
        }
        if (m->slots[i].pair == pair) return QRN_OK; /* the lower rank stays */
        i = (i + 1) & (m->n_slots - 1);
    }
    return qrn_fail(err, QRN_ERR_FORMAT, "merge %zu and %d others have one hash", rank,
                    QRN_HASH_MAX_PROBES);
}

/* Spans in error texts: the beginning is enough. */
static int shown(struct qrn_span s)
{
    return s.n_bytes < 60 ? (int)s.n_bytes : 60;
}

enum qrn_status qrn_merges_add(struct qrn_merges *m, const struct qrn_vocab *vocab, size_t rank,
                               struct qrn_span left, struct qrn_span right,
                               struct qrn_scratch *scratch, struct qrn_error *err)
{
    size_t n_bytes;
    if (!qrn_add_size(left.n_bytes, right.n_bytes, &n_bytes))
        return qrn_fail(err, QRN_ERR_FORMAT, "merge %zu is too long", rank);
    QRN_TRY(qrn_scratch_reserve(scratch, n_bytes + 1, 2, err));
    char *const joined = scratch->memory, *const decoded = joined + n_bytes + 1;
    if (left.n_bytes) memcpy(joined, left.bytes, left.n_bytes);
    if (right.n_bytes) memcpy(joined + left.n_bytes, right.bytes, right.n_bytes);
    const int32_t left_id = qrn_vocab_find_text(vocab, left, decoded);
    const int32_t right_id = qrn_vocab_find_text(vocab, right, decoded);
    const int32_t id = qrn_vocab_find_text(vocab, (struct qrn_span){joined, n_bytes}, decoded);
    if (left_id < 0 || right_id < 0 || id < 0)
        return qrn_fail(err, QRN_ERR_FORMAT, "merge %zu (\"%.*s\" and \"%.*s\"): %s is no token",
                        rank, shown(left), left.bytes ? left.bytes : "", shown(right),
                        right.bytes ? right.bytes : "",
                        left_id < 0    ? "the first"
                        : right_id < 0 ? "the second"
                                       : "the result");
    return insert(m, pair_of(left_id, right_id), rank, id, err);
}

enum qrn_status qrn_merges_add_line(struct qrn_merges *m, const struct qrn_vocab *vocab,
                                    size_t rank, struct qrn_span line, struct qrn_scratch *scratch,
                                    struct qrn_error *err)
{
    const char *const space =
        line.n_bytes > 1 ? memchr(line.bytes + 1, ' ', line.n_bytes - 1) : NULL;
    if (!space)
        return qrn_fail(err, QRN_ERR_FORMAT, "merge %zu (\"%.*s\") has no space", rank, shown(line),
                        line.bytes ? line.bytes : "");
    const size_t n_left = (size_t)(space - line.bytes);
    return qrn_merges_add(m, vocab, rank, (struct qrn_span){line.bytes, n_left},
                          (struct qrn_span){space + 1, line.n_bytes - n_left - 1}, scratch, err);
}

/* --- words --- */

static enum qrn_status no_such_byte(char c, struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                    "the text has a byte 0x%02x, for which the vocabulary has no token",
                    (unsigned)(uint8_t)c);
}

static enum qrn_status apply_short(const struct qrn_merges *m, const struct qrn_vocab *vocab,
                                   struct qrn_span word, struct qrn_token_list *list,
                                   struct qrn_error *err)
{
    int32_t ids[SHORT_WORD];
    const struct qrn_merge *pairs[SHORT_WORD]; /* of ids[i] and ids[i + 1] */
    size_t n = word.n_bytes;
    for (size_t i = 0; i < n; i++) {
        ids[i] = vocab->byte_ids[(uint8_t)word.bytes[i]];
        if (ids[i] < 0) return no_such_byte(word.bytes[i], err);
    }
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = find(m, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pairs[i]->rank < pairs[best]->rank) best = i;
        if (pairs[best]->rank == QRN_NO_MERGE) break;
        ids[best] = pairs[best]->id;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (best > 0) pairs[best - 1] = find(m, ids[best - 1], ids[best]);
        if (best + 1 < n) pairs[best] = find(m, ids[best], ids[best + 1]);
    }
    memcpy(list->ids + list->n_ids, ids, n * sizeof *ids);
    list->n_ids += n;
    return QRN_OK;
}

/* A long word is a chain of symbols; a merge drops the right one. */
struct symbol {
    int32_t id;
    int32_t next, previous; /* -1: none.  next == DROPPED: not in the chain any more */
    uint32_t rank;          /* of the merge with the next symbol, or QRN_NO_MERGE */
};
#define DROPPED (-2)

/* A heap of rank << 32 | position, least first: the order in which merges happen.  Entries are not
 * removed when their pair goes; since a rank belongs to one pair, such an entry shows by the rank
 * that its symbol has then. */
static void heap_down(uint64_t *heap, size_t n, size_t i)
{
    const uint64_t entry = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= entry) break;
        heap[i] = heap[child];
    }
    heap[i] = entry;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > entry; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    const uint64_t least = heap[0];
    heap[0] = heap[--*n];
    if (*n) heap_down(heap, *n, 0);
    return least;
}

/* Gives symbol i the rank of its present pair, and the pair a place in the heap. */
static void pair_up(const struct qrn_merges *m, struct symbol *symbols, int32_t i, uint64_t *heap,
                    size_t *n_heap)
{
    const int32_t next = symbols[i].next;
    symbols[i].rank = next < 0 ? QRN_NO_MERGE : find(m, symbols[i].id, symbols[next].id)->rank;
    if (symbols[i].rank != QRN_NO_MERGE)
        heap_push(heap, n_heap, (uint64_t)symbols[i].rank << 32 | (uint32_t)i);
}

static void merge_all(const struct qrn_merges *m, struct symbol *symbols, uint64_t *heap,
                      size_t n_heap)
{
    while (n_heap) {
        const uint64_t entry = heap_pop(heap, &n_heap);
        const int32_t i = (int32_t)(uint32_t)entry;
        if (symbols[i].next < 0 || symbols[i].rank != (uint32_t)(entry >> 32)) continue;
        const int32_t right = symbols[i].next, next = symbols[right].next;
        symbols[i].id = find(m, symbols[i].id, symbols[right].id)->id;
        symbols[i].next = next;
        if (next >= 0) symbols[next].previous = i;
        symbols[right].next = DROPPED;
        pair_up(m, symbols, i, heap, &n_heap);
        if (symbols[i].previous >= 0) pair_up(m, symbols, symbols[i].previous, heap, &n_heap);
    }
}

static enum qrn_status apply_long(const struct qrn_merges *m, const struct qrn_vocab *vocab,
                                  struct qrn_span word, struct qrn_scratch *scratch,
                                  struct qrn_token_list *list, struct qrn_error *err)
{
    const size_t n = word.n_bytes;
    /* Of the heap's n - 1 entries each merge takes one and adds two; there are at most n - 1. */
    QRN_TRY(qrn_scratch_reserve(scratch, n, sizeof(struct symbol) + 2 * sizeof(uint64_t), err));
    uint64_t *const heap = scratch->memory;
    struct symbol *const symbols = (struct symbol *)(void *)(heap + 2 * n);
    for (size_t i = 0; i < n; i++) {
        const int32_t id = vocab->byte_ids[(uint8_t)word.bytes[i]];
        if (id < 0) return no_such_byte(word.bytes[i], err);
        symbols[i] = (struct symbol){
            .id = id,
            .next = i + 1 < n ? (int32_t)i + 1 : -1,
            .previous = (int32_t)i - 1,
        };
    }
    size_t n_heap = 0;
    for (size_t i = 0; i < n; i++) pair_up(m, symbols, (int32_t)i, heap, &n_heap);
    merge_all(m, symbols, heap, n_heap);
    for (int32_t i = 0; i >= 0; i = symbols[i].next) list->ids[list->n_ids++] = symbols[i].id;
    return QRN_OK;
}

enum qrn_status qrn_merges_apply(const struct qrn_merges *m, const struct qrn_vocab *vocab,
                                 struct qrn_span word, struct qrn_scratch *scratch,
                                 struct qrn_token_list *list, struct qrn_error *err)
{
    if (!word.n_bytes) return QRN_OK;
    QRN_TRY(qrn_token_list_reserve(list, word.n_bytes, &vocab->allocator, err));
    if (word.n_bytes <= SHORT_WORD) return apply_short(m, vocab, word, list, err);
    return apply_long(m, vocab, word, scratch, list, err);
}
