#!/usr/bin/env python3
"""The driver and its report, tried on a program that only says what a bench would say. Needs neither root nor Situ."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import matrix
import measure
import paper
import report
import svg
from results import load

# Writes the result of a bench whose throughput depends on the policy, and fails where the file `fail` is beside it.
FAKE = '''
    #!{python}
    import json, os, sys, time
    arguments = sys.argv[1:]
    if "--help" in arguments:
        print("--compaction --capacity")
        sys.exit()
    option = lambda name: arguments[arguments.index(name) + 1]
    if os.path.exists(os.path.join(os.path.dirname(sys.argv[0]), "fail")):
        sys.exit("the fake has failed")
    rate = {{"co-kv": 100.0, "copro": 195.0}}.get(option("--compaction"), 150.0)
    now = int(time.time() * 1000)
    stages = lambda *seconds: {{stage: {{"busy_seconds": s}} for stage, s in zip(("read", "merge", "write"), seconds)}}
    unit = lambda name, busy: {{"name": name, "input_bytes": 50_000_000, "busy_seconds": busy, "stages": stages(1.0, 2.0, 1.0)}}
    phase = lambda name: {{
        "workload": name, "operations_per_second": rate, "operations": int(rate), "seconds": 1.0, "settle_seconds": 0.5,
        "user_bytes_written": 10_000_000, "requests_ended_unix_ms": now + 1000, "settled_unix_ms": now + 1500,
        "longest_stall_ms": 1, "p99_ns": 2000, "p999_ns": 3000, "table_write_amplification": 5.0, "disk_bytes": 1000,
        "work": {{"stall_seconds": 0.0, "units": [unit("cpu", 500 / rate), unit("node", 2.0)]}},
        "work_before_settling": {{"units": []}},
        "latencies": [{{"kind": "write", "count": 9, "p50_ns": 1000, "p99_ns": 2000, "p999_ns": 3000}}],
        "stats": {{"detail": {{"wire_compute_bytes": 500_000.0}}}},
        "series": {{"interval_ms": 100, "operations": [int(rate) // 10] * 10}}, "samples": [],
    }}
    result = {{"date": "2026-01-01T00:00:00Z", "machine": {{}}, "store": "fake", "store_settings": {{}},
              "phases": [phase(name) for name in option("--workloads").split(",")]}}
    with open(option("--output"), "w") as file:
        json.dump(result, file)
'''


# A node that writes down what it is sent, and a bench that sends it 20 MB for 10 MB of its user's. Both take the time that is told.
FAKE_PAIR = '''
    #!{python}
    import json, os, socket, sys, time
    arguments = sys.argv[1:]
    option = lambda name: arguments[arguments.index(name) + 1]
    if "--help" in arguments:
        print("--compaction --capacity --node-secret-file")
        sys.exit()
    secret = lambda name: open(option(name)).read().encode()
    if arguments[0] == "node":
        host, port = option("--listen").split(":")
        server = socket.create_server((host, int(port)))
        while True:
            peer = server.accept()[0]
            if peer.recv(49) != secret("--secret-file"):
                continue
            with open(os.path.join(arguments[1], "file"), "wb") as file:
                while got := peer.recv(1 << 16):
                    file.write(got)
                os.fsync(file.fileno())
            peer.send(b"1")
            peer.close()
    host, port = option("--capacity").removeprefix("node://").split("/")[0].split(":")
    # What moves is told to within a sample, so it moves in the middle.
    time.sleep(0.5)
    began = time.time()
    while time.time() < began + 1:
        pass
    peer = socket.create_connection((host, int(port)))
    peer.sendall(secret("--node-secret-file"))
    for _ in range(20):
        peer.sendall(os.urandom(1_000_000))
    peer.shutdown(socket.SHUT_WR)
    assert peer.recv(1) == b"1"
    ended = time.time()
    while time.time() < ended + 1:
        pass
    ended = time.time()
    phase = {{
        "workload": option("--workloads"), "operations_per_second": 1.0, "operations": 1, "seconds": ended - began, "settle_seconds": 0.0,
        "user_bytes_written": 10_000_000, "requests_ended_unix_ms": int(ended * 1000), "settled_unix_ms": int(ended * 1000) + 300,
        "longest_stall_ms": 1, "p99_ns": 2000, "p999_ns": 3000, "table_write_amplification": 1.0, "disk_bytes": 1000, "work": None, "work_before_settling": None,
        "latencies": [], "stats": {{"detail": {{}}}}, "series": {{"interval_ms": 100, "operations": [1]}}, "samples": [],
    }}
    time.sleep(0.5)
    result = {{"date": "2026-01-01T00:00:00Z", "machine": {{}}, "store": "fake", "store_settings": {{}}, "phases": [phase]}}
    with open(option("--output"), "w") as file:
        json.dump(result, file)
'''


def write_program(path, text):
    with open(path, "w") as file:
        file.write(textwrap.dedent(text).lstrip().format(python=sys.executable))
    os.chmod(path, stat.S_IRWXU)


class Driver(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.situ = self.path("situ")
        write_program(self.situ, FAKE)
        self.results = self.path("results.jsonl")

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def drive(self, *more, scale="0.001", repeat="2"):
        command = [sys.executable, "-B", os.path.join(HERE, "run.py"), "--situ", self.situ, "--results", self.results, "--scale", scale,
                   "--repeat", repeat, "--sets", "fillrandom-20GB-100B", "--policies", "co-kv,copro,automatic",
                   "--dry", self.path("dry"), *more]
        return subprocess.run(command, capture_output=True, text=True)

    def keys(self):
        return [run["key"].split("|")[1:] for run in load(self.results)[1]]

    def test_policies_take_turns_and_what_is_there_is_not_run_again(self):
        first = self.drive()
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        turns = [["co-kv", "1"], ["copro", "1"], ["automatic", "1"], ["copro", "2"], ["automatic", "2"], ["co-kv", "2"]]
        self.assertEqual(self.keys(), turns)
        with open(self.results) as file:
            lines = file.readlines()
        # A crash: the last two runs are lost, one of them in the middle of its line.
        with open(self.results, "w") as file:
            file.writelines([*lines[:-2], lines[-2][:40]])
        again = self.drive()
        self.assertIn("6 runs, of which 4 are in", again.stdout)
        self.assertEqual(self.keys(), turns)

    def test_a_run_that_failed_is_noted_and_tried_again(self):
        open(self.path("fail"), "w").close()
        failed = self.drive(repeat="1")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("the fake has failed", load(self.results)[1][0]["failed"])
        os.remove(self.path("fail"))
        self.assertEqual(self.drive(repeat="1").returncode, 0)
        self.assertFalse(any("failed" in run for run in load(self.results)[1]))

    def test_results_of_another_scale_are_not_mixed(self):
        self.drive(repeat="1")
        other = self.drive(scale="0.002", repeat="1")
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("results of another scale", other.stderr)

    def test_what_does_not_exist_is_refused_before_anything_runs(self):
        wrong = self.drive("--policies", "co-kv,copro+")
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("no configuration 'copro+'", wrong.stderr)
        self.assertFalse(os.path.exists(self.results))

    def test_the_report_has_the_ratios_beside_those_of_the_paper(self):
        self.drive()
        # As if it had been measured on a testbed: only then are there targets.
        with open(self.results) as file:
            head, *rest = file.readlines()
        header = json.loads(head)
        header["bed"] = {"link": "1000"}
        with open(self.results, "w") as file:
            file.writelines([json.dumps(header) + "\n", *rest])
        command = [sys.executable, "-B", os.path.join(HERE, "report.py"), self.results, "--output", self.path("report")]
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
        with open(self.path("report/report.md")) as file:
            page = file.read()
        self.assertIn("| fillrandom-20GB-100B: CoPro : Co-KV, ops_s | at least 1.95 | 1.95 | yes |", page)
        # 50 MB in 500 / 100 and in 500 / 195 seconds.
        self.assertIn("| fillrandom-20GB-100B: CoPro : Co-KV, host_compaction_mb_s | at least 2.34; stages allow 2 | 1.95 | **no** |", page)
        self.assertIn("| fillrandom-20GB-100B: automatic : best fixed, ops_s | at least 0.97 | 0.769 | **no** |", page)
        self.assertIn("| fillrandom-20GB-100B: wire_per_compacted_byte of automatic | below 0.02 | 0.01 | yes |", page)
        self.assertIn("| fillrandom-20GB-100B | 100 | 195 | 150 | 1.95 | - |", page)
        self.assertIn("| fillrandom-20GB-100B | host_compaction_mb_s | co-kv | 2.09 | 10 |", page)
        with open(self.path("report/volume-host_compaction_mb_s.svg")) as file:
            self.assertIn("copro: 19.5 MB/s", file.read())


class OnTestbed(unittest.TestCase):
    """What moves between two namespaces and onto the node's disk is told."""

    def test_bytes_and_processor_time_of_both_sides_are_told(self):
        testbed = os.path.join(HERE, "..", "testbed-node.sh")
        with tempfile.TemporaryDirectory() as directory:
            bed = os.path.join(directory, "bed")
            made = subprocess.run([testbed, "up", bed, "--disk-gib", "1"], capture_output=True, text=True)
            if made.returncode != 0:
                print(f"SKIPPED: the near-data driver on a testbed: {made.stderr.strip()}")
                self.skipTest(made.stderr.strip())
            try:
                figures = self.run_pair(directory)
            finally:
                subprocess.run([testbed, "down"], check=True, capture_output=True)
        # 20 MB in frames of 1,514 bytes; not a retransmission more than a busy machine may need.
        self.assertTrue(1.9 < figures["wa_wire"] < 2.4, figures)
        self.assertTrue(1.9 < figures["wa_medium"] < 2.4, figures)
        self.assertTrue(0 < figures["node_to_host_mb"] < 2, figures)
        # The bench spins for most of its time, and the node waits. Others may use the cores, too.
        self.assertTrue(5 < figures["host_processes_cpu_percent"] <= 101, figures)
        self.assertTrue(0 < figures["node_processes_cpu_percent"] < figures["host_processes_cpu_percent"], figures)
        self.assertTrue(5 < figures["host_cpu_percent"] <= 101, figures)

    def run_pair(self, directory):
        situ, results = os.path.join(directory, "situ"), os.path.join(directory, "results.jsonl")
        write_program(situ, FAKE_PAIR)
        command = [sys.executable, "-B", os.path.join(HERE, "run.py"), "--situ", situ, "--results", results, "--scale", "0.001",
                   "--repeat", "1", "--sets", "fillseq-10GB-100B", "--policies", "copro"]
        ran = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return load(results)[1][0]["figures"]


