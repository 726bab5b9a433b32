#!/usr/bin/env python3
"""Prints the cells of a synthesized unit or chip by part, as tab-separated values.

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


def part_of_unit(name):
    first = re.sub(r"^g_way\[\d+\]\.", "", name).split(".")[0]
    # What fits a ring's words to its decoder counts for the ring.
    first = {"halves": "words", "pairs": "values"}.get(first, first)
    return first if first in PARTS else "controller and ports"


def part_of_chip(name):
    lane = re.match(r"g_lane\[(\d+)\]\.lane\.(?:(unit|side)\.)?", name)
    if lane:
        return f"lane {lane[1]}: {lane[2] or 'words, lists, comparison'}"
    return "port" if name.startswith("port.") else "registers and queues"


def main():
    modules = json.load(open(sys.argv[1]))["modules"]
    top, part_of = ("chip", part_of_chip) if "chip" in modules else ("unit", part_of_unit)
    counts = collections.defaultdict(collections.Counter)
    for name, cell in modules[top]["cells"].items():
        counts[part_of(name)][cell["type"]] += 1
    print("\t".join(["part", *KINDS]))
    for part in [*PARTS, "controller and ports"] if top == "unit" else sorted(counts):
        print("\t".join([part, *(str(counts[part][kind]) for kind in KINDS)]))
    print("\t".join(["all", *(str(sum(count[kind] for count in counts.values())) for kind in KINDS)]))


main()
