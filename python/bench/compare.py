#!/usr/bin/env python3
"""Compares Situ with RocksDB (rocksdict), LMDB (lmdb) and LevelDB (plyvel): the same work from Python, in turns.

    make python-wheel && pip install python/dist/*.whl rocksdict lmdb plyvel
    compare.py [--keys 1000000] [--turns 5] [--memory-mib 64] [--directory DIR] [--output FILE] [STORE...]

STORE is situ, rocksdict, lmdb or plyvel; without one, all that can be imported run. Each run is a process of its own with a new
store, and the stores take turns. Prints medians as a table, and writes all runs to FILE as JSON.

Keys are 16 random bytes. Values have 100 bytes, of which half repeat the other half. All stores are buffered: a write is
acknowledged when the operating system has it. The cache and the write buffer of Situ, RocksDB and LevelDB are of one size each.
LMDB has neither: the system's page cache serves it, without a limit. Situ and RocksDB compress with LZ4, LevelDB with Snappy, all
three with Bloom filters of 10 bits a key; LMDB has none of that.

| work | one operation is |
|---|---|
| put | a put of a new key, in random order; of LMDB, a transaction of one put |
| get | a get of a random key that exists; of LMDB, in a transaction of its own |
| missing | a get of a key that does not exist |
| scan | an entry of an iteration over everything |
| range | an entry of an iteration over the 100 entries from a random key on |
| batch | a put in a batch of 100, over keys that exist |
"""

import argparse
import importlib.util
import itertools
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

STORES = ["situ", "rocksdict", "lmdb", "plyvel"]
WORK = ["put", "get", "missing", "scan", "range", "batch"]
KEY_BYTES, VALUE_BYTES, RANGE, BATCH = 16, 100, 100, 100


class Situ:
    def __init__(self, path, memory, _bytes):
        import situ

        self.store = situ.open(path, cache_bytes=memory, memtable_bytes=memory)
        self.put, self.get, self.items, self.close = self.store.put, self.store.get, self.store.items, self.store.close

    def range(self, start):
        return itertools.islice(self.store.items(start=start), RANGE)

    def batch(self, entries):
        batch = self.store.batch()
        for key, value in entries:
            batch.put(key, value)
        self.store.write(batch)


