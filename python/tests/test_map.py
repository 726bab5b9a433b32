"""A store and its keyspaces as maps of bytes."""

import array
from pathlib import Path

import pytest
import situ


def test_a_store_is_a_map(store):
    store[b"ada"] = b"1815"
    store.put(b"grace", b"1906", sync=True)
    assert store[b"ada"] == b"1815"
    assert type(store[b"ada"]) is bytes
    assert b"ada" in store and b"alan" not in store
    assert store.get(b"alan") is None and store.get(b"alan", b"-") == b"-" and store.get(b"ada", b"-") == b"1815"
    assert list(store) == [b"ada", b"grace"] and list(reversed(store)) == [b"grace", b"ada"]
    assert list(store.values()) == [b"1815", b"1906"]
    assert dict(store.items()) == dict(store) == {b"ada": b"1815", b"grace": b"1906"}
    del store[b"ada"]
    with pytest.raises(KeyError) as missing:
        store[b"ada"]
    assert missing.value.args == (b"ada",)
    with pytest.raises(KeyError):
        del store[b"ada"]
    store.delete(b"ada")
    store.delete(b"grace", sync=True)
    assert store.is_empty() and store.first() is None and store.last() is None


def test_anything_with_a_buffer_is_bytes(store):
    for bytes_like in (bytearray(b"key"), memoryview(b"key"), memoryview(b"k.e.y")[::2], array.array("B", b"key")):
        store[bytes_like] = bytes_like
        assert store[b"key"] == store[bytes_like] == b"key"
        assert bytes_like in store
        assert store.multi_get([bytes_like]) == [b"key"]
        assert list(store.items(prefix=bytes_like)) == [(b"key", b"key")]
        del store[bytes_like]
    for other in ("key", 1, None, [1, 2], 1.5, object()):
        for call in (
            lambda: store[other],
            lambda: store.get(other),
            lambda: store.put(other, b"v"),
            lambda: store.put(b"k", other),
            lambda: other in store,
            lambda: store.multi_get([other]),
            lambda: store.delete(other),
        ):
            with pytest.raises(TypeError):
                call()
    assert store.is_empty()


def test_a_value_that_changes_later_was_copied(store):
    value = bytearray(b"before")
    store[b"k"] = value
    value[:] = b"behind"
    assert store[b"k"] == b"before"


def test_there_is_no_length(store):
    with pytest.raises(TypeError):
        len(store)
    assert store, "a map is true, empty or not"
    assert store.count() == 0
    store.update((b"%04d" % number, b"") for number in range(3000))
    assert store.count() == 3000
    assert store.count(start=b"1000", stop=b"2000") == 1000
    assert store.count(prefix=b"00") == 100
    assert store.count(prefix=b"00", start=b"0050") == 50


def test_slices_are_ranges(store):
    store.update({b"a": b"1", b"b": b"2", b"c": b"3", b"c\0": b"4", b"d": b"5"})
    assert list(store[b"b":b"c\0"]) == [(b"b", b"2"), (b"c", b"3")]
    assert list(store[:b"b"]) == [(b"a", b"1")]
    assert list(store[b"c\0":]) == [(b"c\0", b"4"), (b"d", b"5")]
    assert list(store[:]) == list(store.items())
    assert list(store[b"c":b"a"]) == list(store[b"":b""]) == []
    assert store.first(start=b"b") == (b"b", b"2") and store.last(stop=b"d") == (b"c\0", b"4")
    assert store.last(prefix=b"c") == (b"c\0", b"4")
    with pytest.raises(TypeError, match="reverse=True"):
        store[b"d":b"a":-1]
    with pytest.raises(TypeError):
        store["a":"b"]
    with pytest.raises(TypeError, match="batch"):
        store[b"a":b"b"] = b"x"


def test_ranges_are_removed(store):
    def fill():
        store.update({bytes([byte]) * length: b"v" for byte in (0, 7, 0xFF) for length in (1, 2, 3)})
        store[b"\xff" * 65536] = b"the last key there can be"

    fill()
    del store[b"\x07\x07":b"\x07\x07\x07"]
    assert b"\x07\x07" not in store and store.count() == 9
    del store[b"\x07":b"\x07"]
    del store[b"\x07":b"\x00"]
    del store[:b""]
    assert store.count() == 9
    store.delete_range(prefix=b"\x07", sync=True)
    assert store.count() == 7
    del store[b"\xff\xff":]
    assert list(store) == [b"\0", b"\0\0", b"\0\0\0", b"\xff"]
    fill()
    store.flush()
    del store[:]
    assert store.is_empty()
    fill()
    store.delete_range()
    store.flush()
    assert store.is_empty()


def test_many_keys_are_read_and_written_at_once(store):
    store.update({b"a": b"1"})
    store.update([(b"b", b"2"), (bytearray(b"c"), b"3")], sync=True)
    assert store.multi_get([b"c", b"x", b"a"]) == [b"3", None, b"1"]
    assert store.multi_get(key for key in (b"b",)) == [b"2"]
    assert store.multi_get([]) == []
    for wrong in ([b"ab", (b"c",)], [(b"d", b"e", b"f")], 5, {b"g": "text"}):
        with pytest.raises((TypeError, ValueError)):
            store.update(wrong)
    assert store.count() == 3, "all or nothing"


