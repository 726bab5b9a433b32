#!/usr/bin/env python3
"""Makes tables and drawings of results of run.py, beside what the paper says.

    scripts/near-data/report.py results.jsonl --output report/

The directory gets report.md and drawings (SVG). Figures are medians over the repetitions, with the smallest and the largest. A ratio is
the median of the ratios within a repetition: configurations took turns, so a drift of the machine falls on both. Failed runs are
counted, not used.
"""

import argparse
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import matrix
import paper
import svg
from bed import Failure
from results import load

# (figure, what it is, unit): the tables, in their order.
FIGURES = (
    ("ops_s", "Throughput until the last request", "requests/s"),
    ("ops_s_settled", "Throughput until nothing was left to compact", "requests/s"),
    ("mb_s", "User bytes until the last request", "MB/s"),
    ("host_compaction_mb_s", "Compaction bandwidth of the host's unit, input bytes over the time it was at work", "MB/s"),
    ("node_compaction_mb_s", "Compaction bandwidth of the node's units, input bytes over the time they were at work", "MB/s"),
    ("host_overlap_bound", "Most that a pipeline could gain on the host: the sum of the stages' times over the longest", ""),
    ("node_overlap_bound", "Most that a pipeline could gain on the node: the sum of the stages' times over the longest", ""),
    ("host_cpu_percent", "Use of the host's core until the last request", "%"),
    ("node_cpu_percent", "Use of the node's core until the last request", "%"),
    ("host_mb_per_cpu", "Compaction bandwidth of the host for each percent of its core", "MB/s/%"),
    ("node_mb_per_cpu", "Compaction bandwidth of the node for each percent of its core", "MB/s/%"),
    ("wa_wire", "Write amplification: bytes from host to node over user bytes, settled", ""),
    ("wa_medium", "Write amplification: bytes on the node's medium over user bytes, settled", ""),
    ("wa_tables", "Write amplification: bytes of tables over user bytes, settled", ""),
    ("p99_us", "p99 of all requests", "us"),
    ("read_p99_us", "p99 of reads", "us"),
    ("update_p99_us", "p99 of updates", "us"),
    ("host_to_node_mb", "Bytes from host to node, settled", "MB"),
    ("node_to_host_mb", "Bytes from node to host, settled", "MB"),
    ("wire_write_mb", "Bytes in frames about writes of files, both ways, settled", "MB"),
    ("wire_read_mb", "Bytes in frames about reads of files, both ways, settled", "MB"),
    ("wire_compute_mb", "Bytes in frames about tasks, both ways, settled", "MB"),
    ("wire_names_mb", "Bytes in frames about names and room, both ways, settled", "MB"),
    ("wire_control_mb", "Bytes in frames about the connection, both ways, settled", "MB"),
    ("wire_per_compacted_byte", "Bytes on the wire for each byte that the node compacted", ""),
    ("stall_seconds", "Time for which writers were held back", "s"),
)
# Requests of all sizes have one axis in MB/s, and none in requests.
DRAWN = {"mb_s", "host_compaction_mb_s", "node_compaction_mb_s", "p99_us"}
BASE = "co-kv"


class Data:
    """Runs that ended well, by workload, configuration and repetition."""

    def __init__(self, runs):
        self.failed = [run for run in runs if "failed" in run]
        self.runs = {(run["workload"], run["policy"], run["repetition"]): run for run in runs if "failed" not in run}
        self.sets = {}
        for run in runs:
            workloads = self.sets.setdefault(run["set"], [])
            if run["workload"] not in workloads:
                workloads.append(run["workload"])
        self.policies = [policy for policy in matrix.POLICIES if any(run["policy"] == policy for run in runs)]

    def by_repetition(self, workload, policy, figure):
        found = {key[2]: run["figures"].get(figure) for key, run in self.runs.items() if key[:2] == (workload, policy)}
        return {repetition: value for repetition, value in found.items() if value is not None}

    def spread(self, workload, policy, figure):
        """(median, least, most)."""
        return spread(self.by_repetition(workload, policy, figure).values())

    def ratio(self, workload, policy, base, figure):
        own, others = (self.by_repetition(workload, one, figure) for one in (policy, base))
        return spread(own[repetition] / others[repetition] for repetition in own if others.get(repetition))


def spread(values):
    values = sorted(values)
    return (statistics.median(values), values[0], values[-1]) if values else None


def short(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def shown(found):
    if not found:
        return "-"
    middle, least, most = found
    return short(middle) if least == most else f"{short(middle)} ({short(least)} to {short(most)})"


def table(rows):
    """Markdown of rows, of which the first is the heading."""
    head, *rest = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] + ["---:"] * (len(head) - 1), *rest]) + "\n"


