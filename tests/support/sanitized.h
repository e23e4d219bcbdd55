/* SPDX-License-Identifier: MIT
 * Whether this build runs under AddressSanitizer or ThreadSanitizer: many times slower, and with an
 * allocator of its own. */
#ifndef TESTS_SUPPORT_SANITIZED_H
#define TESTS_SUPPORT_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if !defined(SANITIZED)
#define SANITIZED 0
#endif

/* ThreadSanitizer alone: slower still. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZED_THREADS 1
#else
#define SANITIZED_THREADS 0
#endif

#endif
