/* SPDX-License-Identifier: MIT
 * Large memory straight from the system: already zeroed, not in memory before it is touched, and
 * placed so that huge pages can hold it. */
#ifndef QUERN_BASE_PAGES_H
#define QUERN_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#define QRN_HUGE_PAGE ((size_t)2 << 20) /* of x86 and of Arm with 4 KiB pages */

/* Whether memory of that size should come from here. */
bool qrn_pages_wanted(size_t n_bytes);

/* Zeroed, untouched until first used, aligned to QRN_HUGE_PAGE; NULL when there is none. */
void *qrn_pages_alloc(size_t n_bytes);
void qrn_pages_free(void *memory, size_t n_bytes);

/* Bytes of a page, and of the machine's memory (0: unknown). */
size_t qrn_page_size(void);
size_t qrn_machine_memory(void);

#endif
