#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes src/formats/block_tables.inc from the figures in the PyPI package gguf.

    pip install gguf numpy
    scripts/make_tables.py            writes the file
    scripts/make_tables.py --check    exits with 1 if the file is not what would be written

A grid point is 8 (IQ1, IQ2) or 4 (IQ3) codes in one uint16_t, the first in the lowest bits, of 2 or
4 bits; a code is a step on the grid's short list of levels.
"""
import pathlib
import sys

import numpy as np
from gguf import quants

OUT = pathlib.Path(__file__).resolve().parent.parent / "src/formats/block_tables.inc"

# name, class, bits per code
GRIDS = [
    ("iq2_xxs", quants.IQ2_XXS, 2),
    ("iq2_xs", quants.IQ2_XS, 2),
    ("iq2_s", quants.IQ2_S, 2),
    ("iq1", quants.IQ1_S, 2),
    ("iq3_xxs", quants.IQ3_XXS, 4),
    ("iq3_s", quants.IQ3_S, 4),
]


def c_array(declaration, numbers, form, per_line):
    lines = [f"const {declaration} = {{"]
    for i in range(0, len(numbers), per_line):
        lines.append("    " + " ".join(form.format(x) + "," for x in numbers[i:i + per_line]))
    return "\n".join(lines + ["};\n"])


def packed_grid(quant, bits):
    quant.init_grid()
    points = quant.grid.reshape(quant.grid_shape).astype(int)
    step_of = {level: step for step, level in enumerate(quant.grid_map)}
    return [sum(step_of[x] << bits * j for j, x in enumerate(point)) for point in points.tolist()]


def text():
    parts = ["/* SPDX-License-Identifier: MIT\n"
             " * Tables of the block formats.  Written by scripts/make_tables.py: do not edit. */\n"]
    parts.append(c_array("int8_t qrn_iq4_levels[16]", quants.IQ4_NL.kvalues, "{}", 16))
    assert quants.NVFP4.kvalues == quants.MXFP4.kvalues
    parts.append(c_array("int8_t qrn_fp4_levels[16]", quants.MXFP4.kvalues, "{}", 16))
    parts.append(c_array("int8_t qrn_iq2_levels[3]", quants.IQ2_XXS.grid_map, "{}", 16))
    assert quants.IQ2_XS.grid_map == quants.IQ2_S.grid_map == quants.IQ2_XXS.grid_map
    parts.append(c_array("int8_t qrn_iq1_levels[3]", quants.IQ1_S.grid_map, "{}", 16))
    parts.append(c_array("int8_t qrn_iq3_xxs_levels[8]", quants.IQ3_XXS.grid_map, "{}", 16))
    parts.append(c_array("int8_t qrn_iq3_s_levels[8]", quants.IQ3_S.grid_map, "{}", 16))
    signs = np.frombuffer(quants.IQ2_XXS.ksigns, dtype=np.uint8).tolist()
    parts.append(c_array("uint8_t qrn_iq_signs[128]", signs, "0x{:02x}", 14))
    for name, quant, bits in GRIDS:
        grid = packed_grid(quant, bits)
        parts.append(c_array(f"uint16_t qrn_{name}_grid[{len(grid)}]", grid, "0x{:04x}", 12))
    return "\n".join(parts)


def main():
    if sys.argv[1:] == ["--check"]:
        if OUT.read_text() != text():
            sys.exit(f"{OUT} is not what scripts/make_tables.py writes")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        OUT.write_text(text())


main()
