"""The file of results: one line of JSON a run, after a first line that says what all of them share.

Lines are appended whole and synced. A line that a crash has cut short is taken off before the next one is written. A file takes results of
one scale, one bed and one commit: others are refused, for their ratios would say nothing.
"""

import json
import os

from bed import Failure

FORMAT = "situ-near-data 1"
# What may differ between the runs of a file.
FREE = ("date",)


def key(workload, policy, repetition):
    return f"{workload}|{policy}|{repetition}"


class Results:
    """A file of results, opened to be added to."""

    def __init__(self, path, header):
        self.path, self.header, self.done = path, {"format": FORMAT, **header}, set()
        if os.path.exists(path) and os.path.getsize(path):
            self.cut_torn_line()
            found, runs = load(path)
            self.check_header(found)
            self.done = {run["key"] for run in runs if "failed" not in run}
        else:
            self.append(self.header)

    def cut_torn_line(self):
        with open(self.path, "rb+") as file:
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)

    def check_header(self, found):
        for name in sorted({*found, *self.header} - set(FREE)):
            if found.get(name) != self.header.get(name):
                raise Failure(f"{self.path} has results of another {name}: {found.get(name)!r}, and not {self.header.get(name)!r}; "
                              "name another file")

    def append(self, record):
        with open(self.path, "a") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if "failed" not in record and "key" in record:
            self.done.add(record["key"])


def load(path):
    """The first line, and the runs; of a run that was made again after a failure, the last one."""
    try:
        with open(path) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}") from None
    if not lines or lines[0].get("format") != FORMAT:
        raise Failure(f"{path} has no results of this program ({FORMAT})")
    return lines[0], list({run["key"]: run for run in lines[1:]}.values())