def figure_table(data, workloads, figure):
    """Configurations as columns, and CoPro to Co-KV here and in the paper."""
    policies = [policy for policy in data.policies if any(data.spread(workload, policy, figure) for workload in workloads)]
    if not policies:
        return None
    rows = [["", *policies, "CoPro : Co-KV", "in the paper"]]
    for workload in workloads:
        told = paper.ratio(workload, figure)
        cells = [shown(data.spread(workload, policy, figure)) for policy in policies]
        rows.append([workload, *cells, shown(data.ratio(workload, "copro", BASE, figure)), short(told) if told else "-"])
    return table(rows)


def paper_table(data):
    """The paper's own figures beside those from here."""
    rows = [["", "figure", "configuration", "in the paper", "here"]]
    for workload, told in paper.PAIRS.items():
        for figure in told:
            for policy in ("co-kv", "copro"):
                here = data.spread(workload, policy, figure)
                if here:
                    rows.append([workload, figure, policy, short(paper.value(workload, figure, policy)), shown(here)])
    for policy, sides in paper.MB_PER_CPU.items():
        for side, told in zip(("host", "node"), sides):
            if here := data.spread("W1", policy, f"{side}_mb_per_cpu"):
                rows.append(["W1", f"{side}_mb_per_cpu", policy, short(told), shown(here)])
    return table(rows) if len(rows) > 1 else None


def large_parts(workload):
    """Parts of a workload in which more than 70% of the values are large, in percent of the requests."""
    begin, found = 0, []
    for part in matrix.SCHEDULES.get(workload, ("", 0))[0].split(","):
        share, _, sizes = part.partition(":")
        if not share:
            continue
        weights = dict(((text.split("x") + ["1"])[:2] for text in sizes.split("+")))
        large = sum(int(weight) for size, weight in weights.items() if size == "64K")
        if large > 0.7 * sum(map(int, weights.values())):
            found.append((begin, begin + int(share)))
        begin += int(share)
    return found


def cpu_in(run, side, parts, inside):
    """Mean use of a core inside or outside of parts of the requests."""
    values = [point[f"{side}_cpu_percent"] for point in run["series"]
              if point[f"{side}_cpu_percent"] is not None
              and inside == any(begin <= point["done_percent"] < end for begin, end in parts)]
    return statistics.mean(values) if values else None


def extra_cpu(data, workload, side):
    """CoPro+'s use of a core above Co-KV's while values are large, over CoPro's; the median over repetitions."""
    parts, found = large_parts(workload), []
    for repetition in {key[2] for key in data.runs}:
        runs = [data.runs.get((workload, policy, repetition)) for policy in (BASE, "copro", "copro-plus")]
        if all(runs):
            base, copro, plus = (cpu_in(run, side, parts, True) for run in runs)
            if None not in (base, copro, plus) and copro > base:
                found.append((plus - base) / (copro - base))
    return spread(found)


def bandwidth_outside(run, side, parts):
    """MB/s of compaction of a side while it was at work, outside of parts of the requests."""
    steps = [point[f"{side}_compacted"] for point in run["series"]
             if point.get(f"{side}_compacted") and not any(begin <= point["done_percent"] < end for begin, end in parts)]
    seconds = sum(step[1] for step in steps)
    return sum(step[0] for step in steps) / seconds if seconds else None


def bandwidth_kept(data, workload, side):
    """CoPro+'s compaction bandwidth over CoPro's, outside of the parts with large values; over the repetitions."""
    parts, found = large_parts(workload), []
    for repetition in {key[2] for key in data.runs}:
        runs = [data.runs.get((workload, policy, repetition)) for policy in ("copro", "copro-plus")]
        if all(runs):
            copro, plus = (bandwidth_outside(run, side, parts) for run in runs)
            if copro and plus:
                found.append(plus / copro)
    return spread(found)


def targets(data):
    """What was aimed at, what came out, and whether it is met: (what, wanted, here, met)."""
    rows = []

    def target(what, wanted, here, is_met):
        if here:
            rows.append([what, wanted, shown(here), "yes" if is_met(here[0]) else "**no**"])

    for workload in data.sets.get("value-size", []) + data.sets.get("volume", []):
        if workload.endswith("-100B"):
            for figure, least, bound in (("host_compaction_mb_s", 2.34, "host_overlap_bound"),
                                         ("node_compaction_mb_s", 1.64, "node_overlap_bound"), ("ops_s", 1.95, None)):
                # Where stages cannot overlap so much, the bound of a linear run says so.
                most = bound and data.spread(workload, BASE, bound)
                wanted = f"at least {least}" + (f"; stages allow {shown(most)}" if most else "")
                target(f"{workload}: CoPro : Co-KV, {figure}", wanted, data.ratio(workload, "copro", BASE, figure),
                       lambda here, least=least: here >= least)
    for workload in (workload for workloads in data.sets.values() for workload in workloads):
        target(f"{workload}: CoPro : Co-KV, wa_wire", "0.98 to 1.02", data.ratio(workload, "copro", BASE, "wa_wire"),
               lambda here: 0.98 <= here <= 1.02)
        target(f"{workload}: automatic : best fixed, ops_s", "at least 0.97", automatic_to_best(data, workload),
               lambda here: here >= 0.97)
        target(f"{workload}: wire_per_compacted_byte of automatic", "below 0.02",
               data.spread(workload, "automatic", "wire_per_compacted_byte"), lambda here: here < 0.02)
    for workload in ("ycsb-b-90", "ycsb-b-95"):
        target(f"{workload}: automatic : host-only, read_p99_us", "at most 1",
               data.ratio(workload, "automatic", "host-only", "read_p99_us"), lambda here: here <= 1)
    for workload in data.sets.get("changing", []):
        for side in ("host", "node"):
            target(f"{workload}: CoPro+'s extra use of the {side}'s core : CoPro's, while values are large", "at most 0.5",
                   extra_cpu(data, workload, side), lambda here: here <= 0.5)
            target(f"{workload}: CoPro+ : CoPro, the {side}'s compaction bandwidth while values are not large", "at least 0.95",
                   bandwidth_kept(data, workload, side), lambda here: here >= 0.95)
    return table([["target", "wanted", "here", "met"], *rows]) if rows else None


