"""Iterators: both ways, over many chunks, while others write."""

import itertools

import pytest
import situ


@pytest.fixture
def filled(store):
    store.update((b"%06d" % number, b"%d" % number) for number in range(5000))
    return store


def test_iterators_go_both_ways(filled):
    expected = [(b"%06d" % number, b"%d" % number) for number in range(5000)]
    for _ in range(2):
        assert list(filled.items()) == expected
        assert list(filled.items(reverse=True)) == expected[::-1]
        assert list(filled.keys(start=b"000017", stop=b"000040")) == [key for key, _ in expected[17:40]]
        assert list(filled.values(start=b"000017", stop=b"000040", reverse=True)) == [
            value for _, value in expected[17:40][::-1]
        ]
        filled.flush()


@pytest.mark.parametrize("reverse", [False, True])
def test_an_iterator_sees_no_later_writes(filled, reverse):
    entries = filled.items(reverse=reverse)
    seen = list(itertools.islice(entries, 20))
    for number in range(0, 5000, 2):
        filled.delete(b"%06d" % number)
    filled.update((b"%06d+" % number, b"new") for number in range(5000))
    filled.flush()
    filled.compact()
    seen += entries
    assert seen == sorted(((b"%06d" % number, b"%d" % number) for number in range(5000)), reverse=reverse)
    assert filled.count() == 7500


def test_a_map_may_be_changed_while_it_is_walked(filled):
    for key, value in filled.items():
        filled[key] = value * 2
        filled[b"x" + key] = b""
    assert filled.count() == 10000 and filled[b"000007"] == b"77"
    for key in filled:
        del filled[key]
    assert filled.is_empty()


def test_an_iterator_stays_at_its_end(store):
    store[b"k"] = b"v"
    entries = store.items()
    assert next(entries) == (b"k", b"v")
    store[b"l"] = b"w"
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(entries)
    assert iter(entries) is entries


def test_large_values_come_in_short_chunks(store):
    for number in range(20):
        store[b"%02d" % number] = bytes([number]) * (1 << 20)
    assert [(key, value[:1], len(value)) for key, value in store.items()] == [
        (b"%02d" % number, bytes([number]), 1 << 20) for number in range(20)
    ]


def test_keys_read_no_values(path):
    with situ.open(path, value_log_min_bytes=100) as store:
        store.update((b"%03d" % number, b"v" * 1000) for number in range(500))
        store.flush()
        assert store.count() == 500 and len(list(store.keys())) == 500
        assert [len(value) for value in store.values(reverse=True)] == [1000] * 500


def test_an_iterator_outlives_its_store(path):
    store = situ.open(path)
    store.update((b"%06d" % number, b"v") for number in range(3000))
    store.flush()
    entries = store.items()
    assert next(entries) == (b"000000", b"v")
    store.close()
    assert len(list(entries)) == 2999

    entries = situ.open(path).items()
    situ.open(path).close()
    assert len(list(entries)) == 3000
