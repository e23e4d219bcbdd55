/* SPDX-License-Identifier: MIT
 * A product of many rows whose outputs are gates and ups, and silu_mul of both, as one: its sums never leave the lane.  For
 * units whose many knows a drive's middle. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_SILU_H
#define QUERN_BACKENDS_CPU_MATMUL_SILU_H

#include "backends/cpu/joints.h"
#include "backends/cpu/matmul_drive.h"
#include "core/overlap.h"

/* So many turns for each lane leave none waiting long at the end. */
enum { LEAST_TURNS = 6 };

static inline bool silu_views_match(const struct qrn_tensor *out,
                                    const struct qrn_silu_mul_args *silu)
{
    const int last = out->n_dims - 1;
    const int64_t d = out->shape[last] / 2;
    if (out->shape[last] % (2 * QRN_Q8_ACT_BLOCK)) return false;
    const struct qrn_tensor gate = qrn_tensor_slice(*out, last, 0, d),
                            up = qrn_tensor_slice(*out, last, d, d);
    return qrn_same_view(&silu->gate, &gate) && qrn_same_view(&silu->up, &up);
}

static inline bool silu_job_matches(const struct matmul_job *j, const struct matmul_unit *u,
                                    const struct qrn_silu_mul_args *silu, int n_lanes)
{
    static const struct qrn_operand reads = {.access = QRN_READS},
                                    opaque = {.access = QRN_READS | QRN_OPAQUE},
                                    writes = {.access = QRN_WRITES};
    return silu->drops_inputs && j->packed && j->n_matrices == 1 && j->k > 0 &&
           drive_many(j, u, 0) && silu_views_match(j->out, silu) &&
           j->n / 2 >= (int64_t)QRN_Q8_ACT_BLOCK * LEAST_TURNS * n_lanes &&
           qrn_are_apart(&writes, &silu->out, &reads, j->x) &&
           qrn_are_apart(&writes, &silu->out, &opaque, j->w);
}

/* The joint of a matmul kernel of AVX-512, from unit(job). */
#define MATMUL_SILU_JOINT(variant)                                                                 \
    extern const struct qrn_kernel qrn_cpu_silu_mul_avx512;                                        \
    static bool silu_matches(const void *first, const void *second, int n_lanes)                   \
    {                                                                                              \
        if (matmul_dim(&((const struct qrn_matmul_args *)first)->x, 1) <= MAX_TILE_ROWS)           \
            return false;                                                                          \
        const struct matmul_job j = matmul_job(first);                                             \
        const struct matmul_unit u = unit(&j);                                                     \
        return silu_job_matches(&j, &u, second, n_lanes);                                          \
    }                                                                                              \
    static void silu_run(struct qrn_cpu_lane *lane, const void *first, const void *second)         \
    {                                                                                              \
        struct matmul_job j = matmul_job(first);                                                   \
        const struct matmul_unit u = unit(&j);                                                     \
        drive_run(lane, &j, &u, &((const struct qrn_silu_mul_args *)second)->out);                 \
    }                                                                                              \
    const struct qrn_cpu_joint qrn_cpu_joint_silu_##variant = {.first = &qrn_cpu_matmul_##variant, \
                                                               .second = &qrn_cpu_silu_mul_avx512, \
                                                               .matches = silu_matches,            \
                                                               .run = silu_run}

#endif