def automatic_to_best(data, workload):
    """Throughput of `automatic` to that of the fixed configuration with the best median."""
    medians = {policy: found[0] for policy in data.policies if policy != "automatic"
               if (found := data.spread(workload, policy, "ops_s"))}
    return data.ratio(workload, "automatic", max(medians, key=medians.get), "ops_s") if medians else None


def drawings(data, directory):
    """Writes them; yields (file, title)."""
    for set_name, workloads in data.sets.items():
        for figure, what, unit in FIGURES:
            if figure in DRAWN:
                values = {workload: {policy: data.spread(workload, policy, figure) for policy in data.policies}
                          for workload in workloads}
                yield from drawing(directory, f"{set_name}-{figure}.svg", what, svg.bars(what, unit, workloads, data.policies, values))
    for workload in data.sets.get("changing", []):
        for figure, what, unit in (("host_cpu_percent", "use of the host's core", "%"), ("node_cpu_percent", "use of the node's core", "%"),
                                   ("ops_s", "throughput", "requests/s")):
            curves = {policy: curve(data, workload, policy, figure) for policy in data.policies}
            title = f"{workload}: {what}; grey: more than 70% of the values are large"
            page = svg.lines(title, unit, curves, large_parts(workload))
            yield from drawing(directory, f"changing-{workload}-{figure}.svg", title, page)


def drawing(directory, name, title, text):
    if text:
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
        yield name, title


def curve(data, workload, policy, figure):
    """Of the first repetition that there is."""
    runs = [run for (one, other, _), run in sorted(data.runs.items()) if (one, other) == (workload, policy)]
    points = runs[0]["series"] if runs else []
    return [(point["done_percent"], point[figure]) for point in points if point[figure] is not None]


def report(header, data, directory):
    """Writes the drawings and the page."""
    bed = header["bed"]
    where = "**dry: no testbed, and no figure here compares anything**" if bed.get("dry") else ", ".join(f"{k} {v}" for k, v in bed.items())
    repetitions = {key[2] for key in data.runs}
    parts = [
        "# Compaction next to the data, beside the paper\n",
        f"{header['date']}, commit {header['commit']}, {header['cpu']}, {header['cores']} cores, {header['kernel']}. Testbed: {where}. "
        f"Volumes of data are the paper's times {header['scale']:g}. {len(data.runs)} runs of {len(repetitions)} repetitions, "
        f"{len(data.failed)} failed. Settings: `{' '.join(header['settings'])}`. A cell is the median over the repetitions, "
        "with the smallest and the largest.\n",
    ]
    if not bed.get("dry") and (found := targets(data)):
        parts += ["## Targets\n", found]
    if found := paper_table(data):
        parts += ["## Figures of the paper\n", found]
    images = list(drawings(data, directory))
    for set_name, workloads in data.sets.items():
        parts.append(f"## {set_name}\n")
        for figure, what, unit in FIGURES:
            if found := figure_table(data, workloads, figure):
                parts += [f"### {what}{', ' + unit if unit else ''}\n", found]
        parts += [f"![{title}]({name})\n" for name, title in images if name.startswith(set_name + "-")]
    for run in data.failed:
        parts.append(f"* failed: {run['key']}: {run['failed'].splitlines()[0]}")
    with open(os.path.join(directory, "report.md"), "w") as file:
        file.write("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="file of run.py")
    parser.add_argument("--output", default="near-data-report", help="directory of the report (default: %(default)s)")
    options = parser.parse_args()
    header, runs = load(options.results)
    os.makedirs(options.output, exist_ok=True)
    report(header, Data(runs), options.output)
    print(os.path.join(options.output, "report.md"))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"near-data: {failure}")
