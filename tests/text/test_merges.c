/* SPDX-License-Identifier: MIT
 * Merging against the rule written down plainly, and finding added tokens against trying every
 * token at every place. */
#include "text/tokenizer_test.h"

#include "text/added.h"
#include "text/merges.h"

/* A tokenizer of letters a to d and random merges of what there is already. */
struct plain {
    struct qrn_vocab vocab;
    struct qrn_merges merges;
    int32_t pairs[200][3]; /* left, right, result: by rank */
    size_t n_pairs;
};

static void plain_open(struct plain *p, uint64_t *seed, size_t n_merges)
{
    static const char letters[] = "abcd";
    struct qrn_error err;
    struct qrn_scratch scratch = {.allocator = &p->vocab.allocator};
    *p = (struct plain){0};
    assert_int_equal(qrn_vocab_init(&p->vocab, 4 + n_merges, 65536, &err), QRN_OK);
    char texts[204][24];
    size_t n_tokens = 4;
    for (size_t i = 0; i < 4; i++) {
        texts[i][0] = letters[i];
        texts[i][1] = 0;
    }
    while (n_tokens < 4 + n_merges) {
        const size_t left = random_below(seed, n_tokens), right = random_below(seed, n_tokens);
        const size_t n_left = strlen(texts[left]), n_right = strlen(texts[right]);
        if (n_left + n_right >= sizeof texts[0]) continue;
        size_t result = n_tokens;
        memcpy(texts[result], texts[left], n_left);
        memcpy(texts[result] + n_left, texts[right], n_right + 1);
        for (size_t i = 0; i < n_tokens; i++)
            if (!strcmp(texts[i], texts[result])) result = i;
        p->pairs[p->n_pairs][0] = (int32_t)left;
        p->pairs[p->n_pairs][1] = (int32_t)right;
        p->pairs[p->n_pairs][2] = (int32_t)result;
        p->n_pairs++;
        if (p->n_pairs == 200) break;
        n_tokens += result == n_tokens;
    }
    for (size_t i = 0; i < n_tokens; i++)
        assert_int_equal(qrn_vocab_set(&p->vocab, i, (struct qrn_span){texts[i], strlen(texts[i])},
                                       QRN_TOKEN_NORMAL, &err),
                         QRN_OK);
    assert_int_equal(qrn_vocab_index(&p->vocab, &err), QRN_OK);
    assert_int_equal(qrn_merges_init(&p->merges, p->n_pairs, &err), QRN_OK);
    for (size_t i = 0; i < p->n_pairs; i++) {
        const char *const left = texts[p->pairs[i][0]], *const right = texts[p->pairs[i][1]];
        char line[64];
        snprintf(line, sizeof line, "%s %s", left, right);
        assert_int_equal(qrn_merges_add_line(&p->merges, &p->vocab, i,
                                             (struct qrn_span){line, strlen(line)}, &scratch, &err),
                         QRN_OK);
    }
    qrn_scratch_free(&scratch);
}

static void plain_close(struct plain *p)
{
    qrn_vocab_free(&p->vocab);
    qrn_merges_free(&p->merges);
}

/* The lowest rank among all adjacent pairs, leftmost; again until there is none. */
static size_t merge_plainly(const struct plain *p, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best_rank = p->n_pairs, best = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (size_t rank = 0; rank < best_rank; rank++) {
                if (p->pairs[rank][0] != ids[i] || p->pairs[rank][1] != ids[i + 1]) continue;
                best_rank = rank;
                best = i;
            }
        }
        if (best_rank == p->n_pairs) return n;
        ids[best] = p->pairs[best_rank][2];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

