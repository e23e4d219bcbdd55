/* SPDX-License-Identifier: MIT
 * Device code that tests the emulator, and the wrappers of mma.cuh by their contract alone. */
#include "backends/cuda/device/mma.cuh"
#include "emulator/kernels.h"

/* Half of the threads never come to the barrier. */
QRN_DEVICE_FUNCTION(qrn_test_leaves_barrier, 64, 1, qrn_test_params)
{
    if (threadIdx.x < 32) return;
    __syncthreads();
    *p.out = 1.0f;
}

/* A barrier and a shuffle wait for each other. */
QRN_DEVICE_FUNCTION(qrn_test_diverges, 64, 1, qrn_test_params)
{
    if (threadIdx.x % 32 == 7)
        __syncthreads();
    else
        p.out[threadIdx.x] = __shfl_sync(QRN_ALL_OF_WARP, 1.0f, 0);
}

/* One lane has ended when the others shuffle. */
QRN_DEVICE_FUNCTION(qrn_test_lane_ended, 64, 1, qrn_test_params)
{
    if (threadIdx.x == 40) return;
    p.out[threadIdx.x] = qrn_warp_sum(1.0f);
}

/* A mask names lanes that the block does not have. */
QRN_DEVICE_FUNCTION(qrn_test_short_warp, 64, 1, qrn_test_params)
{
    p.out[threadIdx.x] = qrn_warp_sum(1.0f);
}

QRN_DEVICE_FUNCTION(qrn_test_shuffles, 64, 1, qrn_test_params)
{
    const int lane = qrn_lane();
    float *out = p.out + 8 * threadIdx.x;
    out[0] = (float)__shfl_sync(QRN_ALL_OF_WARP, lane, 5);
    out[1] = (float)__shfl_sync(QRN_ALL_OF_WARP, lane, 3, 8);
    out[2] = (float)__shfl_xor_sync(QRN_ALL_OF_WARP, lane, 9);
    out[3] = (float)__shfl_up_sync(QRN_ALL_OF_WARP, lane, 2);
    out[4] = (float)__shfl_down_sync(QRN_ALL_OF_WARP, lane, 2, 16);
    out[5] = (float)(__ballot_sync(QRN_ALL_OF_WARP, lane % 3 == 0) & 0xffffu);
    const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
    out[6] = (float)__reduce_add_sync(half, (unsigned)lane);
    __shared__ float shared[2];
    out[7] = qrn_block_sum<2>((float)threadIdx.x, shared);
}

/* c = a b for 16 x 16 (or, of bytes, 32, of tf32, 8) times 16 x 8: fragments straight from their description. */
QRN_DEVICE_FUNCTION(qrn_test_mma, 32, 1, qrn_test_mma_params)
{
    const int lane = qrn_lane(), g = lane / 4, t = lane % 4;
    uint32_t a[4], b[2];
    for (int i = 0; i < 4; i++) {
        const int row = g + i % 2 * 8;
        a[i] = *(const uint32_t *)((const char *)p.a + row * 32 + t * 4 + i / 2 * 16);
    }
    for (int i = 0; i < 2; i++) /* b is stored by columns, 32 bytes each */
        b[i] = *(const uint32_t *)((const char *)p.b + g * 32 + t * 4 + i * 16);
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int whole[4] = {0, 0, 0, 0};
    if (p.type == 0) qrn_mma_bf16(c, a, b);
    if (p.type == 1) qrn_mma_f16(c, a, b);
    if (p.type == 2) qrn_mma_s8(whole, a, b);
    if (p.type == 3)
        qrn_mma_tf32(c, {__uint_as_float(a[0]), __uint_as_float(a[1]), __uint_as_float(a[2]), __uint_as_float(a[3])},
                     {__uint_as_float(b[0]), __uint_as_float(b[1])});
    for (int i = 0; i < 4; i++)
        p.c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = p.type == 2 ? (float)whole[i] : c[i];
}

/* The same of halves, through shared memory: a by ldmatrix, b, stored by rows, by the transposed. */
QRN_DEVICE_FUNCTION(qrn_test_ldmatrix, 32, 1, qrn_test_mma_params)
{
    __shared__ __align__(16) uint16_t a_tile[16][16], b_tile[16][8];
    const int lane = qrn_lane(), g = lane / 4, t = lane % 4;
    /* a: two copies a lane; b: one for half of the lanes, and zeros from no source at all */
    qrn_copy16_async(&a_tile[lane / 2][lane % 2 * 8], (const uint16_t *)p.a + lane * 8, 16);
    qrn_copies_commit();
    if (lane < 16)
        qrn_copy16_async(b_tile[lane], (const uint16_t *)p.b + lane * 8, p.n_rows > lane ? 16 : 0);
    qrn_copies_commit();
    qrn_copies_wait<1>();
    __syncthreads();
    uint32_t a[4], both[4];
    qrn_ldmatrix4(a, &a_tile[lane % 16][lane / 16 * 8]);
    qrn_copies_wait<0>();
    __syncthreads();
    qrn_ldmatrix4_transposed(both, b_tile[lane % 16]);
    const uint32_t b[2] = {both[0], both[1]};
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    qrn_mma_bf16(c, a, b);
    for (int i = 0; i < 4; i++) p.c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = c[i];
}
