"""Options as keyword arguments."""

import pytest
import situ


def test_options_have_the_names_of_the_fields(path):
    with situ.open(
        path,
        durability="synced",
        cache_bytes=1 << 20,
        open_tables_max=100,
        memtables_bytes_max=None,
        slow_operation=10,
        memtable_bytes=1 << 20,
        compression=["none", "zstd level 5"],
        uses_reserve=True,
        value_log_min_bytes=4096,
        keyspaces={"small": {"memtable_bytes": 1 << 16, "compression": "lz4"}},
    ) as store:
        options = store.properties()["options"]
        assert options["durability"] == "synced" and options["cache_bytes"] == str(1 << 20)
        assert options["slow_operation"] == "10ms"
        of_small = store.keyspace("small").properties()["options"]
        assert of_small["memtable_bytes"] == str(1 << 16) and of_small["compression"] == "lz4"
        assert of_small["value_log_min_bytes"] == "4096", "the rest is as for the other keyspaces"
        of_large = store.create_keyspace("large", memtable_bytes=1 << 21).properties()["options"]
        assert of_large["memtable_bytes"] == str(1 << 21) and of_large["compression"] == "none, zstd level 5"
        assert of_large["uses_reserve"] == "true"


@pytest.mark.parametrize(
    "wrong",
    [
        {"cash_bytes": 1},
        {"cache_bytes": -1},
        {"cache_bytes": True},
        {"cache_bytes": None},
        {"cache_bytes": "much"},
        {"uses_reserve": 1},
        {"compression": "fast"},
        {"compression": []},
        {"listener": None},
        {"keyspaces": {"k": {"cache_bytes": 1}}},
    ],
)
def test_wrong_options_are_refused(path, wrong):
    with pytest.raises(situ.InvalidError):
        situ.open(path, **wrong)
    assert not path.exists()


@pytest.mark.parametrize("wrong", [{"cache_bytes": 1.5}, {"compression": {}}, {"keyspaces": [1]}, {"keyspaces": {"k": 1}}])
def test_wrong_types_are_refused(path, wrong):
    with pytest.raises(TypeError):
        situ.open(path, **wrong)


def test_synced_writes_sync(store, tmp_path):
    def syncs(store):
        return store.properties()["log_syncs"]

    before = syncs(store)
    store[b"k"] = b"v"
    assert syncs(store) == before
    store.put(b"k", b"v", sync=True)
    assert syncs(store) > before
    with situ.open(tmp_path / "synced", durability="synced") as synced:
        before = syncs(synced)
        synced.put(b"k", b"v", sync=False)
        assert syncs(synced) == before
        synced[b"k"] = b"v"
        assert syncs(synced) > before