class Figures(unittest.TestCase):
    def test_a_counter_between_two_samples_lies_on_the_line_between_them(self):
        samples = [(10.0, {"bytes": None}), (11.0, {"bytes": 100}), (12.0, {"bytes": 300})]
        self.assertEqual(measure.counter_at(samples, "bytes", 11.5), 200)
        self.assertEqual(measure.counter_at(samples, "bytes", 5), 100)
        self.assertEqual(measure.counter_at(samples, "bytes", 99), 300)
        self.assertIsNone(measure.counter_at(samples, "other", 11))
        self.assertEqual(measure.percent([(0, {"core": 0.0}), (10, {"core": 5.0})], "core", 2, 6), 50)

    def test_a_pipeline_gains_no_more_than_its_longest_stage_allows(self):
        stages = {stage: {"busy_seconds": seconds} for stage, seconds in (("read", 1), ("merge", 3), ("write", 2))}
        self.assertEqual(measure.overlap_bound([{"stages": stages}, {"stages": stages}]), 2)
        self.assertIsNone(measure.overlap_bound([]))

    def test_bytes_by_class_are_those_of_the_phase(self):
        found = measure.wire_classes({"wire_compute_bytes": 1e6, "other": 1}, {"wire_compute_bytes": 4e6, "wire_read_bytes": 7e6}, 3e8)
        self.assertEqual(found, {"wire_compute_mb": 3, "wire_read_mb": 7, "wire_per_compacted_byte": 0.01})
        self.assertIsNone(measure.wire_classes({}, {"wire_compute_bytes": 1}, 0)["wire_per_compacted_byte"])

    def test_the_share_of_requests_that_were_done_follows_the_series(self):
        phase = {"series": {"interval_ms": 100, "operations": [10, 30, 60]}, "operations": 100}
        self.assertEqual([measure.done_percent(phase, at) for at in (0, 0.1, 0.15, 0.3, 9)], [0, 10, 25, 100, 100])

    def test_bandwidth_outside_of_large_values_is_that_of_the_other_steps(self):
        units = [{"input_bytes": 1e6, "busy_seconds": 0.5}, {"input_bytes": 2e6, "busy_seconds": 0.25}]
        phase = {"samples": [{"at_ms": 0, "units": []}, {"at_ms": 1000, "units": units}]}
        samples = measure.unit_samples(phase, 10.0)
        self.assertEqual([measure.growth(samples, name, 10, 10.5) for name in ("host_input_bytes", "node_busy_s")], [5e5, 0.125])
        steps = [{"done_percent": done, "host_compacted": [mb, 0.5]} for done, mb in ((10, 99), (40, 10), (80, 20))]
        self.assertEqual(report.bandwidth_outside({"series": steps}, "host", report.large_parts("W1")), 30)
        self.assertIsNone(report.bandwidth_outside({"series": steps[:1]}, "host", report.large_parts("W1")))

    def test_large_parts_are_those_above_70_percent(self):
        self.assertEqual(report.large_parts("W1"), [(0, 30)])
        self.assertEqual(report.large_parts("W2"), [(50, 75)])
        self.assertEqual(report.large_parts("W4"), [(70, 100)])
        self.assertEqual(report.large_parts("ycsb-a"), [])

    def test_drawings_are_well_formed(self):
        import xml.dom.minidom
        values = {"a<b": {"copro": (3, 2, 5), "co-kv": None}}
        page = svg.bars("Throughput & more", "MB/s", ["a<b"], ["co-kv", "copro"], values)
        self.assertEqual(len(xml.dom.minidom.parseString(page).getElementsByTagName("title")), 1)
        xml.dom.minidom.parseString(svg.lines("CPU", "%", {"copro": [(0, 1.0), (100, 50.0)]}, [(0, 30)]))
        self.assertEqual(svg.label("ycsb-zipfian-10GB-64K", 72), ["ycsb", "zipfian", "10GB-64K"])
        self.assertEqual(svg.label("fillrandom-10GB", 400), ["fillrandom-10GB"])
        self.assertIsNone(svg.bars("nothing", "", ["a"], ["b"], {"a": {}}))
        for value in (0.003, 0.4, 1, 1.9, 64.8, 99, 1001, 109826):
            self.assertTrue(value <= svg.nice_top(value) * 1.0001 <= value * 1.7, value)


class Matrix(unittest.TestCase):
    def test_names_are_unique_and_the_papers_are_among_them(self):
        names = [workload.name for workload in matrix.workloads(0.01)]
        self.assertEqual(len(names), len(set(names)))
        told = {*paper.PAIRS, *(workload for workload, _ in paper.RATIOS)}
        self.assertEqual(told - set(names), set())

    def test_volumes_follow_the_scale(self):
        def entries(name, scale):
            found = next(workload for workload in matrix.workloads(scale) if workload.name == name)
            return int(found.arguments[found.arguments.index("--keys") + 1])
        self.assertEqual(entries("fillrandom-10GB-100B", 1), round(10e9 / 116))
        self.assertEqual(entries("fillrandom-10GB-100B", 0.1), round(1e9 / 116))
        self.assertAlmostEqual(matrix.mean_bytes("50:64Kx80+1Kx20,50:1K"), (0.8 * 65536 + 0.2 * 1024 + 1024) / 2)


if __name__ == "__main__":
    unittest.main()
