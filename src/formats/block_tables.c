/* SPDX-License-Identifier: MIT
 * The tables of the block formats, compiled once. */
#include "formats/block_tables.h"

#include "formats/block_tables.inc"
