"""Everything at the same time, on shared objects, also after their ends: errors are errors of Situ."""

import asyncio
import gc
import random
import threading

import pytest
import situ

THREADS, CALLS = 5, 120


class Storm:
    def __init__(self, path):
        self.store = situ.open(path, memtable_bytes=64 << 10, cache_bytes=100 << 10)
        self.map = self.store.keyspace("map")
        self.entries, self.snapshot = self.store.items(), self.store.snapshot()
        self.batch, self.feed = self.store.batch(), self.store.changes()
        self.begin()
        self.found, self.wrong = set(), []

    def begin(self):
        self.transaction = self.store.transaction(lock_timeout_ms=20)

    def walk(self):
        self.entries = self.map.items(reverse=True)

    def take(self):
        self.snapshot = self.store.snapshot()

    async def tasks(self, chance, key):
        futures = [self.store.put_async(key(), b"v" * 100, sync=chance.random() < 0.3) for _ in range(20)]
        futures += [self.map.get_async(key()) for _ in range(20)]
        futures += [self.transaction.get_for_update_async(key()), self.transaction.get_async(key())]
        for future in futures[::3]:
            future.cancel()
        await asyncio.gather(*futures, return_exceptions=True)
        async for _ in self.map.items_async():
            if chance.random() < 0.05:
                break

    def work(self, seed):
        chance = random.Random(seed)
        store = self.store

        def key():
            return b"%d" % chance.randrange(200)

        calls = [
            lambda: store.put(key(), b"v" * chance.randrange(1000)),
            lambda: store.get(key()),
            lambda: self.map.update({key(): b"" for _ in range(10)}),
            lambda: next(self.entries, None),
            lambda: self.transaction.put(key(), b"v"),
            lambda: list(self.transaction.items()),
            lambda: self.transaction.commit(),
            lambda: self.transaction.rollback(),
            lambda: self.snapshot.get(key()),
            lambda: self.snapshot.close(),
            self.begin,
            self.walk,
            self.take,
            lambda: self.batch.put(key(), b"v"),
            lambda: store.write(self.batch),
            lambda: self.batch.clear(),
            lambda: self.feed.next_batch(),
            lambda: store.flush(),
            lambda: self.map.compact(),
            lambda: store.delete_range(prefix=b"1"),
            lambda: store.pop_first(),
            lambda: store.count(),
            lambda: store.properties(),
            lambda: asyncio.run(self.tasks(chance, key)),
            lambda: store.transact(lambda transaction: transaction.put(key(), b"t"), kind="optimistic"),
            lambda: store.drop_keyspace("other"),
            lambda: store.keyspace("other").put(b"k", b"v"),
            lambda: store.close() if chance.random() < 0.03 else gc.collect(),
        ]
        for _ in range(CALLS):
            try:
                chance.choice(calls)()
            except situ.Error as error:
                self.found.add(type(error))
            except BaseException as error:
                self.wrong.append(error)


@pytest.mark.parametrize("seed", range(4))
def test_a_storm(path, seed):
    storm = Storm(path)
    threads = [threading.Thread(target=storm.work, args=(seed * THREADS + number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storm.wrong == [] and situ.InvalidError in storm.found
    del storm, threads, thread
    gc.collect()
    with situ.open(path) as store:
        assert store.verify()["is_sound"]
