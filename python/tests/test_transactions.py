"""Transactions: isolation, conflicts, locks, and their ends."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import situ

KINDS = ["pessimistic", "optimistic"]


def number(value):
    return int(value or b"0")


@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_is_whole(store, kind):
    journal = store.keyspace("journal")
    store[b"ada"] = b"10"
    with store.transaction(kind=kind, sync=True) as transaction:
        assert transaction[b"ada"] == b"10" and transaction.number > 0
        transaction[b"ada"] = b"7"
        inside = transaction.keyspace(journal)
        inside.put(b"1", b"ada paid 3")
        inside.update({b"2": b"twice"})
        assert transaction[b"ada"] == b"7" and store[b"ada"] == b"10"
        assert list(inside.items()) == [(b"1", b"ada paid 3"), (b"2", b"twice")] and journal.is_empty()
        assert list(inside.items(reverse=True)) == list(inside.items())[::-1]
        assert inside.multi_get([b"3", b"1"]) == [None, b"ada paid 3"]
        assert inside.count(start=b"2") == 1 and b"2" in inside and b"3" not in inside
        del inside[b"2"]
        with pytest.raises(KeyError):
            del inside[b"2"]
        with pytest.raises(KeyError):
            inside[b"2"]
        with pytest.raises(TypeError, match="no ranges"):
            del inside[b"a":b"b"]
        inside.delete(b"2")
    assert store[b"ada"] == b"7" and list(journal) == [b"1"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_rolls_back(store, kind):
    with pytest.raises(ZeroDivisionError):
        with store.transaction(kind=kind) as transaction:
            transaction[b"k"] = b"v"
            1 / 0
    assert store.is_empty()
    store[b"k"] = b"the lock was given back"


def test_snapshot_isolation(store):
    store[b"k"] = b"1"
    snapshot, committed = store.transaction(), store.transaction(isolation="read_committed")
    assert snapshot[b"k"] == committed[b"k"] == b"1"
    store[b"k"] = b"2"
    assert snapshot[b"k"] == b"1" and committed[b"k"] == b"2"
    assert list(snapshot.values()) == [b"1"] and list(committed.values()) == [b"2"]


def test_conflicts(store):
    store[b"k"] = b"1"
    first, second = store.transaction(kind="optimistic"), store.transaction(kind="optimistic")
    for transaction in (first, second):
        assert transaction.get_for_update(b"k") == b"1"
        assert transaction.get_for_update(b"x", b"none") == b"none"
        transaction[b"k"] = b"2"
    assert first.commit() > 0
    with pytest.raises(situ.ConflictError, match="run it again"):
        second.commit()
    with pytest.raises(situ.InvalidError, match="ended"):
        second.commit()

    pessimistic = store.transaction()
    assert pessimistic[b"k"] == b"2"
    store[b"k"] = b"3"
    with pytest.raises(situ.ConflictError):
        pessimistic[b"k"] = b"4"


def test_lock_timeouts(store):
    holder = store.transaction()
    holder.lock(b"k")
    waiter = store.transaction(lock_timeout_ms=50)
    for call in (
        lambda: waiter.put(b"k", b"v"),
        lambda: waiter.delete(b"k"),
        lambda: waiter.lock(b"k", shared=True),
        lambda: waiter.get_for_update(b"k"),
    ):
        with pytest.raises(situ.LockTimeoutError, match="no lock within"):
            call()
    waiter[b"other"] = b"the transaction goes on"
    holder.rollback()
    waiter[b"k"] = b"v"
    waiter.commit()
    assert store.count() == 2
    readers = [store.transaction(lock_timeout_ms=0) for _ in range(2)]
    for reader in readers:
        assert reader.get_for_update(b"k", shared=True) == b"v"
    with pytest.raises(situ.LockTimeoutError):
        readers[0][b"k"] = b"w"


def test_deadlocks_are_found(store):
    barrier, found = threading.Barrier(2), []

    def lock_both(one, other):
        transaction = store.transaction(lock_timeout_ms=60_000)
        transaction.lock(one)
        barrier.wait()
        try:
            transaction.lock(other)
        except situ.DeadlockError as error:
            found.append(error)
        transaction.rollback()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lock_both, (b"a", b"b"), (b"b", b"a")))
    assert len(found) == 1


def test_savepoints(store):
    transaction = store.transaction()
    transaction[b"a"] = b"1"
    transaction.set_savepoint()
    transaction[b"b"] = b"2"
    transaction.rollback_to_savepoint()
    transaction.set_savepoint()
    transaction[b"c"] = b"3"
    transaction.pop_savepoint()
    with pytest.raises(situ.InvalidError, match="no savepoint"):
        transaction.rollback_to_savepoint()
    transaction.commit()
    assert list(store) == [b"a", b"c"]


def test_a_transaction_that_has_ended(store):
    ended = [store.transaction(), store.transaction(), store.transaction()]
    ended[0].commit()
    ended[1].rollback()
    with ended[2]:
        ended[2].rollback()
    for transaction in ended:
        for call in (
            lambda: transaction[b"k"],
            lambda: transaction.put(b"k", b"v"),
            lambda: list(transaction),
            lambda: transaction.lock(b"k"),
            lambda: transaction.set_savepoint(),
            lambda: transaction.keyspace(store.keyspace("k")),
            lambda: transaction.commit(),
        ):
            with pytest.raises(situ.InvalidError, match="ended"):
                call()
        transaction.rollback()


def test_a_transaction_is_of_one_thread_at_a_time(store):
    holder = store.transaction()
    holder.lock(b"k")
    waiter = store.transaction(lock_timeout_ms=60_000)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(waiter.put, b"k", b"v")
        while store.properties()["locks"] < 2:
            pass
        for call in (lambda: waiter[b"k"], waiter.commit, waiter.rollback, lambda: waiter.put(b"x", b"y")):
            with pytest.raises(situ.InvalidError, match="another thread"):
                call()
        holder.rollback()
        waiting.result()
    waiter.commit()
    assert store[b"k"] == b"v"


def test_a_transaction_that_is_forgotten_gives_its_locks_back(store):
    store.transaction().lock(b"k")
    with store.transaction(lock_timeout_ms=0) as transaction:
        transaction[b"k"] = b"v"
    assert store[b"k"] == b"v"


@pytest.mark.parametrize("kind", KINDS)
def test_transact_counts_right(store, kind):
    threads_count, rounds = 4, 100

    def add(transaction):
        count = number(transaction.get(b"count")) + 1
        transaction[b"count"] = b"%d" % count
        return count

    def work(_):
        return [store.transact(add, kind=kind, attempts_max=10_000) for _ in range(rounds)]

    with ThreadPoolExecutor(threads_count) as threads:
        counts = sorted(count for one in threads.map(work, range(threads_count)) for count in one)
    assert counts == list(range(1, threads_count * rounds + 1))
    assert number(store[b"count"]) == threads_count * rounds


def test_transact_runs_again_for_conflicts_only(store):
    runs = []

    def in_the_way(transaction):
        runs.append(transaction.get(b"k"))
        transaction[b"k"] = b"mine"
        if len(runs) < 3:
            store[b"k"] = b"%d" % len(runs)
        return len(runs)

    assert store.transact(in_the_way, kind="optimistic") == 3
    assert runs == [None, b"1", b"2"] and store[b"k"] == b"mine"

    def always(transaction):
        runs.append(None)
        transaction[b"k"] = b"never"
        store[b"k"] = b"theirs"

    runs.clear()
    with pytest.raises(situ.ConflictError):
        store.transact(always, kind="optimistic", attempts_max=5)
    assert len(runs) == 5 and store[b"k"] == b"theirs"

    runs.clear()

    def wrong(transaction):
        runs.append(None)
        transaction[b"k"] = b"never"
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        store.transact(wrong)
    assert len(runs) == 1 and store[b"k"] == b"theirs"
    with pytest.raises(TypeError):
        store.transact(lambda: None)
    with pytest.raises(situ.InvalidError, match="ended"):
        store.transact(lambda transaction: transaction.commit() and None)
