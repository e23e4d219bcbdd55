/* SPDX-License-Identifier: MIT
 * Checksums: a piece has one, however it is cut; other bytes, and the same in other pieces, have others. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/checksum.h"

enum { N = 61 };

static void fill(uint8_t *bytes)
{
    for (int i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 37 + 11);
}

static void test_parts(void **state)
{
    (void)state;
    uint8_t bytes[N];
    fill(bytes);
    for (size_t n = 0; n <= N; n++) {
        const uint64_t want = qrn_hash_bytes(QRN_HASH_START, bytes, n);
        for (size_t first = 0; first <= n; first++)
            for (size_t second = 0; first + second <= n; second++) {
                struct qrn_hash_piece piece = qrn_hash_begin(QRN_HASH_START, n);
                qrn_hash_part(&piece, bytes, first);
                qrn_hash_part(&piece, bytes + first, second);
                qrn_hash_part(&piece, bytes + first + second, n - first - second);
                assert_true(qrn_hash_end(&piece) == want);
            }
    }
}

static void test_differences(void **state)
{
    (void)state;
    uint8_t bytes[N];
    fill(bytes);
    const uint64_t whole = qrn_hash_bytes(QRN_HASH_START, bytes, N);
    for (int i = 0; i < N; i++) {
        bytes[i] ^= 4;
        assert_true(qrn_hash_bytes(QRN_HASH_START, bytes, N) != whole);
        bytes[i] ^= 4;
    }
    for (size_t n = 0; n <= N; n++)
        assert_true(qrn_hash_bytes(qrn_hash_bytes(QRN_HASH_START, bytes, n), bytes + n, N - n) !=
                    whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
