/* SPDX-License-Identifier: MIT
 * Memory of every size: aligned, zeroed where promised, through the host's allocator where it has
 * one, with the alignment that huge pages need. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/pages.h"

static const size_t sizes[] = {
    0, 1, 63, 4096, QRN_HUGE_PAGE - 1, QRN_HUGE_PAGE, QRN_HUGE_PAGE + 1, 3 * QRN_HUGE_PAGE - 17};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void test_own(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        const size_t n = sizes[i];
        uint8_t *a = qrn_alloc_zeroed(NULL, n), *b = qrn_alloc(NULL, n);
        assert_non_null(a);
        assert_non_null(b);
        assert_int_equal((uintptr_t)a % QRN_ALIGNMENT, 0);
        if (qrn_pages_wanted(n)) assert_int_equal((uintptr_t)b % QRN_HUGE_PAGE, 0);
        for (size_t j = 0; j < n; j++)
            if (a[j]) fail_msg("byte %zu of %zu is %d", j, n, a[j]);
        memset(b, 0x5a, n);
        uint8_t *c = qrn_realloc(NULL, b, n, n + QRN_HUGE_PAGE);
        assert_non_null(c);
        for (size_t j = 0; j < n; j++)
            if (c[j] != 0x5a) fail_msg("byte %zu of %zu is %d", j, n, c[j]);
        qrn_free(NULL, c, n + QRN_HUGE_PAGE);
        qrn_free(NULL, a, n);
    }
}

static void test_too_much(void **state)
{
    (void)state;
    static const size_t much[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1, SIZE_MAX / 4};
    for (size_t i = 0; i < sizeof much / sizeof *much; i++)
        assert_null(qrn_alloc_zeroed(NULL, much[i]));
}

struct asked {
    size_t n_bytes, alignment;
};

static void *give(void *user, size_t n_bytes, size_t alignment)
{
    struct asked *asked = user;
    *asked = (struct asked){n_bytes, alignment};
    void *memory = NULL;
    return posix_memalign(&memory, alignment, n_bytes) == 0 ? memory : NULL;
}

static void take_back(void *user, void *memory, size_t n_bytes)
{
    const struct asked *asked = user;
    assert_int_equal(n_bytes, asked->n_bytes);
    free(memory);
}

static void test_hosts(void **state)
{
    (void)state;
    struct asked asked;
    const struct qrn_allocator allocator = {.alloc = give, .free = take_back, .user = &asked};
    for (int i = 0; i < N_SIZES; i++) {
        const size_t n = sizes[i];
        uint8_t *a = qrn_alloc_zeroed(&allocator, n);
        assert_non_null(a);
        assert_int_equal(asked.n_bytes, n ? n : 1);
        assert_int_equal(asked.alignment, n < QRN_HUGE_PAGE ? QRN_ALIGNMENT : QRN_HUGE_PAGE);
        for (size_t j = 0; j < n; j++)
            if (a[j]) fail_msg("byte %zu of %zu is %d", j, n, a[j]);
        qrn_free(&allocator, a, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
