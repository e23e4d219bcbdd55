/* SPDX-License-Identifier: MIT
 * Writes when each launch of a program began and ended, as CUPTI has it: a library that the driver loads into the program.
 *     cc -O2 -shared -fPIC -I/usr/local/cuda/include -o timeline.so bench/gpu_timeline.c -L/usr/local/cuda/lib64 -lcupti
 *     QRN_TIMELINE=launches.csv CUDA_INJECTION64_PATH=$PWD/timeline.so quern bench ... --device cuda
 *     python3 bench/gpu_timeline.py launches.csv
 * Launches still overlap, and those of graphs are told one by one; it takes 1 to 5 % of the time. */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFER_BYTES = 16 << 20, ALIGNED = 64 };

static FILE *file;

static void CUPTIAPI want_buffer(uint8_t **buffer, size_t *n_bytes, size_t *most_records)
{
    *buffer = aligned_alloc(ALIGNED, BUFFER_BYTES);
    *n_bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void write_launch(const CUpti_ActivityKernel9 *k)
{
    fprintf(file, "%llu,%llu,%s,%d,%d,%d\n", (unsigned long long)k->start,
            (unsigned long long)k->end, k->name, k->gridX * k->gridY * k->gridZ, k->blockX,
            k->staticSharedMemory + k->dynamicSharedMemory);
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer,
                                 size_t n_bytes, size_t n_valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)n_bytes;
    while (file && cuptiActivityGetNextRecord(buffer, n_valid, &record) == CUPTI_SUCCESS)
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
            write_launch((const CUpti_ActivityKernel9 *)(const void *)record);
    free(buffer);
}

static void finish(void)
{
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (file) (void)fclose(file);
    file = NULL;
}

/* The driver calls it as the program begins to use it. */
int InitializeInjection(void)
{
    const char *path = getenv("QRN_TIMELINE");
    file = fopen(path ? path : "launches.csv", "w");
    if (!file) return 0;
    fputs("begin,end,function,blocks,threads,shared bytes\n", file);
    (void)atexit(finish);
    return cuptiActivityRegisterCallbacks(want_buffer, take_buffer) == CUPTI_SUCCESS &&
           cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS;
}
