"""Reopening, and kills of the process that writes."""

import os
import signal
import subprocess
import sys

import pytest
import situ

WRITER = """
import sys, situ
store = situ.open(sys.argv[1], memtable_bytes=1 << 20)
log = store.keyspace("log")
for number in range(10**9):
    with store.batch(sync=True) as batch:
        batch[b"last"] = b"%d" % number
        batch.put(b"%09d" % number, b"v" * 1000, keyspace=log)
    print(number, flush=True)
"""


def test_what_was_written_is_there_again(path):
    for turn in range(5):
        with situ.open(path) as store:
            assert store.count() == 100 * turn
            store.update((b"%d/%d" % (turn, number), b"v") for number in range(100))


@pytest.mark.parametrize("acknowledged", [1, 100, 1000])
def test_synced_writes_survive_a_kill(path, acknowledged):
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        last = -1
        for line in writer.stdout:
            last = int(line)
            if last >= acknowledged:
                break
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split()
        last = int(rest[-1]) if rest else last
        assert writer.wait() == -signal.SIGKILL
    with situ.open(path) as store:
        found, log = int(store[b"last"]), store.keyspace("log", create=False)
        assert found >= last >= acknowledged
        assert list(log) == [b"%09d" % number for number in range(found + 1)], "batches are whole, and in order"
        assert set(log.values()) == {b"v" * 1000}
        assert store.verify()["is_sound"]


def test_another_process_finds_the_store_locked(path, store):
    program = "import sys, situ\ntry: situ.open(sys.argv[1])\nexcept situ.LockedError as error: print(error)"
    said = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert str(path) in said.stdout
