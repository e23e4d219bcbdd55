/* SPDX-License-Identifier: MIT
 * The functions of backends/cuda/device/wgmma.cuh, from what its head says of tiles.  A product is done when
 * it is waited for: what is in shared memory then is what it sees, and c does not change before. */
#ifndef QUERN_TESTS_EMULATOR_WGMMA_ON_CPU_H
#define QUERN_TESTS_EMULATOR_WGMMA_ON_CPU_H

#include <deque>

/* A product as one thread has it. */
struct emulated_product {
    float *c;
    int n_columns, a_way, b_way;
    bool adds, is_bf16, a_in_registers;
    uint64_t a, b;
    uint32_t row[2][8]; /* of a, if from registers: rows lane / 4 and 8 below, 16 halves each */
    unsigned group;
};

struct emulated_products {
    std::deque<emulated_product> all;
    unsigned group = 0;
    uint64_t block = 0;
};

/* Of the thread that runs; empty when its block begins. */
static inline emulated_products &emulated_products_of_thread()
{
    static std::deque<emulated_products> of; /* 1024 for each of the blocks that run together */
    const size_t place = 1024 * emulated_block_place();
    if (of.size() < place + 1024) of.resize(place + 1024);
    emulated_products &mine = of[place + emulated_thread_number()];
    if (mine.block != emulated_block_number()) {
        mine.all.clear();
        mine.group = 0;
        mine.block = emulated_block_number();
    }
    return mine;
}

/* Half of line and place that a tile's description leads to. */
static inline uint16_t emulated_of_tile(uint64_t tile, int way, int row, int k)
{
    const uint32_t start = (uint32_t)(tile & 0x3fff) << 4, apart = (uint32_t)(tile >> 16 & 0x3fff) << 4,
                   atoms = (uint32_t)(tile >> 32 & 0x3fff) << 4;
    uint32_t at = start;
    if (tile >> 62 == 3) { /* a slice */
        at += (uint32_t)(row / 8) * atoms + (uint32_t)(row % 8) * 32 + 2 * (uint32_t)k;
        at ^= (at >> 7 & 1) << 4;
        return *(const uint16_t *)emulated_shared_pointer(at);
    }
    if (way == QRN_BY_K)
        at += (uint32_t)(row / 8) * atoms + (uint32_t)(row % 8) * 128 + 2 * (uint32_t)k;
    else
        at += (uint32_t)(row / 64) * apart + (uint32_t)(k / 8) * atoms + (uint32_t)(k % 8) * 128 +
              2 * (uint32_t)(row % 64);
    at ^= (at >> 7 & 7) << 4;
    return *(const uint16_t *)emulated_shared_pointer(at);
}

static inline void emulated_multiply(const emulated_product &p)
{
    const int warp_rows = (int)(emulated_thread_number() / 32 % 4) * 16, lane = (int)emulated_lane;
    for (int half = 0; half < 2; half++) {
        float a[16];
        for (int k = 0; k < 16; k++) {
            const uint16_t bits =
                p.a_in_registers ? (uint16_t)(p.row[half][k / 2] >> (16 * (k % 2)))
                                 : emulated_of_tile(p.a, p.a_way, warp_rows + lane / 4 + 8 * half, k);
            a[k] = p.is_bf16 ? qrn_float_of_bf16(bits) : qrn_float_of_f16(bits);
        }
        for (int j = 0; j < p.n_columns / 8; j++)
            for (int i = 0; i < 2; i++) {
                float &c = p.c[4 * j + 2 * half + i];
                double sum = p.adds ? c : 0.0;
                for (int k = 0; k < 16; k++) {
                    const uint16_t bits = emulated_of_tile(p.b, p.b_way, 8 * j + 2 * (lane % 4) + i, k);
                    sum += (double)a[k] * (p.is_bf16 ? qrn_float_of_bf16(bits) : qrn_float_of_f16(bits));
                }
                c = (float)sum;
            }
    }
}