def test_pops_take_from_both_ends(store):
    store.update({b"job %d" % number: b"%d" % number for number in range(5)})
    assert store.pop_first() == (b"job 0", b"0")
    assert store.pop_last(sync=True) == (b"job 4", b"4")
    assert store.pop_first(start=b"job 2") == (b"job 2", b"2")
    assert store.pop_last(stop=b"job 3") == (b"job 1", b"1")
    assert store.pop_first(prefix=b"other") is None
    assert list(store) == [b"job 3"]


def test_keyspaces(store):
    people = store.keyspace("people", memtable_bytes=1 << 20)
    people[b"ada"] = b"1815"
    assert b"ada" not in store and store.keyspace("people")[b"ada"] == b"1815"
    assert people.name == "people" and repr(people) == '<situ.Keyspace "people">'
    assert people.properties()["options"]["memtable_bytes"] == str(1 << 20)
    assert store.keyspace_names() == ["default", "people"]
    assert isinstance(people, situ.Map) and isinstance(store, situ.Map)
    with pytest.raises(situ.InvalidError, match="already"):
        store.create_keyspace("people")
    with pytest.raises(situ.NoSuchKeyspaceError):
        store.keyspace("places", create=False)
    with pytest.raises(TypeError):
        store.keyspace("places", create=False, memtable_bytes=1)
    assert store.create_keyspace("places", compression="none").properties()["options"]["compression"] == "none"
    store.drop_keyspace("people")
    with pytest.raises(situ.KeyspaceDroppedError):
        people[b"ada"]
    with pytest.raises(situ.NoSuchKeyspaceError):
        store.drop_keyspace("people")
    with pytest.raises(situ.InvalidError):
        store.drop_keyspace("default")


def test_batches_are_whole(store):
    people = store.keyspace("people")
    store[b"old"] = b""
    batch = store.batch()
    batch[b"ada"] = b"1815"
    batch.put(b"grace", b"1906", keyspace=people)
    batch.update({b"alan": b"1912"}, keyspace=people)
    del batch[b"old"]
    assert len(batch) == 4 and batch.bytes > 0
    assert b"ada" not in store
    store.write(batch, sync=True)
    assert list(store) == [b"ada"] and list(people) == [b"alan", b"grace"]

    del store[b"ada"]
    store.write(batch)
    assert list(store) == [b"ada"], "a batch may be written again"
    batch.clear()
    assert len(batch) == 0
    store.write(batch)

    with store.batch(sync=True) as batch:
        batch.delete(b"grace", keyspace=people)
        del batch[b"a":b"b"]
        batch.delete_range(prefix=b"al", keyspace=people)
    assert store.is_empty() and people.is_empty()
    with pytest.raises(RuntimeError, match="mine"), store.batch() as batch:
        batch[b"k"] = b"v"
        raise RuntimeError("mine")
    assert store.is_empty()


def test_a_batch_is_of_one_store(store, tmp_path):
    with situ.open(tmp_path / "other") as other:
        batch = other.batch()
        batch[b"k"] = b"v"
        with pytest.raises(situ.InvalidError, match="another store"):
            store.write(batch)
        batch = store.batch()
        with pytest.raises(situ.InvalidError):
            batch.put(b"k", b"v", keyspace=other.keyspace("k"))
            batch.put(b"k", b"v", keyspace=store.keyspace("k"))


def test_snapshots_never_change(store):
    people = store.keyspace("people")
    people[b"ada"] = b"1815"
    store[b"count"] = b"1"
    with store.snapshot() as snapshot:
        sequence = snapshot.sequence
        then = snapshot.keyspace(people)
        store[b"count"] = b"2"
        people[b"grace"] = b"1906"
        del people[b"ada"]
        assert snapshot[b"count"] == b"1" and b"ada" in then and b"grace" not in then
        assert list(then.items()) == [(b"ada", b"1815")] == list(then[b"a":])
        assert then.multi_get([b"grace", b"ada"]) == [None, b"1815"]
        assert then.count() == 1 and then.last() == (b"ada", b"1815")
        assert store.snapshot().sequence > sequence
        assert not hasattr(snapshot, "put")
        with pytest.raises(TypeError):
            snapshot[b"k"] = b"v"
        entries = snapshot.items()
    for call in (lambda: snapshot[b"count"], lambda: b"ada" in then, lambda: snapshot.sequence, lambda: list(then)):
        with pytest.raises(situ.InvalidError, match="closed"):
            call()
    assert list(entries) == [(b"count", b"1")], "an iterator goes on"
    snapshot.close()


def test_work_on_the_files(store, path, tmp_path):
    store.update((b"%05d" % number, b"v" * 100) for number in range(5000))
    store.flush()
    store.keyspace("other").flush()
    store.compact(start=b"00100", stop=b"00200")
    store.compact()
    store.wait_idle()
    store.sync()
    assert store.approximate_bytes(b"0", b"1") > 5000
    report = store.verify()
    assert report["is_sound"] and report["entries"] == 5000 and report["damages"] == []
    report = store.checkpoint(tmp_path / "copy")
    assert report["last_sequence"] >= 5000
    store[b"later"] = b""
    with situ.open(str(tmp_path / "copy")) as copy:
        assert copy.count() == 5000
    properties = store.properties()
    assert properties["location"] == str(path) and properties["keyspaces"] == 2 and properties["failure"] is None
    assert properties["debts"]["undeleted_files"] >= 0 and properties["space"]["logical_total"] > 0
    assert store.verify(bytes_per_s_max=1 << 30)["is_sound"]


def test_destroy(path):
    situ.open(path).close()
    situ.destroy(path)
    assert not Path(path).exists()
    with pytest.raises(situ.Error):
        situ.destroy(path)
