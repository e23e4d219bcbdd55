/* SPDX-License-Identifier: MIT
 * Reference data and models outside the repository. */
#ifndef TESTS_SUPPORT_SHARED_H
#define TESTS_SUPPORT_SHARED_H

/* The path of a file or folder in the directory that QRN_SHARED names, else in ../shared; NULL if
 * there is none: the test skips then.  Valid until eight further calls of the thread. */
const char *shared_path(const char *relative);

#endif
