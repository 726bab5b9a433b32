"""What is measured: configurations, workloads, and the settings that all of them share.

Volumes are the paper's (CoPro, sections 3.3 and 4), times one scale factor. The text of the paper that is at hand has no tables, so what
only its tables say is ours, and marked: the data volume of each record size, the number of threads, and the workloads W1 to W4.
"""

from typing import NamedTuple

# The names are those of `situ_offload::Policy::NAMES`.
POLICIES = ("host-only", "pcp", "co-kv", "tstore", "dstore", "copro", "copro-plus", "automatic")

GB = 10**9
KIB = 1024
VALUES = (100, 1 * KIB, 4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB)
RECORDS = (512, 1 * KIB, 4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB)
KEY_BYTES = 16

# The same for every configuration. Memtable, tables, blocks, keys: the paper's; the first level and two memtables: LevelDB's. Ours: one
# thread for compactions on the host's one core, a block cache of 64 MiB, LZ4 for LevelDB's Snappy, values that compress to one half.
# One client has 64 requests in flight: with one, each put waits for the network, and compactions wait for puts (12,000 a second).
SETTINGS = (
    "--memtable-bytes", "4M", "--memtables-max", "2", "--table-bytes", "2M", "--level-base-bytes", "10M", "--block-bytes", "4K",
    "--cache-bytes", "64M", "--background-threads", "1", "--compression", "lz4", "--compression-ratio", "0.5",
    "--bloom-bits-per-key", "10", "--threads", "1", "--outstanding", "64",
)

# A value is large from 32 KiB on for the host, from 16 KiB on for a node: 64 KiB is large for both. Ours, after what the text says.
SCHEDULES = {
    # (what the updates write, percent of reads among the requests)
    "W1": ("30:64Kx80+1Kx20,70:1K", 0),                                      # large ones early
    "W2": ("25:1K,25:64Kx50+1Kx50,25:64Kx80+1Kx20,25:64Kx20+1Kx80", 0),      # their share changes by phase
    "W3": ("35:1K,30:64Kx80+1Kx20,35:1K", 20),                               # in the middle, and some reads
    "W4": ("70:1K,30:64Kx80+1Kx20", 0),                                      # late
}


class Workload(NamedTuple):
    """One line of arguments for `situ bench`, and which of its phases is looked at."""

    set: str
    name: str
    phase: str
    arguments: tuple


def size(count):
    """`100B`, `4K`."""
    return f"{count // KIB}K" if count % KIB == 0 else f"{count}B"


def scaled(gigabytes, scale, entry_bytes):
    """How many entries so many gigabytes are, at a scale. A phase of fewer than some thousands says nothing."""
    return max(1000, round(gigabytes * GB * scale / entry_bytes))


def db_bench(set_name, workload, gigabytes, value_bytes, scale):
    count = scaled(gigabytes, scale, KEY_BYTES + value_bytes)
    return Workload(set_name, f"{workload}-{gigabytes}GB-{size(value_bytes)}", workload, (
        "--workloads", workload, "--keys", str(count), "--key-bytes", str(KEY_BYTES), "--value-bytes", str(value_bytes)))


def record(record_bytes):
    """Fields of a YCSB record of about so many bytes: each has 14 bytes of name and lengths."""
    return ("--fields", "10", "--field-bytes", str(record_bytes // 10 - 14))


def ycsb(set_name, name, load_gb, run_gb, record_bytes, distribution, phase, scale, more=()):
    """Updates write whole records without reading them, as inserts do: the paper's load is writes."""
    records, operations = scaled(load_gb, scale, record_bytes), scaled(run_gb, scale, record_bytes)
    return Workload(set_name, name, phase, (
        "--workloads", f"ycsb-load,{phase}", "--keys", str(records), "--operations", str(operations),
        "--distribution", distribution, "--update-mapping", "whole", *record(record_bytes), *more))


def mean_bytes(schedule):
    """The mean size of a value of a schedule."""
    total = 0.0
    for part in schedule.split(","):
        share, sizes = part.split(":")
        pairs = [(text.split("x") + ["1"])[:2] for text in sizes.split("+")]
        weights = sum(int(weight) for _, weight in pairs)
        total += int(share) / 100 * sum(int(text.rstrip("K")) * KIB * int(weight) for text, weight in pairs) / weights
    return total


def changing(name, scale):
    schedule, read_percent = SCHEDULES[name]
    records = scaled(5, scale, KIB)
    operations = scaled(10, scale, mean_bytes(schedule) * (1 - read_percent / 100))
    # The records are loaded without the schedule, by a run of their own that keeps the store: sizes change at the run stage.
    return Workload("changing", name, "ycsb-mixed", (
        "--workloads", "ycsb-load,ycsb-mixed", "--keys", str(records), "--operations", str(operations),
        "--distribution", "zipfian", "--update-mapping", "whole", "--read-percent", str(read_percent),
        "--value-schedule", schedule))


def workloads(scale):
    """All workloads at a scale, in the order in which they run."""
    found = [db_bench("value-size", "fillrandom", 10, value, scale) for value in VALUES]
    found += [db_bench("volume", "fillrandom", gigabytes, value, scale)
              for value in (100, 64 * KIB) for gigabytes in (20, 30, 40, 50)]
    found += [db_bench("sequential", "fillseq", 10, value, scale) for value in VALUES]
    for distribution in ("zipfian", "uniform"):
        for count in RECORDS:
            found.append(ycsb("ycsb-record", f"ycsb-{distribution}-10GB-{size(count)}", 10, 10, count, distribution, "ycsb-mixed",
                              scale, ("--read-percent", "0")))
        for gigabytes in (5, 15, 20, 25):
            found.append(ycsb("ycsb-volume", f"ycsb-{distribution}-{gigabytes}GB-1K", gigabytes, gigabytes, KIB, distribution,
                              "ycsb-mixed", scale, ("--read-percent", "0")))
    found.append(ycsb("ycsb-read", "ycsb-a", 10, 10, KIB, "zipfian", "ycsb-a", scale))
    # The paper's B reads 90 times in 100, YCSB's own 95 times.
    found.append(ycsb("ycsb-read", "ycsb-b-90", 10, 10, KIB, "zipfian", "ycsb-mixed", scale, ("--read-percent", "90")))
    found.append(ycsb("ycsb-read", "ycsb-b-95", 10, 10, KIB, "zipfian", "ycsb-b", scale))
    found += [changing(name, scale) for name in SCHEDULES]
    return found


def plan(scale, sets, policies, repetitions):
    """(repetition, workload, policy), so that policies take turns on a workload, and another one begins each time."""
    chosen = [workload for workload in workloads(scale) if not sets or workload.set in sets or workload.name in sets]
    for repetition in range(1, repetitions + 1):
        for workload in chosen:
            first = (repetition - 1) % len(policies)
            for policy in policies[first:] + policies[:first]:
                yield repetition, workload, policy
