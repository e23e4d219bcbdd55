/* SPDX-License-Identifier: MIT
 * The environment variables the library knows: the only place that reads them. */
#ifndef QUERN_BASE_ENV_H
#define QUERN_BASE_ENV_H

/* X(name, "VARIABLE", "meaning") */
#define QRN_ENV_LIST(X)                                                                  \
    X(cpu_disable, "QRN_CPU_DISABLE", "comma-separated CPU features not to use")         \
    X(kernels, "QRN_KERNEL", "comma-separated op=kernel pairs that override the choice") \
    X(cuda_driver, "QRN_CUDA_DRIVER", "path of NVIDIA's driver library")                 \
    X(cuda_blas, "QRN_CUDA_BLAS", "path of cuBLASLt; empty: none")

struct qrn_env {
#define X(name, variable, meaning) const char *name;
    QRN_ENV_LIST(X)
#undef X
};

/* Values as they are now; NULL for those that are not set. */
struct qrn_env qrn_env_read(void);

#endif
