"""Threads: the interpreter's lock is released in calls that wait."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import situ


@pytest.fixture
def no_switches():
    """Python switches between threads only where one releases the lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def test_another_thread_runs_while_a_call_waits(store, no_switches):
    holder = store.transaction()
    holder.lock(b"k")
    went_on = threading.Event()

    def free_it():
        # Runs only once the main thread has released the lock of the interpreter, below.
        holder.rollback()
        went_on.set()

    thread = threading.Thread(target=free_it)
    waiter = store.transaction(lock_timeout_ms=60_000)
    thread.start()
    waiter[b"k"] = b"v"
    waiter.commit()
    thread.join()
    assert went_on.is_set() and store[b"k"] == b"v"


LONG_CALLS = {
    "put, synced": lambda store: store.put(b"k", b"v", sync=True),
    "write": lambda store: store.update((b"%06d" % number, b"w") for number in range(5000)),
    "count": lambda store: store.count(),
    "multi_get": lambda store: store.multi_get([b"%06d" % number for number in range(5000)]),
    "items": lambda store: list(store.values()),
    "flush": lambda store: (store.put(b"k", b"v"), store.flush()),
    "compact": lambda store: store.compact(),
    "sync": lambda store: (store.put(b"k", b"v"), store.sync()),
    "verify": lambda store: store.verify(),
    "checkpoint": lambda store: store.checkpoint(f"{store.properties()['location']}-{time.monotonic_ns()}"),
    "open and close": lambda store: situ.open(store.properties()["location"] + "-other").close(),
}


@pytest.mark.parametrize("name", LONG_CALLS)
def test_a_call_releases_the_lock(store, no_switches, name):
    store.update((b"%06d" % number, b"v") for number in range(5000))
    store.flush()
    ran, stop = [], threading.Event()

    def count():
        # Gives the lock back in each round, and gets it again only when the other thread releases it.
        while not stop.is_set():
            time.sleep(0.0001)
            ran.append(None)

    thread = threading.Thread(target=count)
    thread.start()
    begun, calls = len(ran), 0
    # A single call may end before the other thread has woken up.
    while len(ran) == begun and calls < 1000:
        LONG_CALLS[name](store)
        calls += 1
    has_run = len(ran) > begun
    stop.set()
    thread.join()
    assert has_run


def test_many_threads_write_and_read(store):
    def work(number):
        keyspace = store.keyspace(f"of {number % 2}")
        for at in range(300):
            key = b"%d/%d" % (number, at)
            keyspace[key] = key
            assert keyspace[key] == key
            if at % 50 == 0:
                assert all(k == v for k, v in keyspace.items())
        return sum(1 for _ in keyspace.keys(prefix=b"%d/" % number))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == [300] * 8
    assert sum(store.keyspace(f"of {number}").count() for number in range(2)) == 8 * 300


def test_pops_of_many_threads_are_distinct(store):
    store.update((b"%04d" % number, b"") for number in range(400))

    def pop(_):
        return [store.pop_first()[0] for _ in range(100)]

    with ThreadPoolExecutor(4) as threads:
        popped = sorted(key for one in threads.map(pop, range(4)) for key in one)
    assert popped == [b"%04d" % number for number in range(400)] and store.is_empty()


def test_a_store_closes_under_its_users(path):
    store = situ.open(path)
    ready = threading.Barrier(5)

    def work(_):
        ready.wait()
        try:
            for number in range(1_000_000):
                store[b"%d" % number] = b"v"
                store.get(b"0")
        except situ.ClosedError:
            return True

    with ThreadPoolExecutor(4) as threads:
        ended = threads.map(work, range(4))
        ready.wait()
        while b"100" not in store:
            pass
        store.close()
        assert all(ended)
    situ.open(path).close()


FORKER = """
import gc, os, situ, sys
store = situ.open(sys.argv[1])
keyspace, snapshot, transaction, batch = store.keyspace("k"), store.snapshot(), store.transaction(), store.batch()
store.update((b"%d" % number, b"v") for number in range(1000))
entries, feed = store.items(), store.changes()
child = os.fork()
if child == 0:
    for call in (
        lambda: store[b"1"], lambda: keyspace.put(b"1", b""), lambda: list(snapshot), lambda: transaction.commit(),
        lambda: store.write(batch), lambda: list(entries), lambda: store.close(), lambda: next(feed),
        lambda: store.properties(), lambda: store.keyspace_names(), lambda: store.snapshot(), lambda: store.transaction(),
    ):
        try:
            call()
            sys.exit("no error")
        except situ.InvalidError as error:
            assert "forked" in str(error)
    del store, keyspace, snapshot, transaction, batch, entries, feed, call
    gc.collect()
    with situ.open(sys.argv[1] + "-of-child") as own:
        own[b"k"] = b"v"
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
store[b"parent"] = b"goes on"
store.close()
"""


def test_a_forked_child_is_refused_and_ends(path):
    ended = subprocess.run([sys.executable, "-c", FORKER, str(path)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    with situ.open(path) as store:
        assert store[b"parent"] == b"goes on"


# The list of snapshots is locked most of the time, and a fork copies the lock as it is.
DISTURBED_FORKER = """
import os, signal, situ, sys, threading
store = situ.open(sys.argv[1])
snapshots = []
for _ in range(20_000):
    store[b"k"] = b"v"
    snapshots.append(store.snapshot())
is_over = threading.Event()

def count_snapshots():
    while not is_over.is_set():
        store.properties()

threads = [threading.Thread(target=count_snapshots) for _ in range(3)]
for thread in threads:
    thread.start()
handles = {
    "snapshot": [store.snapshot() for _ in range(5)],
    "iterator": [store.items() for _ in range(5)],
    "iterator of asyncio": [store.items_async() for _ in range(5)],
    "transaction": [store.transaction() for _ in range(5)],
}
hung = set()
for name, each in handles.items():
    while each and name not in hung:
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            del each[-1]
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            hung.add(name)
        each.pop()
is_over.set()
for thread in threads:
    thread.join()
sys.exit(f"a child hung with its {hung}" if hung else 0)
"""


def test_a_forked_child_waits_for_no_lock_of_its_parent(path):
    command = [sys.executable, "-c", DISTURBED_FORKER, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
