/* SPDX-License-Identifier: MIT
 * Structs that are given to kernels stand between QRN_PARAMS_BEGIN and QRN_PARAMS_END: no byte of
 * them may be padding, which the compiler refuses there.  So whoever names fields sets every byte, and
 * nothing that lay in memory before goes to the device, where the emulator would take it for an address.
 * Fields named rest fill gaps. */
#ifndef QUERN_BACKENDS_CUDA_PARAMS_CUDA_H
#define QUERN_BACKENDS_CUDA_PARAMS_CUDA_H

#define QRN_PARAMS_BEGIN \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic error \"-Wpadded\"")
#define QRN_PARAMS_END _Pragma("GCC diagnostic pop")

#endif
