/* SPDX-License-Identifier: MIT
 * Device code that tests wgmma.cuh and pipeline.cuh by their contracts: a product through a ring of one
 * stage, which one warp fills; blocks that wait for each other, and those of a cluster. */
#include "backends/cuda/device/wgmma.cuh"
#include "emulator/kernels.h"

enum { M = 64, N = 128, K = 64, CONSUMERS = 128, A_BYTES = M * K * 2, B_BYTES = N * K * 2, SLICE = N * 32 };

struct stage {
    char a[A_BYTES], b[B_BYTES], slices[K / 16][SLICE];
};

/* Each of the consumers copies a row of b to its slices. */
static __device__ void slice(stage &s)
{
    const int row = (int)threadIdx.x;
    qrn_sync_some(2, CONSUMERS);
    for (int i = 0; i < K / 8; i++)
        *(uint4 *)(s.slices[i / 2] + qrn_in_slice(row, i % 2 * 16)) = *(const uint4 *)(s.b + qrn_in_atom(row, 16 * i));
    qrn_fence_async();
    qrn_sync_some(2, CONSUMERS);
}

/* By rows, columns 64 and up of b are an array of their own. */
static __device__ void fill(const qrn_test_wgmma_params &p, stage &s, int k, qrn_barrier *full)
{
    qrn_barrier_arrive_expecting(full, A_BYTES + B_BYTES);
    if (p.way == QRN_BY_K) {
        qrn_tensor_copy(s.a, &p.a, k, 0, 0, full);
        qrn_tensor_copy(s.b, &p.b, k, 0, 0, full);
    } else {
        qrn_tensor_copy(s.a, &p.a, 0, k, 0, full);
        qrn_tensor_copy(s.b, &p.b, 0, k, 0, full);
        qrn_tensor_copy(s.b + B_BYTES / 2, &p.b, 64, k, 0, full);
    }
}

template <int way>
static __device__ void multiply(const qrn_test_wgmma_params &p, const stage &s, float (&c)[N / 2], int adds)
{
    const int lane = qrn_lane(), row = qrn_warp() * 16 + lane / 4;
    qrn_wgmma_fence();
    for (int k = 0; k < K; k += 16, adds = 1) {
        const int step = way == QRN_BY_K ? 2 * k : k * QRN_LINE;
        const uint64_t a = qrn_tile_moved(way == QRN_BY_K ? qrn_tile_by_k(s.a) : qrn_tile_by_rows(s.a, 0), step),
                       b = p.b_in_slices ? qrn_tile_moved(qrn_slice_by_k(s.slices), k / 16 * SLICE) : qrn_tile_moved(way == QRN_BY_K ? qrn_tile_by_k(s.b)
                                                          : qrn_tile_by_rows(s.b, B_BYTES / 2), step);
        if (p.a_in_registers) {
            uint32_t mine[4];
            for (int i = 0; i < 4; i++)
                mine[i] = *(const uint32_t *)(s.a + qrn_in_atom(row + i % 2 * 8, 2 * k + lane % 4 * 4 + i / 2 * 16));
            qrn_wgmma_bf16<N, way>(c, mine, b, adds);
        } else {
            qrn_wgmma_bf16<N, way, way>(c, a, b, adds);
        }
    }
    qrn_wgmma_commit();
    qrn_wgmma_wait<0>();
}

QRN_DEVICE_FUNCTION(qrn_test_wgmma, 160, 1, qrn_test_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full, empty;
    stage &s = *(stage *)qrn_align_shared(memory, QRN_ATOM);
    if (threadIdx.x == 0) {
        qrn_barrier_init(&full, 1);
        qrn_barrier_init(&empty, CONSUMERS);
        qrn_barriers_are_ready();
    }
    __syncthreads();
    qrn_ring<1> ring;
    if (qrn_warp() == CONSUMERS / 32) {
        for (int k = 0; k < p.k; k += K, ring.next()) {
            qrn_barrier_wait(&empty, ring.parity ^ 1);
            if (qrn_lane() == 0) fill(p, s, k, &full);
            __syncwarp();
        }
        return;
    }
    float c[N / 2];
    for (int k = 0; k < p.k; k += K, ring.next()) {
        qrn_barrier_wait(&full, ring.parity);
        if (p.b_in_slices) slice(s);
        if (p.way == QRN_BY_K) multiply<QRN_BY_K>(p, s, c, k > 0);
        else multiply<QRN_BY_ROWS>(p, s, c, k > 0);
        qrn_barrier_arrive(&empty);
    }
    const int row = qrn_warp() * 16 + qrn_lane() / 4, column = qrn_lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) p.c[(row + i / 2 * 8) * N + 8 * j + column + i % 2] = c[4 * j + i];
}

/* Copies of 16 bytes that arrive at a barrier, a bulk copy, and warps that meet without the others: out
 * gets p.a's first 2 KiB, by bytes of 32 threads and at once. */
