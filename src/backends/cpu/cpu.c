/* SPDX-License-Identifier: MIT
 * The CPU as a device: features, lanes, one wake-up for a whole recording. */
#include "backends/cpu/lanes.h"
#include "backends/cpu/recent.h"

#include <stdio.h>
#include <string.h>
#include "base/amx.h"
#include "base/float_mode.h"
#include "base/memory.h"

#if defined(QRN_ISA_x86_64)
#define QRN_KERNELS_X86(op, variant) QRN_KERNEL(op, variant)
#else
#define QRN_KERNELS_X86(op, variant)
#endif
#if defined(QRN_ISA_aarch64)
#define QRN_KERNELS_ARM(op, variant) QRN_KERNEL(op, variant)
#else
#define QRN_KERNELS_ARM(op, variant)
#endif

#define QRN_KERNEL(op, variant) extern const struct qrn_kernel qrn_cpu_##op##_##variant;
#include "backends/cpu/kernels.inc"
#undef QRN_KERNEL

static const struct qrn_kernel *const kernels[] = {
#define QRN_KERNEL(op, variant) &qrn_cpu_##op##_##variant,
#include "backends/cpu/kernels.inc"
#undef QRN_KERNEL
    NULL,
};

struct cpu {
    struct qrn_thread_pool threads;
    bool owns_threads;
    struct qrn_cpu_lanes *lanes;
    struct qrn_cpu_recent recent;
    size_t cache_bytes;
    void *scratch; /* of the steps, behind numbers that they take from */
    size_t scratch_bytes;
};

static void name_bits(struct qrn_device *dev)
{
    const uint64_t f = dev->features;
    const char *isa = "generic";
    if (f & QRN_CPU_NEON) isa = "neon";
    if ((f & QRN_CPU_AVX2) && (f & QRN_CPU_FMA) && (f & QRN_CPU_F16C)) isa = "avx2";
    if (f & QRN_CPU_AVX512) isa = "avx512";
    if (f & QRN_CPU_AVX512_VNNI) isa = "avx512vnni";
    (void)snprintf(dev->bits, sizeof dev->bits, "cpu %s", isa);
}

static enum qrn_status cpu_open(struct qrn_device *dev, const struct qrn_device_options *o,
                                struct qrn_error *err)
{
    const struct qrn_allocator *a = &dev->host.allocator;
    if (o->n_threads < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "n_threads is %d, wants 0 or more", o->n_threads);
    const uint64_t amx = QRN_CPU_AMX_TILE | QRN_CPU_AMX_INT8 | QRN_CPU_AMX_BF16;
    if (o->amx != QRN_AMX_AUTO && o->amx != QRN_AMX_OFF)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "amx is %d, wants 0 or 1", (int)o->amx);
    dev->features = qrn_cpu_features();
    QRN_TRY(qrn_cpu_disable(&dev->features, o->cpu_disable, err));
    if (o->amx == QRN_AMX_OFF)
        dev->features &= ~amx;
    else
        dev->features = (dev->features & ~amx) | qrn_amx_proven(dev->features & amx);
    name_bits(dev);
    struct cpu *cpu = qrn_alloc_zeroed(a, sizeof *cpu);
    if (!cpu) return qrn_fail_memory(err, sizeof *cpu, "a device");
    cpu->cache_bytes = qrn_cpu_cache_bytes();
    enum qrn_status status = QRN_OK;
    if (o->threads) {
        cpu->threads = *o->threads;
        const bool fewer = o->n_threads && o->n_threads < cpu->threads.n_threads;
        dev->n_threads = fewer ? o->n_threads : cpu->threads.n_threads;
    } else {
        dev->n_threads = o->n_threads ? o->n_threads : qrn_n_cores();
        status = qrn_threads_create(dev->n_threads, a, &cpu->threads, err);
        if (status == QRN_OK) cpu->threads = qrn_threads_without_late(&cpu->threads);
        cpu->owns_threads = true;
    }
    if (status == QRN_OK) {
        status = qrn_cpu_lanes_create(dev->n_threads, dev->features, a, &cpu->lanes, err);
        if (status != QRN_OK && cpu->owns_threads) qrn_threads_destroy(&cpu->threads, a);
    }
    if (status != QRN_OK) {
        qrn_free(a, cpu, sizeof *cpu);
        return status;
    }
    dev->impl = cpu;
    return QRN_OK;
}

static void cpu_close(struct qrn_device *dev)
{
    struct cpu *cpu = dev->impl;
    const struct qrn_allocator *a = &dev->host.allocator;
    if (cpu->owns_threads) qrn_threads_destroy(&cpu->threads, a);
    qrn_cpu_lanes_destroy(cpu->lanes, a);
    qrn_free(a, cpu->scratch, cpu->scratch_bytes);
    qrn_free(a, cpu, sizeof *cpu);
}

/* Steps that stand on single lanes alone want no more than the caller's thread. */
static int lanes_for(const struct qrn_device *dev, const struct qrn_step *steps, size_t n_steps)
{
    for (size_t i = 0; i < n_steps; i++)
        if (steps[i].lane == QRN_ALL_LANES) return dev->n_threads;
    return 1;
}

static enum qrn_status cpu_execute(struct qrn_device *dev, const struct qrn_step *steps,
                                   size_t n_steps, size_t scratch_bytes, struct qrn_error *err)
{
    struct cpu *cpu = dev->impl;
    const struct qrn_allocator *a = &dev->host.allocator;
    const size_t taken = (n_steps * sizeof(_Atomic int64_t) + QRN_ALIGNMENT - 1) / QRN_ALIGNMENT *
                         QRN_ALIGNMENT,
                 n_bytes = taken + scratch_bytes;
    if (n_bytes > cpu->scratch_bytes) {
        void *scratch = qrn_alloc(a, n_bytes);
        if (!scratch) return qrn_fail_memory(err, n_bytes, "scratch");
        qrn_free(a, cpu->scratch, cpu->scratch_bytes);
        cpu->scratch = scratch;
        cpu->scratch_bytes = n_bytes;
    }
    const bool near = qrn_cpu_recent_run(&cpu->recent, steps, n_steps, cpu->cache_bytes);
    return qrn_cpu_lanes_run(cpu->lanes, &cpu->threads, lanes_for(dev, steps, n_steps), steps,
                             n_steps, near, (char *)cpu->scratch + taken, cpu->scratch, err);
}

static void *cpu_alloc(struct qrn_device *dev, size_t n_bytes)
{
    return qrn_alloc_zeroed(&dev->host.allocator, n_bytes);
}

static void cpu_free(struct qrn_device *dev, void *memory, size_t n_bytes)
{
    qrn_free(&dev->host.allocator, memory, n_bytes);
}

static void cpu_zero(struct qrn_device *dev, void *memory, size_t n_bytes)
{
    (void)dev;
    memset(memory, 0, n_bytes);
}

const struct qrn_backend qrn_backend_cpu = {
    .name = "cpu",
    .kernels = kernels,
    .open = cpu_open,
    .close = cpu_close,
    .execute = cpu_execute,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .zero = cpu_zero,
    .feature_name = qrn_cpu_feature_name,
};
