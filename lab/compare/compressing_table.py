"""Tables of what `compressing.sh` has measured: python3 lab/compare/compressing_table.py OUTPUT > report.md

Each run has a line in each table, one table for each set and phase. Bytes come from the statistics of both zram drives, which the script
has read each second: what a phase wrote is the difference between the lines before its begin and behind its end. zram counts the
bytes that it is asked to write, and what it holds compressed. What it has compressed on the way it does not count. So *physical bytes written*
is an estimate: the bytes that it was asked to write, by the ratio of what it holds.

Where processors were sampled (PERF=1), a column says which part of the time of the processors was spent as the drive: zram compresses on
them. The samples are of the whole machine.
"""

import json
import pathlib
import statistics
import sys

HEAD = ["store", "requests/s", "CPU µs", "of it in the drive", "read p99 µs", "write p99 µs", "memory MiB", "held / user byte", "written / user byte",
        "physical written"]


class Drives:
    """What both drives have said together, by second."""

    def __init__(self, path):
        self.lines = {}
        samples = [line.split() for line in path.read_text().splitlines()]
        # A line for each drive, one behind the other. The second may end between the two.
        for one, other in zip(samples[::2], samples[1::2]):
            assert one[1] != other[1], f"{path}: {one} and {other} are of the same drive"
            self.lines[int(one[0])] = [int(a) + int(b) for a, b in zip(one[2:], other[2:])]

    def before(self, unix_ms):
        """The last line before a moment: nothing if the drives were emptied since. A line may be of up to a second after the one it names."""
        seconds = sorted(self.lines)
        before = self.lines[max((second for second in seconds if (second + 1) * 1000 <= unix_ms), default=seconds[0])]
        next_line = self.lines[next((second for second in seconds if second * 1000 >= unix_ms), seconds[-1])]
        return before if next_line[4] >= before[4] else [0] * 5

    def after(self, unix_ms):
        """The line behind a moment, or the one before if the drives were emptied since, for the next run."""
        seconds = sorted(self.lines)
        before = self.lines[max((second for second in seconds if (second + 1) * 1000 <= unix_ms), default=seconds[0])]
        after = self.lines[next((second for second in seconds if second * 1000 >= unix_ms), seconds[-1])]
        return after if after[4] >= before[4] and after[1] >= before[1] // 20 * 19 else before


class Processors:
    """What the samples of the processors say, by second; nothing where none were taken."""

    def __init__(self, path):
        lines = path.read_text().splitlines() if path.exists() else []
        self.lines = [[int(number) for number in line.split()] for line in lines]

    def drive_share(self, begin_ms, end_ms):
        """The share of the samples between two moments that were in the code of zram, of LZ4 in the kernel, or of zsmalloc."""
        within = [counts for second, *counts in self.lines if begin_ms < second * 1000 and (second + 1) * 1000 < end_ms]
        total = sum(sum(counts) for counts in within)
        return sum(counts[0] for counts in within) / total if total else None


def latency(phase, kinds):
    found = [entry["p99_ns"] for entry in phase["latencies"] if entry["kind"] in kinds]
    return f"{found[0] / 1000:.1f}" if found else ""


def row(result, phase, drives, processors):
    begin, end = drives.before(phase["began_unix_ms"]), drives.after(phase["settled_unix_ms"])
    live, user = phase["live_user_bytes"], phase["user_bytes_written"]
    original, compressed = end[0], end[1]
    written = (end[4] - begin[4]) * 512
    cpu = phase["cpu_user_seconds"] + phase["cpu_system_seconds"] + phase["settle_cpu_seconds"]
    share = processors.drive_share(phase["began_unix_ms"], phase["settled_unix_ms"])
    return {
        "store": result["label"],
        "rate": phase["operations_per_second"],
        "cpu": cpu / phase["operations"] * 1e6,
        "own": cpu / phase["operations"] * 1e6 * (1 - (share or 0)),
        "cells": [
            "" if share is None else f"{share:.0%}",
            latency(phase, ["read"]),
            latency(phase, ["update", "insert"]),
            f"{phase['anonymous_bytes_peak'] / 2**20:.0f}",
            f"{compressed / live:.2f}",
            f"{written / user:.1f}" if user else "",
            f"{written / user * compressed / original:.1f}" if user and original else "",
        ],
        "held": compressed / live,
    }


def table(phase_rows):
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    for one in phase_rows:
        print("| " + " | ".join([one["store"], f"{one['rate']:,.0f}", f"{one['cpu']:.1f}", *one["cells"]]) + " |")
    medians = {}
    for name in {one["store"] for one in phase_rows}:
        mine = [one for one in phase_rows if one["store"] == name]
        medians[name] = {key: statistics.median(one[key] for one in mine) for key in ("rate", "cpu", "own", "held")}
    if {"rocksdb", "situ-hash"} <= medians.keys():
        a, b = medians["situ-hash"], medians["rocksdb"]
        print(f"\nHash store to RocksDB, medians: rate {a['rate'] / b['rate']:.2f}, CPU {a['cpu'] / b['cpu']:.2f}, "
              f"CPU but for the drive's {a['own'] / b['own']:.2f}, physical bytes {a['held'] / b['held']:.2f}.")


def main():
    output = pathlib.Path(sys.argv[1])
    for drives_path in sorted(output.glob("*.drives.txt")):
        name = drives_path.name.removesuffix(".drives.txt")
        results = [json.loads(path.read_text()) for path in sorted((output / name).glob("*-[0-9]*.json"))]
        drives = Drives(drives_path)
        processors = Processors(output / f"{name}.processors.txt")
        phases = {}
        for result in results:
            for phase in result["phases"]:
                phases.setdefault(phase["workload"], []).append(row(result, phase, drives, processors))
        for workload, phase_rows in phases.items():
            print(f"\n## {name}, {workload}\n")
            table(phase_rows)
        for result in results:
            detail = result["phases"][-1]["stats"]["detail"]
            if "overflow_share" in detail:
                print(f"\nOverflow of {result['label']} at the end: {detail['overflow_share']:.3%} of the entries; "
                      f"load {detail['load']:.3f}.")


if __name__ == "__main__":
    main()
