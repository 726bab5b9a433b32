"""What the paper reports, to stand beside what is measured: CoPro to Co-KV where it is a ratio.

Sun et al., CoPro (sections 4.3 to 4.5). Figures are from its text; what only its drawings show is left out.
"""

# workload: figure: (Co-KV, CoPro), in the paper's units.
PAIRS = {
    "fillrandom-20GB-100B": {
        "mb_s": (0.4, 0.8), "host_compaction_mb_s": (2.09, 4.90), "node_compaction_mb_s": (25.68, 42.10),
        "host_cpu_percent": (10.1, 17.6), "node_cpu_percent": (42.1, 64.8)},
    "fillrandom-20GB-64K": {
        "mb_s": (1.7, 1.9), "host_compaction_mb_s": (8.42, 9.87), "node_compaction_mb_s": (41.36, 45.03)},
    "fillrandom-10GB-100B": {"wa_wire": (6.16, 6.38)},
    "fillrandom-50GB-100B": {"wa_wire": (8.49, 8.86)},
    "fillrandom-10GB-64K": {"wa_wire": (4.68, 4.72)},
    "ycsb-zipfian-10GB-512B": {"wa_wire": (4.21, 4.33)},
    "ycsb-uniform-10GB-512B": {"wa_wire": (6.44, 6.38)},
    "ycsb-zipfian-10GB-1K": {
        "ops_s": (830.66, 1533.63), "host_compaction_mb_s": (2.51, 5.85), "node_compaction_mb_s": (41.53, 60.14),
        "host_cpu_percent": (8.6, 14.9), "node_cpu_percent": (36.4, 53.0)},
    "ycsb-uniform-10GB-1K": {
        "ops_s": (441.43, 817.66), "host_compaction_mb_s": (2.29, 5.12), "node_compaction_mb_s": (34.56, 48.80),
        "host_cpu_percent": (7.2, 12.5), "node_cpu_percent": (36.6, 54.7)},
    "ycsb-zipfian-5GB-1K": {"ops_s": (667.40, 1181.95)},
    "ycsb-uniform-5GB-1K": {"ops_s": (392.22, 711.12)},
    "ycsb-zipfian-25GB-1K": {"ops_s": (663.82, 1155.49), "wa_wire": (4.6, 4.4)},
    "ycsb-uniform-25GB-1K": {"ops_s": (385.57, 682.48), "wa_wire": (6.7, 6.6)},
}

# Ratios of CoPro to Co-KV that the text gives without the figures.
RATIOS = {
    # The best case, in percent, is said beside figures that are rounded to one digit.
    ("fillrandom-20GB-100B", "mb_s"): 1.95,
    ("fillrandom-20GB-64K", "mb_s"): 1.07,
    ("ycsb-zipfian-10GB-64K", "ops_s"): 1.11,
    ("ycsb-uniform-10GB-64K", "ops_s"): 1.11,
    ("ycsb-a", "ops_s"): 1.233,
    ("ycsb-a", "p99_us"): 0.894,
    ("ycsb-b-90", "ops_s"): 0.968,
    ("ycsb-b-90", "p99_us"): 1.19,
}

# MB/s of compaction for each percent of CPU, in W1: policy: (host, device).
MB_PER_CPU = {"co-kv": (0.81, 0.73), "copro-plus": (0.82, 0.70)}


def ratio(workload, figure):
    """The paper's CoPro to Co-KV, if it is told."""
    if (workload, figure) in RATIOS:
        return RATIOS[workload, figure]
    pair = PAIRS.get(workload, {}).get(figure)
    return pair[1] / pair[0] if pair else None


def value(workload, figure, policy):
    """The paper's figure of a configuration, if it is told."""
    pair = PAIRS.get(workload, {}).get(figure)
    place = {"co-kv": 0, "copro": 1}.get(policy)
    return pair[place] if pair and place is not None else None