class RocksDb:
    def __init__(self, path, memory, _bytes):
        from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch

        table = BlockBasedOptions()
        table.set_block_cache(Cache(memory))
        table.set_bloom_filter(10, False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(memory)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.increase_parallelism(os.cpu_count())
        self.store, self.new_batch = Rdict(path, options), WriteBatch
        self.put, self.get, self.items, self.close = self.store.put, self.store.get, self.store.items, self.store.close

    def range(self, start):
        return itertools.islice(self.store.items(from_key=start), RANGE)

    def batch(self, entries):
        batch = self.new_batch(raw_mode=True)
        for key, value in entries:
            batch.put(key, value)
        self.store.write(batch)


class Lmdb:
    def __init__(self, path, _memory, total):
        import lmdb

        self.store = lmdb.open(path, map_size=max(1 << 30, 8 * total), sync=False, writemap=True)
        self.close = self.store.close

    def put(self, key, value):
        with self.store.begin(write=True) as transaction:
            transaction.put(key, value)

    def get(self, key):
        with self.store.begin() as transaction:
            return transaction.get(key)

    def items(self):
        with self.store.begin() as transaction:
            yield from transaction.cursor()

    def range(self, start):
        with self.store.begin() as transaction:
            cursor = transaction.cursor()
            cursor.set_range(start)
            yield from itertools.islice(cursor, RANGE)

    def batch(self, entries):
        with self.store.begin(write=True) as transaction:
            for key, value in entries:
                transaction.put(key, value)


class LevelDb:
    def __init__(self, path, memory, _bytes):
        import plyvel

        self.store = plyvel.DB(
            path, create_if_missing=True, lru_cache_size=memory, write_buffer_size=memory, bloom_filter_bits=10
        )
        self.put, self.get, self.items, self.close = self.store.put, self.store.get, self.store.iterator, self.store.close

    def range(self, start):
        return itertools.islice(self.store.iterator(start=start), RANGE)

    def batch(self, entries):
        with self.store.write_batch() as batch:
            for key, value in entries:
                batch.put(key, value)


OPENERS = {"situ": Situ, "rocksdict": RocksDb, "lmdb": Lmdb, "plyvel": LevelDb}


def run(name, path, keys_count, memory, seed):
    """Returns the operations a second of each work."""
    chance = random.Random(seed)
    keys = [chance.randbytes(KEY_BYTES) for _ in range(keys_count)]
    absent = [chance.randbytes(KEY_BYTES) for _ in range(keys_count)]
    values = [chance.randbytes(VALUE_BYTES // 2) * 2 for _ in range(1000)]
    entries = [(key, values[at % 1000]) for at, key in enumerate(keys)]
    shuffled = chance.sample(keys, keys_count)
    starts = shuffled[: max(1, keys_count // RANGE)]
    over = [entries[at : at + BATCH] for at in range(0, keys_count, BATCH)]
    store = OPENERS[name](str(path), memory, keys_count * (KEY_BYTES + VALUE_BYTES))
    rates = {}

    def measure(work, body):
        begun = time.perf_counter()
        operations = body()
        rates[work] = operations / (time.perf_counter() - begun)

    def put():
        put = store.put
        for key, value in entries:
            put(key, value)
        return keys_count

    def get():
        get = store.get
        assert all(get(key) is not None for key in shuffled)
        return keys_count

    def missing():
        get = store.get
        assert all(get(key) is None for key in absent)
        return keys_count

    def scan():
        count = sum(1 for _ in store.items())
        assert count == keys_count, count
        return count

    def ranges():
        return sum(1 for start in starts for _ in store.range(start))

    def batch():
        for one in over:
            store.batch(one)
        return keys_count

    for work, body in zip(WORK, (put, get, missing, scan, ranges, batch)):
        measure(work, body)
    store.close()
    return rates


def commit():
    """Returns the commit of the sources, with a + if they differ from it; None outside of a repository."""
    said = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return said.stdout.strip() or None


def version_of(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "built here"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--memory-mib", type=int, default=64, help="of the cache, and of the write buffer")
    parser.add_argument("--directory", type=Path, help="where the stores lie for the time of a run")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    memory = given.memory_mib << 20
    if given.one:
        print(json.dumps(run(given.stores[0], given.one, given.keys, memory, given.seed)))
        return
    for name in given.stores:
        if name not in STORES:
            parser.error(f"there is no store {name}: {', '.join(STORES)}")
    stores = [name for name in given.stores or STORES if importlib.util.find_spec(name)]
    for name in set(given.stores or STORES) - set(stores):
        print(f"SKIPPED: {name}: it cannot be imported (pip install {name})", file=sys.stderr)

    runs = []
    for turn in range(given.turns):
        for name in stores[turn % len(stores) :] + stores[: turn % len(stores)]:
            path = Path(tempfile.mkdtemp(dir=given.directory))
            command = [sys.executable, __file__, name, "--one", str(path), "--keys", str(given.keys)]
            command += ["--memory-mib", str(given.memory_mib), "--seed", str(turn)]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            shutil.rmtree(path)
            if said.returncode:
                sys.exit(f"{name} has failed in turn {turn}")
            runs.append({"store": name, "turn": turn, "per_s": json.loads(said.stdout)})

    medians = {
        name: {work: statistics.median(run["per_s"][work] for run in runs if run["store"] == name) for work in WORK}
        for name in stores
    }
    print(f"| operations a second | {' | '.join(stores)} | Situ to each |")
    print("|---|" + "---|" * (len(stores) + 1))
    for work in WORK:
        rates = [medians[name][work] for name in stores]
        ratios = [f"{medians['situ'][work] / medians[name][work]:.2f}" for name in stores if name != "situ"]
        ratios = ", ".join(ratios) if "situ" in stores else "-"
        print(f"| {work} | {' | '.join(f'{rate:,.0f}' for rate in rates)} | {ratios} |")
    if given.output:
        settings = {"keys": given.keys, "turns": given.turns, "memory_mib": given.memory_mib}
        machine = {"python": platform.python_version(), "system": platform.platform(), "processors": os.cpu_count()}
        versions = {name: version_of(name) for name in stores}
        result = {"commit": commit(), "settings": settings, "machine": machine, "versions": versions}
        result |= {"medians": medians, "runs": runs}
        given.output.write_text(json.dumps(result, indent=1) + "\n")


main()
