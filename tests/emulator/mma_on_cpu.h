/* SPDX-License-Identifier: MIT
 * The functions of backends/cuda/device/mma.cuh, from what its head says of fragments. */
#ifndef QUERN_TESTS_EMULATOR_MMA_ON_CPU_H
#define QUERN_TESTS_EMULATOR_MMA_ON_CPU_H

struct emulated_fragments {
    uint32_t a[4], b[2];
};

/* Element k of row `row` of a, and of column `column` of b, size bytes each, n_k of them in a row. */
static inline uint32_t emulated_a(const unsigned char *given, int row, int k, int size)
{
    const int per = 4 / size, half = 4 * per, lane = row % 8 * 4 + k % half / per;
    emulated_fragments f;
    std::memcpy(&f, given + EMULATED_DEPOSIT * lane, sizeof f);
    return f.a[row / 8 + k / half * 2] >> (8 * size * (k % per));
}
static inline uint32_t emulated_b(const unsigned char *given, int k, int column, int size)
{
    const int per = 4 / size, half = 4 * per, lane = column * 4 + k % half / per;
    emulated_fragments f;
    std::memcpy(&f, given + EMULATED_DEPOSIT * lane, sizeof f);
    return f.b[k / half] >> (8 * size * (k % per));
}

/* Products are exact; they and c are added in float64 and rounded once. */
template <typename T, typename Read>
static inline void emulated_mma(const char *what, T (&c)[4], const uint32_t (&a)[4],
                                const uint32_t (&b)[2], int n_k, int size, Read read)
{
    emulated_fragments mine;
    std::memcpy(mine.a, a, sizeof a);
    std::memcpy(mine.b, b, sizeof b);
    const unsigned char *given = emulated_exchange(0xffffffffu, what, &mine, sizeof mine);
    for (int i = 0; i < 4; i++) {
        const int row = (int)emulated_lane / 4 + i / 2 * 8, column = (int)emulated_lane % 4 * 2 + i % 2;
        double sum = c[i];
        for (int k = 0; k < n_k; k++)
            sum += read(emulated_a(given, row, k, size)) * read(emulated_b(given, k, column, size));
        c[i] = (T)sum;
    }
}

static inline void qrn_mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulated_mma("at mma of bf16", c, a, b, 16, 2,
                 [](uint32_t x) { return (double)qrn_float_of_bf16((uint16_t)x); });
}
static inline void qrn_mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulated_mma("at mma of f16", c, a, b, 16, 2,
                 [](uint32_t x) { return (double)qrn_float_of_f16((uint16_t)x); });
}
static inline void qrn_mma_tf32(float (&c)[4], const float (&a)[4], const float (&b)[2])
{
    uint32_t bits[6];
    std::memcpy(bits, a, sizeof a);
    std::memcpy(bits + 4, b, sizeof b);
    emulated_mma("at mma of tf32", c, {bits[0], bits[1], bits[2], bits[3]}, {bits[4], bits[5]}, 8,
                 4, [](uint32_t x) { return (double)__uint_as_float(x & 0xffffe000u); });
}
static inline void qrn_mma_f16_short(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0)
{
    const uint32_t a[4] = {a0, a1, 0, 0}, b[2] = {b0, 0};
    for (int i = 0; i < 4; i++) c[i] = 0.0f;
    qrn_mma_f16(c, a, b);
}
static inline void qrn_mma_s8(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulated_mma("at mma of bytes", c, a, b, 32, 1, [](uint32_t x) { return (double)(int8_t)x; });
}

static inline void qrn_mma_s8_short(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0)
{
    const uint32_t a[4] = {a0, a1, 0, 0}, b[2] = {b0, 0};
    qrn_mma_s8(c, a, b);
}

/* Row r of matrix m, at the address that lane 8 m + r gave. */
static inline uint16_t emulated_element(const unsigned char *given, int m, int r, int column)
{
    const uint16_t *row;
    std::memcpy(&row, given + EMULATED_DEPOSIT * (8 * m + r), sizeof row);
    return row[column];
}
static inline void qrn_ldmatrix4(uint32_t (&out)[4], const void *row)
{
    const unsigned char *given = emulated_exchange(0xffffffffu, "at ldmatrix", &row, sizeof row);
    const int r = (int)emulated_lane / 4, c = (int)emulated_lane % 4 * 2;
    for (int m = 0; m < 4; m++)
        out[m] = emulated_element(given, m, r, c) | (uint32_t)emulated_element(given, m, r, c + 1) << 16;
}
static inline void qrn_ldmatrix2(uint32_t (&out)[2], const void *row)
{
    const unsigned char *given = emulated_exchange(0xffffffffu, "at ldmatrix", &row, sizeof row);
    const int r = (int)emulated_lane / 4, c = (int)emulated_lane % 4 * 2;
    for (int m = 0; m < 2; m++)
        out[m] = emulated_element(given, m, r, c) | (uint32_t)emulated_element(given, m, r, c + 1) << 16;
}
static inline void qrn_ldmatrix4_transposed(uint32_t (&out)[4], const void *row)
{
    const unsigned char *given = emulated_exchange(0xffffffffu, "at ldmatrix", &row, sizeof row);
    const int c = (int)emulated_lane / 4, r = (int)emulated_lane % 4 * 2;
    for (int m = 0; m < 4; m++)
        out[m] = emulated_element(given, m, r, c) | (uint32_t)emulated_element(given, m, r + 1, c) << 16;
}

static inline void qrn_copy16_async(void *shared, const void *global, int n_bytes)
{
    emulated_copy_begin(shared, global, n_bytes, 16);
}
static inline void qrn_copy4_async(void *shared, const void *global)
{
    emulated_copy_begin(shared, global, 4, 4);
}
static inline void qrn_copies_commit() { emulated_copies_commit(); }
template <int n> static inline void qrn_copies_wait() { emulated_copies_wait(n); }

#endif