static inline void qrn_wgmma_fence()
{
    emulated_exchange(0xffffffffu, "at wgmma.fence", nullptr, 0);
}
static inline void qrn_wgmma_commit()
{
    emulated_exchange(0xffffffffu, "at wgmma.commit_group", nullptr, 0);
    emulated_products_of_thread().group++;
}
template <int n> static inline void qrn_wgmma_wait()
{
    emulated_products &mine = emulated_products_of_thread();
    while (!mine.all.empty() && mine.group - mine.all.front().group > (unsigned)n) {
        emulated_multiply(mine.all.front());
        mine.all.pop_front();
    }
    emulated_exchange(0xffffffffu, "at wgmma.wait_group", nullptr, 0);
}
template <int n> static inline void qrn_wgmma_hold(float (&)[n]) {}
template <int n> static inline void qrn_wgmma_hold(uint32_t (&)[n][4]) {}
static inline uint32_t qrn_bf16_pair(float a, float b)
{
    return qrn_bf16_of_float(a) | (uint32_t)qrn_bf16_of_float(b) << 16;
}
static inline uint32_t qrn_transpose8(uint32_t two)
{
    const unsigned char *given = emulated_exchange(0xffffffffu, "at movmatrix", &two, sizeof two);
    const int row = (int)emulated_lane / 4, column = (int)emulated_lane % 4 * 2;
    uint16_t x[2];
    for (int i = 0; i < 2; i++)
        std::memcpy(&x[i], given + EMULATED_DEPOSIT * (4 * (column + i) + row / 2) + 2 * (row % 2),
                    sizeof x[i]);
    return x[0] | (uint32_t)x[1] << 16;
}
static inline void qrn_stmatrix4_transposed(void *row, const uint32_t (&x)[4])
{
    const unsigned char *given = emulated_exchange(0xffffffffu, "at stmatrix", &row, sizeof row);
    const int column = (int)emulated_lane / 4, r = (int)emulated_lane % 4 * 2;
    for (int m = 0; m < 4; m++)
        for (int i = 0; i < 2; i++) {
            uint16_t *to;
            std::memcpy(&to, given + EMULATED_DEPOSIT * (8 * m + r + i), sizeof to);
            to[column] = (uint16_t)(x[m] >> 16 * i);
        }
}

static inline void emulated_queue(emulated_product p)
{
    emulated_products &mine = emulated_products_of_thread();
    p.group = mine.group;
    mine.all.push_back(p);
}

static inline void emulated_wgmma(bool is_bf16, float *c, int n_columns, uint64_t a, int a_way,
                                  uint64_t b, int b_way, int adds)
{
    emulated_exchange(0xffffffffu, "at wgmma", nullptr, 0);
    emulated_product p = {};
    p.c = c, p.n_columns = n_columns, p.a_way = a_way, p.b_way = b_way;
    p.adds = adds != 0, p.is_bf16 = is_bf16, p.a = a, p.b = b;
    emulated_queue(p);
}

static inline void emulated_wgmma(bool is_bf16, float *c, int n_columns, const uint32_t (&a)[4],
                                  uint64_t b, int b_way, int adds)
{
    emulated_product p = {};
    p.c = c, p.n_columns = n_columns, p.b_way = b_way;
    p.adds = adds != 0, p.is_bf16 = is_bf16, p.b = b, p.a_in_registers = true;
    const unsigned char *given = emulated_exchange(0xffffffffu, "at wgmma", a, sizeof a);
    for (int i = 0; i < 8; i++) {
        uint32_t of[4];
        std::memcpy(of, given + EMULATED_DEPOSIT * (emulated_lane / 4 * 4 + (unsigned)i % 4), sizeof of);
        p.row[0][i] = of[i / 4 * 2];
        p.row[1][i] = of[i / 4 * 2 + 1];
    }
    emulated_queue(p);
}

#define EMULATED_WGMMA(N, type)                                                                     \
    template <int a_way, int b_way>                                                                 \
    static inline void qrn_wgmma_##type##_##N(float (&c)[N / 2], uint64_t a, uint64_t b, int adds)  \
    {                                                                                               \
        emulated_wgmma(#type[0] == 'b', c, N, a, a_way, b, b_way, adds);                            \
    }                                                                                               \
    template <int b_way>                                                                            \
    static inline void qrn_wgmma_##type##_##N(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b, \
                                              int adds)                                             \
    {                                                                                               \
        emulated_wgmma(#type[0] == 'b', c, N, a, b, b_way, adds);                                   \
    }
#define EMULATED_WGMMA_TYPE(type)                                                      \
    EMULATED_WGMMA(32, type) EMULATED_WGMMA(64, type) EMULATED_WGMMA(96, type)         \
    EMULATED_WGMMA(128, type) EMULATED_WGMMA(160, type) EMULATED_WGMMA(192, type)      \
    EMULATED_WGMMA(224, type) EMULATED_WGMMA(256, type)
EMULATED_WGMMA_TYPE(bf16)
EMULATED_WGMMA_TYPE(f16)

#endif
