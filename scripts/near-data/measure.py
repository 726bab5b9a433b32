"""One run: the bench on one side, samples of both, and the figures that come of them."""

import json
import os
import subprocess
import tempfile
import threading
import time

from bed import Failure

SAMPLE_S = 0.25
# Points of a series that are kept of a run.
POINTS_MAX = 120


class Sampler(threading.Thread):
    """Samples a bed until it is stopped. Times are in seconds since 1970, as the bench's are."""

    def __init__(self, bed, pid):
        super().__init__(daemon=True)
        self.bed, self.pid, self.samples, self.done = bed, pid, [], threading.Event()

    def run(self):
        while True:
            at, sample = time.time(), self.bed.sample(self.pid)
            self.samples.append((at, sample))
            if self.done.wait(SAMPLE_S):
                return

    def stop(self):
        self.done.set()
        self.join()
        return self.samples


def counter_at(samples, name, at):
    """A counter at a moment, between two samples by a straight line; `None` where it was not told."""
    points = [(time, sample[name]) for time, sample in samples if sample.get(name) is not None]
    before = [point for point in points if point[0] <= at]
    after = [point for point in points if point[0] >= at]
    if not points:
        return None
    if not before or not after:
        return (before or after)[-1 if before else 0][1]
    (t0, v0), (t1, v1) = before[-1], after[0]
    return v0 if t1 == t0 else v0 + (v1 - v0) * (at - t0) / (t1 - t0)


def growth(samples, name, begin, end):
    first, last = counter_at(samples, name, begin), counter_at(samples, name, end)
    return None if first is None else last - first


def divided(part, whole):
    return None if part is None or not whole else part / whole


def bandwidth(units):
    """MB/s of compaction while units are at it: input bytes over the time that they took."""
    busy = sum(unit["busy_seconds"] for unit in units)
    return divided(sum(unit["input_bytes"] for unit in units) / 1e6, busy)


def overlap_bound(units):
    """How many times faster a pipeline could be than one stage after another: the sum of the stages' times over the longest. `None`
    where the units tell no times."""
    times = [sum(unit["stages"][stage]["busy_seconds"] for unit in units) for stage in ("read", "merge", "write")]
    return divided(sum(times), max(times))


def percent(samples, name, begin, end):
    seconds = growth(samples, name, begin, end)
    return None if seconds is None or end <= begin else 100 * seconds / (end - begin)


def figures(phase, samples, detail_before):
    """What is compared, of one phase. `_settled` is until the store had nothing left to compact; plain is until the last request. What the
    node's kernel had not written to its disk by then is not in `wa_medium`: a phase has to be long against its 30 seconds. `p99_us`
    is of all kinds of requests together."""
    ended, settled = phase["requests_ended_unix_ms"] / 1000, phase["settled_unix_ms"] / 1000
    began = ended - phase["seconds"]
    user, work = phase["user_bytes_written"], phase["work"] or {"units": []}
    host, node = work["units"][:1], work["units"][1:]
    found = {
        "ops_s": phase["operations_per_second"],
        "ops_s_settled": divided(phase["operations"], settled - began),
        "mb_s": divided(user / 1e6, phase["seconds"]),
        "seconds": phase["seconds"], "settle_seconds": phase["settle_seconds"],
        "stall_seconds": work.get("stall_seconds"), "longest_stall_ms": phase["longest_stall_ms"],
        "wa_tables": phase["table_write_amplification"],
        "wa_wire": divided(growth(samples, "host_to_node_bytes", began, settled), user),
        "wa_medium": divided(growth(samples, "node_written_bytes", began, settled), user),
        "host_to_node_mb": divided(growth(samples, "host_to_node_bytes", began, settled), 1e6),
        "node_to_host_mb": divided(growth(samples, "node_to_host_bytes", began, settled), 1e6),
        "node_read_mb": divided(growth(samples, "node_read_bytes", began, settled), 1e6),
        "host_compaction_mb_s": bandwidth(host), "node_compaction_mb_s": bandwidth(node),
        "host_compaction_mb": sum(unit["input_bytes"] for unit in host) / 1e6,
        "node_compaction_mb": sum(unit["input_bytes"] for unit in node) / 1e6,
        "host_overlap_bound": overlap_bound(host), "node_overlap_bound": overlap_bound(node),
        "disk_mb": phase["disk_bytes"] / 1e6,
    }
    for side in ("host", "node"):
        found[f"{side}_cpu_percent"] = percent(samples, f"{side}_core_s", began, ended)
        found[f"{side}_cpu_percent_settled"] = percent(samples, f"{side}_core_s", began, settled)
        found[f"{side}_processes_cpu_percent"] = percent(samples, f"{side}_cpu_s", began, ended)
        found[f"{side}_mb_per_cpu"] = divided(found[f"{side}_compaction_mb_s"], found[f"{side}_cpu_percent_settled"])
    latencies = {latency["kind"]: latency for latency in phase["latencies"]}
    for kind, latency in latencies.items():
        for name in ("p50", "p99", "p999"):
            found[f"{kind}_{name}_us"] = latency[f"{name}_ns"] / 1000
    found["p99_us"], found["p999_us"] = divided(phase["p99_ns"], 1000), divided(phase["p999_ns"], 1000)
    found.update(wire_classes(detail_before, phase["stats"]["detail"], found["node_compaction_mb"] * 1e6))
    return found


