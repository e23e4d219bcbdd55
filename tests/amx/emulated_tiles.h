/* SPDX-License-Identifier: MIT
 * AMX's tiles in memory, so that its kernels can be tested on any machine with AVX-512.  A kernel's file that is
 * included behind this uses them, and needs no AMX. */
#ifndef QUERN_TESTS_EMULATED_TILES_H
#define QUERN_TESTS_EMULATED_TILES_H

#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "backends/cpu/cpu.h"
#include "base/amx.h"

enum { N_TILES = 8, TILE_MOST_ROWS = 16, TILE_ROW = 64 };

static _Thread_local struct qrn_amx_config tile_config;
static _Thread_local union tile {
    uint8_t bytes[TILE_MOST_ROWS][TILE_ROW];
    int8_t codes[TILE_MOST_ROWS][TILE_ROW];
    int32_t sums[TILE_MOST_ROWS][TILE_ROW / 4];
    uint16_t halves[TILE_MOST_ROWS][TILE_ROW / 2];
    float floats[TILE_MOST_ROWS][TILE_ROW / 4];
} tiles[N_TILES];

static inline void tiles_configure(const struct qrn_amx_config *config)
{
    tile_config = *config;
    memset(tiles, 0xff, sizeof tiles);
}

static inline void tile_zero(int t)
{
    memset(&tiles[t], 0, sizeof tiles[t]);
}

static inline void tile_load(int t, const void *from, int64_t stride)
{
    tile_zero(t);
    for (int r = 0; r < tile_config.rows[t]; r++)
        memcpy(tiles[t].bytes[r], (const char *)from + r * stride, tile_config.row_bytes[t]);
}

static inline void tile_store(int t, void *to, int64_t stride)
{
    for (int r = 0; r < tile_config.rows[t]; r++)
        memcpy((char *)to + r * stride, tiles[t].bytes[r], tile_config.row_bytes[t]);
}

/* sum += a b, of a's signed bytes; b's: signed or not. */
static inline void tile_multiply(int sum, int a, int b, bool b_signed)
{
    for (int m = 0; m < tile_config.rows[sum]; m++)
        for (int k = 0; k < tile_config.row_bytes[a]; k++)
            for (int n = 0; n < tile_config.row_bytes[sum] / 4; n++) {
                const int at = 4 * n + k % 4;
                const int y = b_signed ? tiles[b].codes[k / 4][at] : tiles[b].bytes[k / 4][at];
                tiles[sum].sums[m][n] += tiles[a].codes[m][k] * y;
            }
}

static inline float tile_widen(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* sum += a b, of bf16: even and odd columns apart (backends/cpu/matmul_bf16.h). */
static inline void tile_multiply_bf16(int sum, int a, int b)
{
    for (int m = 0; m < tile_config.rows[sum]; m++)
        for (int n = 0; n < tile_config.row_bytes[sum] / 4; n++) {
            float parts[2] = {0.0f, 0.0f};
            for (int k = 0; k < tile_config.row_bytes[a] / 2; k++)
                parts[k % 2] = fmaf(tile_widen(tiles[b].halves[k / 2][2 * n + k % 2]),
                                    tile_widen(tiles[a].halves[m][k]), parts[k % 2]);
            tiles[sum].floats[m][n] += parts[0] + parts[1];
        }
}

/* In place of backends/cpu/amx/tiles.h and the intrinsics. */
#define QUERN_AMX_TILES_H
#define TILE_LOAD(tile, base, offset)  tile_load(tile, (const char *)(base) + (offset), 64)
#define TILE_STORE(tile, base, offset) tile_store(tile, (char *)(base) + (offset), 64)
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_zero(t)              tile_zero(t)
#define _tile_loadd(t, from, step) tile_load(t, from, (int64_t)(step))
#define _tile_stored(t, to, step)  tile_store(t, to, (int64_t)(step))
#define _tile_dpbssd(sum, a, b)    tile_multiply(sum, a, b, true)
#define _tile_dpbsud(sum, a, b)    tile_multiply(sum, a, b, false)
#define _tile_dpbf16ps(sum, a, b)  tile_multiply_bf16(sum, a, b)
#define _tile_release()            ((void)0)
#define QRN_CPU_AMX_TILE           QRN_CPU_AVX512
#define QRN_CPU_AMX_INT8           QRN_CPU_AVX512
#define QRN_CPU_AMX_BF16           QRN_CPU_AVX512

#endif
