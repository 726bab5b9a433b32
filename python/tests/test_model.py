"""Random operations on a store, and on a dict."""

import random

import pytest
import situ

OPERATIONS = 3000


def entries_of(model, start, stop):
    return sorted((k, v) for k, v in model.items() if (start is None or k >= start) and (stop is None or k < stop))


@pytest.mark.parametrize("seed", range(3))
def test_a_store_is_a_dict(path, seed):
    chance = random.Random(seed)

    def key():
        return bytes(chance.choice(b"abc\xff\0") for _ in range(chance.randint(1, 4)))

    def bound():
        return chance.choice([None, key(), key()])

    def open_it():
        store = situ.open(path, memtable_bytes=64 << 10)
        return store, store.keyspace("map", value_log_min_bytes=chance.choice([None, 50]))

    store, map = open_it()
    model = {}
    for _ in range(OPERATIONS):
        operation = chance.randrange(14)
        one, value = key(), bytes(chance.randrange(100))
        start, stop = bound(), bound()
        if operation <= 2:
            map[one] = value
            model[one] = value
        elif operation == 3:
            assert (one in map) == (one in model)
            if one in model:
                del map[one], model[one]
        elif operation == 4:
            assert map.get(one) == model.get(one)
        elif operation == 5:
            assert list(map.items(start=start, stop=stop)) == entries_of(model, start, stop)
        elif operation == 6:
            assert list(map.items(start=start, stop=stop, reverse=True)) == entries_of(model, start, stop)[::-1]
        elif operation == 7:
            found = entries_of(model, start, stop)
            assert map.count(start=start, stop=stop) == len(found)
            assert map.first(start=start, stop=stop) == (found[0] if found else None)
            assert map.last(start=start, stop=stop) == (found[-1] if found else None)
        elif operation == 8 and chance.random() < 0.1:
            del map[start:stop]
            for gone, _ in entries_of(model, start, stop):
                del model[gone]
        elif operation == 9:
            keys = [key() for _ in range(4)]
            assert map.multi_get(keys) == [model.get(key) for key in keys]
        elif operation == 10:
            changes = {key(): value for _ in range(3)}
            with store.batch() as batch:
                batch.delete(one, keyspace=map)
                batch.update(changes, keyspace=map)
            model.pop(one, None)
            model.update(changes)
        elif operation == 11:
            commits = chance.random() < 0.5
            transaction = store.transaction(kind=chance.choice(["pessimistic", "optimistic"]))
            inside = transaction.keyspace(map)
            inside[one] = b"mine"
            assert list(inside[start:stop]) == entries_of({**model, one: b"mine"}, start, stop)
            if commits:
                transaction.commit()
                model[one] = b"mine"
            else:
                transaction.rollback()
        elif operation == 12:
            prefix = one[:2]
            assert list(map.keys(prefix=prefix)) == sorted(k for k in model if k.startswith(prefix))
            end = max if chance.random() < 0.5 else min
            pop = map.pop_last if end is max else map.pop_first
            popped = pop(prefix=prefix)
            expected = end((k for k in model if k.startswith(prefix)), default=None)
            assert popped == (None if expected is None else (expected, model.pop(expected)))
        elif chance.random() < 0.05:
            step = chance.choice(["reopen", "flush", "compact"])
            if step == "reopen":
                store.close()
                store, map = open_it()
            elif step == "flush":
                store.flush()
            else:
                map.compact()
    assert dict(map.items()) == model
    store.close()
