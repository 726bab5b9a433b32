#!/usr/bin/env python3
"""What a backup and the live page cost a server under full load.

    scripts/load-and-copies.py --out docs/evidence/front-door/load.jsonl

Two clients overwrite, or read, random keys of a million as fast as they can. They do so alone, while the first backup is made, while a backup
is made every two seconds, and while a page asks for /live.json every second. Each is followed by a run without anything else. Each run is a
line of JSON.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Bed:
    def __init__(self, situ, directory):
        self.situ = situ
        self.at = tempfile.mkdtemp(dir=directory)
        command = [situ, "serve", "--json", self.path("store"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        told = json.loads(self.server.stdout.readline())
        self.address, self.http = told["addresses"][0], f"http://{told['http']}"
        self.stop, self.made = threading.Event(), []

    def path(self, name):
        return os.path.join(self.at, name)

    def bench(self, workload, *options):
        report = self.path("report.json")
        command = [self.situ, "bench", "--connect", self.address, "--workloads", workload, "--keys", "1m", "--value-bytes", "200", "--threads", "2"]
        subprocess.run([*command, "-o", report, *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(report, encoding="utf-8") as file:
            phase = json.load(file)["phases"][-1]
        os.remove(report)
        return phase

    def back_up(self):
        began = time.monotonic()
        ran = subprocess.run([self.situ, "--json", "backup", "create", self.path("store"), "-o", self.path("backups")], capture_output=True, check=True)
        made = json.loads(ran.stdout)
        self.made.append((made["added_bytes"], time.monotonic() - began))
        return made["id"]

    def first_backup(self):
        shutil.rmtree(self.path("backups"), ignore_errors=True)
        time.sleep(1)
        self.back_up()

    def backups(self):
        while not self.stop.is_set():
            number = self.back_up()
            if number > 3:
                subprocess.run([self.situ, "backup", "prune", self.path("backups"), str(number - 3)], check=True, stdout=subprocess.DEVNULL)
            self.stop.wait(2)

    def page(self):
        while not self.stop.is_set():
            with urllib.request.urlopen(self.http + "/live.json") as answer:
                answer.read()
            self.stop.wait(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situ", default=os.path.join(ROOT, "target", "release", "situ"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--directory", help="where the store and the backups lie [default: a temporary folder]")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    bed = Bed(os.path.abspath(args.situ), args.directory)
    work = {"nothing": None, "first backup": bed.first_backup, "a backup every 2 s": bed.backups, "live page": bed.page}
    try:
        bed.bench("fillrandom", "--operations", "1m")
        with open(args.out, "w", encoding="utf-8") as file:
            for turn in range(args.turns):
                for workload in ("overwrite", "readrandom"):
                    for beside in ("nothing", "first backup", "nothing", "a backup every 2 s", "nothing", "live page"):
                        bed.stop.clear()
                        bed.made.clear()
                        thread = threading.Thread(target=work[beside] or (lambda: None))
                        thread.start()
                        phase = bed.bench(workload, "--operations", "1g", "--duration-seconds", str(args.seconds))
                        bed.stop.set()
                        thread.join()
                        row = {"turn": turn, "workload": workload, "beside": beside, "rate": phase["operations_per_second"],
                               "p99_us": phase["p99_ns"] / 1000, "backups": len(bed.made), "copied_bytes": sum(copied for copied, _ in bed.made),
                               "backup_seconds": sum(seconds for _, seconds in bed.made)}
                        file.write(json.dumps(row) + "\n")
                        print(json.dumps(row), flush=True)
    finally:
        bed.server.terminate()
        bed.server.wait()
        shutil.rmtree(bed.at)


if __name__ == "__main__":
    main()
