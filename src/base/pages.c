/* SPDX-License-Identifier: MIT
 * Large memory straight from the system, which is asked for huge pages: a stream of weights crosses a
 * page of 4 KiB every 200 ns, and prefetchers stop there.  docs/performance.md has the numbers. */
#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* AddressSanitizer watches the ends of what malloc gives, and nothing else. */
#if defined(__SANITIZE_ADDRESS__)
#define QRN_ONLY_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QRN_ONLY_MALLOC 1
#endif
#endif

bool qrn_pages_wanted(size_t n_bytes)
{
#if defined(QRN_ONLY_MALLOC)
    (void)n_bytes;
    return false;
#else
    return n_bytes >= QRN_HUGE_PAGE;
#endif
}

/* What lies before the first boundary and after the last byte is given back at once. */
void *qrn_pages_alloc(size_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 2) return NULL;
    const size_t n = (n_bytes + QRN_HUGE_PAGE - 1) / QRN_HUGE_PAGE * QRN_HUGE_PAGE;
    char *all =
        mmap(NULL, n + QRN_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    const size_t before = (QRN_HUGE_PAGE - (uintptr_t)all % QRN_HUGE_PAGE) % QRN_HUGE_PAGE;
    char *memory = all + before;
    if (before) munmap(all, before);
    munmap(memory + n, QRN_HUGE_PAGE - before);
#if defined(MADV_HUGEPAGE)
    madvise(memory, n, MADV_HUGEPAGE); /* refused: small ones do */
#endif
    return memory;
}

void qrn_pages_free(void *memory, size_t n_bytes)
{
    munmap(memory, (n_bytes + QRN_HUGE_PAGE - 1) / QRN_HUGE_PAGE * QRN_HUGE_PAGE);
}

size_t qrn_page_size(void)
{
    const long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

size_t qrn_machine_memory(void)
{
    const long n = sysconf(_SC_PHYS_PAGES);
    return n > 0 ? (size_t)n * qrn_page_size() : 0;
}
