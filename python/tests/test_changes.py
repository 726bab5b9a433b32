"""The feed of changes."""

import pytest
import situ


def test_a_feed_has_all_batches_in_order(store):
    people = store.keyspace("people")
    store[b"a"] = b"1"
    with store.batch() as batch:
        batch.put(b"ada", b"1815", keyspace=people)
        batch.delete(b"a")
        batch.delete_range(start=b"b", stop=b"c", keyspace=people)
    feed = store.changes()
    batches = list(feed)
    assert [
        [(change.keyspace, change.kind, change.key, change.value) for change in batch.changes] for batch in batches
    ] == [
        [("default", "put", b"a", b"1")],
        [
            ("people", "put", b"ada", b"1815"),
            ("default", "delete", b"a", None),
            ("people", "delete_range", b"b", b"c"),
        ],
    ]
    assert batches[1].first == batches[0].first + 1
    assert feed.position == batches[1].position and "ada" in repr(batches[1].changes[0])
    assert feed.next_batch() is None
    store[b"later"] = b""
    assert [change.key for batch in feed for change in batch.changes] == [b"later"], "a feed goes on"
    again = store.changes(batches[0].position)
    assert again.next_batch().first == batches[1].first


def test_a_position_of_another_store_is_refused(store, tmp_path):
    with situ.open(tmp_path / "other") as other:
        other[b"k"] = b"other"
        store[b"k"] = b"v"
        (batch,) = other.changes()
        with pytest.raises(situ.ChangesGoneError, match="made again"):
            store.changes(batch.position)


def test_a_feed_keeps_its_store_open(path):
    feed = situ.open(path).changes()
    with pytest.raises(situ.LockedError):
        situ.open(path)
    assert feed.next_batch() is None
    del feed
    situ.open(path).close()