static void test_same_as_the_rule(void **state)
{
    (void)state;
    uint64_t seed = 11;
    size_t n_long = 0;
    for (int round = 0; round < 300; round++) {
        struct plain p;
        plain_open(&p, &seed, 1 + random_below(&seed, 150));
        struct qrn_scratch scratch = {.allocator = &p.vocab.allocator};
        for (int i = 0; i < 20; i++) {
            char word[200];
            int32_t wanted[200];
            const size_t n = 1 + random_below(&seed, i % 2 ? 199 : 60);
            const size_t n_letters = 1 + random_below(&seed, 4);
            for (size_t k = 0; k < n; k++) word[k] = (char)('a' + random_below(&seed, n_letters));
            for (size_t k = 0; k < n; k++) wanted[k] = word[k] - 'a';
            const size_t n_wanted = merge_plainly(&p, wanted, n);
            struct qrn_token_list got = {0};
            struct qrn_error err;
            assert_int_equal(qrn_merges_apply(&p.merges, &p.vocab, (struct qrn_span){word, n},
                                              &scratch, &got, &err),
                             QRN_OK);
            assert_int_equal(got.n_ids, n_wanted);
            assert_memory_equal(got.ids, wanted, n_wanted * sizeof *wanted);
            n_long += n > 48;
            qrn_token_list_free(&got);
        }
        qrn_scratch_free(&scratch);
        plain_close(&p);
    }
    assert_true(n_long > 2000);
}

/* Random tokens of few letters, so that many begin alike, end alike or are the same. */
static void test_added_tokens_same_as_trying(void **state)
{
    (void)state;
    uint64_t seed = 12;
    size_t n_found = 0;
    for (int round = 0; round < 3000; round++) {
        struct qrn_added added = {0};
        struct qrn_added_token tokens[12];
        char texts[12][6];
        struct qrn_error err;
        const size_t n_tokens = random_below(&seed, 12);
        assert_int_equal(qrn_added_init(&added, n_tokens, &err), QRN_OK);
        for (size_t i = 0; i < n_tokens; i++) {
            const size_t n = random_below(&seed, 6);
            for (size_t k = 0; k < n; k++) texts[i][k] = (char)("ab\xff"[random_below(&seed, 3)]);
            tokens[i] = (struct qrn_added_token){
                .bytes = {texts[i], n},
                .id = (int32_t)i,
                .is_control = random_below(&seed, 2) != 0,
            };
            assert_int_equal(qrn_added_add(&added, tokens[i].bytes, tokens[i].id,
                                           tokens[i].is_control, &err),
                             QRN_OK);
        }
        qrn_added_sort(&added);
        char text[30];
        for (size_t k = 0; k < sizeof text; k++) text[k] = "aaabb\xff"[random_below(&seed, 6)];
        const bool with_control = random_below(&seed, 2) != 0;
        const size_t from = random_below(&seed, sizeof text);
        const struct qrn_added_token *wanted = NULL;
        size_t wanted_at = 0, at = 0;
        for (size_t i = from; i < sizeof text && !wanted; i++) {
            for (size_t k = 0; k < n_tokens; k++) {
                const size_t n = tokens[k].bytes.n_bytes;
                if (!n || (tokens[k].is_control && !with_control) || n > sizeof text - i ||
                    memcmp(text + i, tokens[k].bytes.bytes, n))
                    continue;
                wanted_at = i;
                /* Of two equal ones a USER_DEFINED token comes before a CONTROL one. */
                if (!wanted || n > wanted->bytes.n_bytes ||
                    (n == wanted->bytes.n_bytes && wanted->is_control && !tokens[k].is_control))
                    wanted = &tokens[k];
            }
        }
        const struct qrn_added_token *const got = qrn_added_search(
            &added, (struct qrn_span){text, sizeof text}, from, with_control, &at);
        assert_int_equal(got ? got->id : -1, wanted ? wanted->id : -1);
        if (got) assert_int_equal(at, wanted_at);
        n_found += got != NULL;
        qrn_added_free(&added);
    }
    assert_true(n_found > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_the_rule),
        cmocka_unit_test(test_added_tokens_same_as_trying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