QRN_DEVICE_FUNCTION(qrn_test_pipeline, 96, 1, qrn_test_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier one, many;
    __shared__ int met;
    const int lane = qrn_lane();
    if (threadIdx.x == 0) {
        qrn_barrier_init(&one, 1);
        qrn_barrier_init(&many, 32);
        qrn_barriers_are_ready();
        met = 0;
    }
    __syncthreads();
    const char *from = (const char *)p.data;
    if (qrn_warp() == 0) {
        for (int i = 0; i < 2; i++)
            qrn_copy16_async(memory + 16 * (lane + 32 * i), from + 16 * (lane + 32 * i), 16);
        qrn_barrier_arrive_after_copies(&many);
        if (lane == 0) {
            qrn_barrier_arrive_expecting(&one, 1024);
            qrn_bulk_copy(memory + 1024, from + 1024, 1024, &one);
        }
    } else if (qrn_warp() == 1) {
        if (lane == 0) met = 1;
        qrn_arrive_some(3, 64);
    } else {
        qrn_sync_some(3, 64);
        qrn_barrier_wait(&one, 0);
        qrn_barrier_wait(&many, 0);
        for (int i = lane; i < 512; i += 32) p.c[i] = met * ((const float *)memory)[i];
    }
}

static __device__ uint32_t word_at(const uint32_t *place)
{
#ifdef QRN_EMULATED
    emulated_yield();
#endif
    return *(const volatile uint32_t *)place;
}

/* In each round a block tells all blocks its number; its next one comes from theirs and from what a bulk
 * copy has brought meanwhile. */
QRN_DEVICE_FUNCTION(qrn_test_ring, QRN_TEST_RING_THREADS, 1, qrn_test_ring_params)
{
    QRN_DYNAMIC_SHARED(uint32_t, tile);
    __shared__ qrn_barrier full;
    __shared__ uint32_t seen[32], number;
    const int n = (int)gridDim.x, block = (int)blockIdx.x, lane = qrn_lane();
    if (threadIdx.x == 0) {
        qrn_barrier_init(&full, 1);
        qrn_barriers_are_ready();
        number = (uint32_t)block + 1;
    }
    __syncthreads();
    for (int round = 0; round < p.n_rounds; round++) {
        uint32_t *words = p.words + round * n;
        if (threadIdx.x == 0) {
            qrn_barrier_arrive_expecting(&full, 4 * QRN_TEST_RING_DATA);
            qrn_bulk_copy(tile, p.data + QRN_TEST_RING_DATA * block, 4 * QRN_TEST_RING_DATA, &full);
            if (block != p.mute) *(volatile uint32_t *)(words + block) = number;
        }
        if (qrn_warp() == 1) {
            uint32_t word = lane >= n;
            while (!__all_sync(QRN_ALL_OF_WARP, word != 0)) word = word ? word : word_at(words + lane);
            seen[lane] = word;
        }
        __syncthreads();
        qrn_barrier_wait(&full, round & 1);
        if (threadIdx.x == 0) {
            for (int i = 0; i < n; i++) number = 5 * number + seen[i];
            number = (number + tile[round % QRN_TEST_RING_DATA]) | 1;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) p.out[block] = number;
}

/* Waits for what nobody writes, and meets itself again and again. */
QRN_DEVICE_FUNCTION(qrn_test_never_told, QRN_TEST_RING_THREADS, 1, qrn_test_ring_params)
{
    __shared__ uint32_t word;
    do {
        __syncthreads();
        if (threadIdx.x == 0) word = blockIdx.x == 0 ? 1 : word_at(p.words);
        __syncthreads();
    } while (word == 0);
}

/* Whether the block goes on. */
static __device__ bool meet_cluster(int fault)
{
    if (fault == QRN_TEST_IS_ABSENT) return false;
    if (fault != QRN_TEST_NEVER_ARRIVES) qrn_cluster_arrive();
    if (fault == QRN_TEST_ARRIVES_TWICE) qrn_cluster_arrive();
    if (fault == QRN_TEST_DOES_NOT_WAIT) return false;
    qrn_cluster_wait();
    return fault != QRN_TEST_LEAVES;
}

/* In each round a block sends its numbers to the next one of its cluster; its next ones come from those that it gets. */
QRN_DEVICE_FUNCTION(qrn_test_cluster, QRN_TEST_CLUSTER_THREADS, 1, qrn_test_cluster_params)
{
    enum { THREADS = QRN_TEST_CLUSTER_THREADS, ROUNDS = QRN_TEST_CLUSTER_ROUNDS };
    QRN_DYNAMIC_SHARED(float, numbers);
    qrn_barrier *full = (qrn_barrier *)(numbers + ROUNDS * THREADS);
    const int rank = (int)blockIdx.x % p.n_cluster, tid = (int)threadIdx.x,
              fault = rank == p.n_cluster / 2 ? p.fault : (int)QRN_TEST_NO_FAULT;
    if (tid == 0) {
        for (int i = 0; i < ROUNDS; i++) qrn_barrier_init(full + i, 1);
        qrn_barriers_are_ready();
        for (int i = 0; i < ROUNDS; i++) qrn_barrier_arrive_expecting(full + i, 4 * THREADS);
    }
    float x = (float)(blockIdx.x * THREADS + threadIdx.x);
    if (fault == QRN_TEST_SENDS_EARLY) qrn_send_to_block(numbers, x, full, 0);
    if (!meet_cluster(fault)) return;
    for (int i = 0; i < ROUNDS; i++) {
        const int to = fault == QRN_TEST_SENDS_OUT ? p.n_cluster : (rank + 1) % p.n_cluster;
        float *at = numbers + i * THREADS;
        if (i == 3) (void)meet_cluster(QRN_TEST_NO_FAULT);
        if (fault != QRN_TEST_IS_MUTE) qrn_send_to_block(at + tid, x, full + i, to);
        qrn_barrier_wait(full + i, 0);
        x = 0.5f * x + at[tid ^ 1];
    }
    p.out[blockIdx.x * THREADS + threadIdx.x] = x;
}