def wire_classes(before, now, compacted_bytes):
    """Bytes in frames by class of operation, both ways, as the node's client counts them since the store was opened: `wire_NAME_bytes`.
    What tasks on the node cost the wire is the class `compute`."""
    classes = {name: value - before.get(name, 0) for name, value in now.items() if name.startswith("wire_") and name.endswith("_bytes")}
    found = {name.replace("_bytes", "_mb"): value / 1e6 for name, value in classes.items()}
    if "wire_compute_bytes" in classes:
        found["wire_per_compacted_byte"] = divided(classes["wire_compute_bytes"], compacted_bytes)
    return found


def phase_figures(phases, samples):
    """The figures of each phase of one store. Counters of its detail go on from one phase to the next."""
    found, before = {}, {}
    for phase in phases:
        found[phase["workload"]] = figures(phase, samples, before)
        before = phase["stats"]["detail"]
    return found


def done_percent(phase, at_s):
    """The share of a phase's requests that were done so long after its beginning."""
    told = phase["series"]
    whole, rest = divmod(max(at_s, 0) * 1000 / max(told["interval_ms"], 1), 1)
    done = sum(told["operations"][:int(whole)]) + rest * sum(told["operations"][int(whole):int(whole) + 1])
    return 100 * done / max(phase["operations"], 1)


def unit_samples(phase, began):
    """What the host's unit and the node's units had compacted, as samples of counters."""
    found = []
    for sample in phase["samples"]:
        units = sample["units"]
        point = {}
        for side, of_side in (("host", units[:1]), ("node", units[1:])):
            point[f"{side}_input_bytes"] = sum(unit["input_bytes"] for unit in of_side)
            point[f"{side}_busy_s"] = sum(unit["busy_seconds"] for unit in of_side)
        found.append((began + sample["at_ms"] / 1000, point))
    return found


def series(phase, samples):
    """Use of both cores, the link, and compaction, over time and by how far the requests were: for pictures and for parts of a run.
    `host_compacted` and `node_compacted` are (MB of input, seconds at work) in a step."""
    ended = phase["requests_ended_unix_ms"] / 1000
    began = ended - phase["seconds"]
    step = max((ended - began) / POINTS_MAX, 2 * SAMPLE_S)
    compacted = unit_samples(phase, began)
    points = []
    at = began
    while at + step <= ended + step / 2:
        done = [done_percent(phase, moment - began) for moment in (at, at + step / 2, at + step)]
        point = {"at_s": round(at - began, 2), "done_percent": round(done[1], 1),
                 "ops_s": round((done[2] - done[0]) / 100 * phase["operations"] / step, 1)}
        for name, key in (("host_cpu_percent", "host_core_s"), ("node_cpu_percent", "node_core_s")):
            value = percent(samples, key, at, at + step)
            point[name] = None if value is None else round(value, 1)
        for side in ("host", "node"):
            moved = [growth(compacted, f"{side}_{name}", at, at + step) for name in ("input_bytes", "busy_s")]
            point[f"{side}_compacted"] = None if None in moved else [round(moved[0] / 1e6, 3), round(moved[1], 4)]
        sent = growth(samples, "host_to_node_bytes", at, at + step)
        point["host_to_node_mb_s"] = None if sent is None else round(sent / step / 1e6, 2)
        points.append(point)
        at += step
    return points


def bench(bed, arguments, timeout_s):
    """Runs the bench; returns its result and the samples."""
    with tempfile.TemporaryDirectory(prefix="situ-near-data-") as directory:
        output = os.path.join(directory, "result.json")
        command = bed.on("host", [bed.situ, "bench", *arguments, *bed.bench_options(), "--output", output])
        with tempfile.TemporaryFile("w+") as told:
            process = subprocess.Popen(command, stdout=told, stderr=told)
            sampler = Sampler(bed, process.pid)
            sampler.start()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise Failure(f"the bench was not done after {timeout_s} s") from None
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
                samples = sampler.stop()
            if process.returncode != 0:
                told.seek(0)
                raise Failure(f"the bench ended with {process.returncode}: {told.read()[-2000:].strip()}")
        with open(output) as file:
            return json.load(file), samples


def measure(bed, workload, arguments, timeout_s):
    """One run as a record, without what identifies it."""
    bed.start()
    try:
        result, samples = bench(bed, arguments, timeout_s)
    finally:
        bed.stop()
    phase = next(phase for phase in result["phases"] if phase["workload"] == workload.phase)
    found = phase_figures(result["phases"], samples)
    return {
        "date": result["date"], "machine": result["machine"], "store": result["store"], "store_settings": result["store_settings"],
        "figures": found[workload.phase], "phases": found,
        "units": (phase["work"] or {}).get("units", []),
        "units_before_settling": (phase["work_before_settling"] or {}).get("units", []),
        "detail": phase["stats"]["detail"],
        "series": series(phase, samples),
    }
