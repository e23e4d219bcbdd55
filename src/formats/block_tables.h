/* SPDX-License-Identifier: MIT
 * Levels and grids of the block formats (block_tables.inc, written by scripts/make_tables.py).
 *
 * A grid entry is a point of 8 codes of 2 bits (IQ1, IQ2) or 4 codes of 4 bits (IQ3), the first in
 * the lowest bits; a code is an index into the levels of that grid. */
#ifndef QUERN_FORMATS_BLOCK_TABLES_H
#define QUERN_FORMATS_BLOCK_TABLES_H

#include <stdint.h>

extern const int8_t qrn_iq4_levels[16]; /* IQ4_NL, IQ4_XS; ascending */
extern const int8_t qrn_fp4_levels[16]; /* E2M1, doubled; bit 3 is the sign */

extern const int8_t qrn_iq2_levels[3];
extern const int8_t qrn_iq1_levels[3];
extern const int8_t qrn_iq3_xxs_levels[8];
extern const int8_t qrn_iq3_s_levels[8];

/* Eight signs from seven bits: the eighth makes the number of minus signs even. */
extern const uint8_t qrn_iq_signs[128];

extern const uint16_t qrn_iq2_xxs_grid[256];
extern const uint16_t qrn_iq2_xs_grid[512];
extern const uint16_t qrn_iq2_s_grid[1024];
extern const uint16_t qrn_iq1_grid[2048]; /* IQ1_S and IQ1_M */
extern const uint16_t qrn_iq3_xxs_grid[256];
extern const uint16_t qrn_iq3_s_grid[512];

#endif
