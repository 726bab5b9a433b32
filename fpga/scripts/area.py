#!/usr/bin/env python3
"""Prints the cells of a synthesized unit by part, as tab-separated values.

    area.py UNIT.json

The netlist is flat: a cell counts for the part that its name begins with. Logic between two parts counts for one of
them.
"""

import collections
import json
import re
import sys

KINDS = ["LUT4", "CCU2C", "PFUMX", "L6MUX21", "TRELLIS_FF", "TRELLIS_DPR16X4", "DP16KD"]
PARTS = ["fetch", "words", "ahead", "blocks", "decoder", "keys", "values", "merge", "visible", "encoder", "packer",
         "seal", "writer"]


def part_of(name):
    first = re.sub(r"^g_way\[\d+\]\.", "", name).split(".")[0]
    return first if first in PARTS else "controller and ports"


def main():
    cells = json.load(open(sys.argv[1]))["modules"]["unit"]["cells"]
    counts = collections.defaultdict(collections.Counter)
    for name, cell in cells.items():
        counts[part_of(name)][cell["type"]] += 1
    print("\t".join(["part", *KINDS]))
    for part in [*PARTS, "controller and ports"]:
        print("\t".join([part, *(str(counts[part][kind]) for kind in KINDS)]))
    print("\t".join(["all", *(str(sum(count[kind] for count in counts.values())) for kind in KINDS)]))


main()
