/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with the NEON that every 64-bit Arm has: products of
 * bytes are summed in 16 bits while these cannot overflow. */
#include "backends/cpu/neon/matmul_dot_neon.h"

/* Products of |x| <= 127 that may be added: two of weights up to 128, 32 of weights up to 32. */
INLINE bool two_fit_only(const struct matmul_form f)
{
    return f.bits == 8 || f.levels == LEVELS_IQ4;
}

/* Sums of rows 0 and 1, of rows 2 and 3: four of each row. */
struct sums_16 {
    int16x8_t low, high;
};

INLINE struct sums_16 multiply(int8x16_t v, int8x16_t x)
{
    return (struct sums_16){vmull_s8(vget_low_s8(v), vget_low_s8(x)), vmull_high_s8(v, x)};
}

INLINE struct sums_16 multiply_add(struct sums_16 s, int8x16_t v, int8x16_t x)
{
    return (struct sums_16){vmlal_s8(s.low, vget_low_s8(v), vget_low_s8(x)),
                            vmlal_high_s8(s.high, v, x)};
}

INLINE int32x4_t dot16(const struct matmul_form f, int32x4_t sum, const int8x16_t *v, int8x16_t x)
{
    const int32x4_t fours = vreinterpretq_s32_s8(x);
    const int8x16_t x0 = vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 0));
    const int8x16_t x1 = vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 1));
    const int8x16_t x2 = vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 2));
    const int8x16_t x3 = vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 3));
    struct sums_16 s = multiply_add(multiply(v[0], x0), v[1], x1);
    if (two_fit_only(f)) {
        const struct sums_16 t = multiply_add(multiply(v[2], x2), v[3], x3);
        const int32x4_t low = vpadalq_s16(vpaddlq_s16(s.low), t.low);
        return vaddq_s32(sum, vpaddq_s32(low, vpadalq_s16(vpaddlq_s16(s.high), t.high)));
    }
    s = multiply_add(multiply_add(s, v[2], x2), v[3], x3);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(s.low), vpaddlq_s16(s.high)));
}

#include "backends/cpu/neon/matmul_q8_neon.h"

INLINE void product(const struct matmul_form f, const struct matmul_tile *t)
{
    product_by_rows(f, t, 0, 4);
}

#include "backends/cpu/neon/matmul_q8_neon.inc"

static const char serves[] = "rounded activations: widening products, exact sums";

MATMUL_KERNEL(matmul, neon_q8, QRN_CPU_NEON);
MATMUL_KERNEL(matmul_id, neon_q8, QRN_CPU_NEON);
