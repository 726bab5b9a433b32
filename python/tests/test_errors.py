"""Errors, their classes, and wrong use: an exception each time, and never a crash or a hang."""

import gc
import threading

import pytest
import situ


def test_the_classes():
    for name in situ.errors.__all__:
        assert issubclass(getattr(situ, name), situ.Error) and getattr(situ, name).__doc__
    assert issubclass(situ.InvalidError, ValueError)
    assert issubclass(situ.NoSuchKeyspaceError, LookupError)
    for retryable in (situ.ConflictError, situ.DeadlockError, situ.LockTimeoutError):
        assert issubclass(retryable, situ.RetryableError)
    for storage in (situ.CorruptionError, situ.NoSpaceError, situ.PermissionDeniedError):
        assert issubclass(storage, situ.StorageError)


def test_a_closed_store_answers_with_an_error(path):
    store = situ.open(path)
    keyspace = store.keyspace("k")
    batch = store.batch()
    batch[b"k"] = b"v"
    transaction, snapshot, entries = store.transaction(), store.snapshot(), store.items()
    transaction[b"a"] = b""
    assert not store.closed
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store)
    for call in (
        lambda: store[b"k"],
        lambda: store.put(b"k", b"v"),
        lambda: b"k" in keyspace,
        lambda: keyspace.delete(b"k"),
        lambda: store.delete_range(),
        lambda: list(store.items()),
        lambda: store.count(),
        lambda: store.write(batch),
        lambda: store.snapshot(),
        lambda: store.transaction(),
        lambda: store.transact(lambda transaction: None),
        lambda: store.flush(),
        lambda: store.sync(),
        lambda: store.compact(),
        lambda: store.keyspace("k"),
        lambda: store.keyspace("new"),
        lambda: store.drop_keyspace("k"),
        lambda: store.verify(),
        lambda: store.changes(),
        lambda: store.pop_first(),
        lambda: store.checkpoint(path / "copy"),
        lambda: transaction.commit(),
        lambda: snapshot[b"k"],
        lambda: list(snapshot),
    ):
        with pytest.raises(situ.ClosedError, match="closed"):
            call()
    assert list(entries) == []
    store.properties(), keyspace.properties(), store.keyspace_names(), store.is_busy()
    del store, keyspace, batch, transaction, snapshot, entries
    gc.collect()
    situ.open(path).close()


def test_a_store_closes_with_its_last_handle(path):
    keyspace = situ.open(path).keyspace("k")
    keyspace[b"k"] = b"v"
    with pytest.raises(situ.LockedError, match="open already"):
        situ.open(path)
    entries = keyspace.items()
    del keyspace
    gc.collect()
    assert list(entries) == [(b"k", b"v")]
    with situ.open(path) as store:
        assert store.keyspace("k")[b"k"] == b"v"


def test_existence(path):
    with pytest.raises(situ.Error):
        situ.open(path, create_if_missing=False)
    with pytest.raises(situ.Error):
        situ.open(path, read_only=True)
    situ.open(path, error_if_exists=True).close()
    with pytest.raises(situ.ExistenceError):
        situ.open(path, error_if_exists=True)
    (path.parent / "empty").mkdir()
    with pytest.raises(situ.ExistenceError):
        situ.open(path.parent / "empty", create_if_missing=False)


def test_read_only(path):
    with situ.open(path) as writer:
        writer[b"k"] = b"v"
        with situ.open(path, read_only=True) as reader:
            assert reader[b"k"] == b"v"
            for call in (
                lambda: reader.put(b"k", b"w"),
                lambda: reader.transaction(),
                lambda: reader.create_keyspace("k"),
                lambda: reader.sync(),
            ):
                with pytest.raises(situ.ReadOnlyError):
                    call()
            with pytest.raises(situ.NoSuchKeyspaceError):
                reader.keyspace("k")


def test_bounds(store):
    with pytest.raises(situ.InvalidError, match="key"):
        store[b""] = b"v"
    with pytest.raises(ValueError):
        store[b"k" * 65537] = b"v"
    with pytest.raises(situ.LimitError):
        with store.transaction(bytes_max=1000) as transaction:
            transaction[b"k"] = b"v" * 2000
    for wrong in ({"kind": "neither"}, {"isolation": "serializable"}):
        with pytest.raises(situ.InvalidError):
            store.transaction(**wrong)
    with pytest.raises(OverflowError):
        store.transaction(lock_timeout_ms=-1)
    with pytest.raises(situ.InvalidError, match="position"):
        store.changes("yesterday")


def test_damage_is_named(path):
    with situ.open(path, compression="none") as store:
        store.update((b"%04d" % number, b"v" * 100) for number in range(1000))
        store.flush()
    table = max(path.glob("*.table"), key=lambda file: file.stat().st_size, default=None)
    table = table or max((file for file in path.iterdir()), key=lambda file: file.stat().st_size)
    content = bytearray(table.read_bytes())
    for at in range(1000, min(len(content), 60000), 1000):
        content[at] ^= 0xFF
    table.write_bytes(content)
    with situ.open(path) as store:
        with pytest.raises(situ.CorruptionError, match=table.name):
            list(store.items())
        assert not store.verify()["is_sound"]


def test_no_class_can_be_made_by_hand():
    for name in ("Reader", "Map", "Store", "Keyspace", "Snapshot", "Transaction", "Batch", "Entries", "ChangeFeed"):
        with pytest.raises(TypeError):
            getattr(situ, name)()


def test_an_iterator_is_of_one_thread_at_a_time(store):
    store.update((b"%06d" % number, b"v") for number in range(20000))
    entries = store.items()
    seen, errors = [], []

    def walk():
        while True:
            try:
                seen.append(next(entries))
            except StopIteration:
                return
            except situ.InvalidError as error:
                errors.append(error)

    threads = [threading.Thread(target=walk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(store.items())
    assert all("another thread" in str(error) for error in errors)
