"""Futures of asyncio."""

import asyncio
import gc
import threading

import pytest
import situ


def run(main):
    """Runs with the checks of asyncio's debug mode, and a limit against hangs."""
    return asyncio.run(asyncio.wait_for(main(), 60), debug=True)


def test_reads_and_writes(store):
    people = store.keyspace("people")

    async def main():
        assert await people.put_async(b"ada", b"1815") is None
        assert await people.get_async(b"ada") == b"1815"
        assert await people.get_async(b"alan") is None and await people.get_async(b"alan", 5) == 5
        assert await people.multi_get_async([b"x", bytearray(b"ada")]) == [None, b"1815"]
        with store.snapshot() as snapshot:
            await people.delete_async(b"ada", sync=True)
            assert await people.get_async(b"ada") is None
            assert await snapshot.keyspace(people).get_async(b"ada") == b"1815"
            assert await snapshot.keyspace(people).multi_get_async([b"ada"]) == [b"1815"]
        batch = store.batch()
        batch[b"k"] = b"v"
        await store.write_async(batch, sync=True)
        await store.ready_async()
        assert store[b"k"] == b"v"
        return "done"

    assert run(main) == "done"


def test_synced_writes_wake_the_loop(store):
    async def main():
        futures = [store.put_async(b"%04d" % number, b"v" * 100, sync=True) for number in range(500)]
        assert not all(future.done() for future in futures), "a sync takes time, and nothing waits for it"
        await asyncio.gather(*futures)
        assert store.count() == 500

        async def one(number):
            for at in range(20):
                await store.put_async(b"%d/%d" % (number, at), b"v", sync=True)

        await asyncio.gather(*(one(number) for number in range(50)))
        assert store.count() == 1500

    run(main)


def test_reads_of_the_disk_wake_the_loop(path):
    with situ.open(path, cache_bytes=0, compression="none") as store:
        store.update((b"%06d" % number, b"v" * 1000) for number in range(20_000))
        store.flush()

    async def main():
        with situ.open(path, cache_bytes=0) as store:
            values = await asyncio.gather(*(store.get_async(b"%06d" % (17 * number)) for number in range(1000)))
            assert set(values) == {b"v" * 1000}

    run(main)


def test_iteration(store):
    store.update((b"%06d" % number, b"%d" % number) for number in range(2500))
    expected = list(store.items())

    async def main():
        assert [pair async for pair in store.items_async()] == expected
        assert [pair async for pair in store.items_async(reverse=True)] == expected[::-1]
        assert [pair async for pair in store.items_async(start=b"000010", stop=b"000020")] == expected[10:20]
        assert [pair async for pair in store.items_async(prefix=b"x")] == []
        with store.snapshot() as snapshot:
            entries, of_snapshot = store.items_async(), snapshot.items_async()
            first = await entries.__anext__()
            store.delete_range()
            assert [first] + [pair async for pair in entries] == expected
            assert [pair async for pair in of_snapshot] == expected
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await entries.__anext__()
        assert [pair async for pair in store.items_async()] == []

    run(main)


def test_several_tasks_share_an_iterator(store):
    store.update((b"%06d" % number, b"") for number in range(2500))

    async def main():
        entries, seen = store.items_async(), []

        async def walk():
            async for key, _ in entries:
                seen.append(key)
                await asyncio.sleep(0)

        await asyncio.gather(*(walk() for _ in range(5)))
        assert seen == list(store)

    run(main)


@pytest.mark.parametrize("kind", ["pessimistic", "optimistic"])
def test_transactions(store, kind):
    store[b"count"] = b"0"

    async def add():
        while True:
            try:
                async with store.transaction(kind=kind, isolation="read_committed") as transaction:
                    count = int(await transaction.get_for_update_async(b"count"))
                    await asyncio.sleep(0)
                    again = int(await transaction.get_async(b"count"))
                    assert again == count or kind == "optimistic" and again > count
                    transaction[b"count"] = b"%d" % (count + 1)
                return
            except situ.RetryableError:
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(add() for _ in range(30)))
        assert store[b"count"] == b"30"
        with pytest.raises(ZeroDivisionError):
            async with store.transaction(kind=kind) as transaction:
                await transaction.lock_async(b"count")
                transaction[b"count"] = b"-1"
                1 / 0
        assert store[b"count"] == b"30"
        transaction = store.transaction(kind=kind)
        transaction[b"k"] = b"v"
        assert await transaction.commit_async() > 0
        with pytest.raises(situ.InvalidError, match="ended"):
            await transaction.commit_async()
        with pytest.raises(situ.InvalidError):
            store.transaction().items_async()

    run(main)


def test_waits_for_locks_can_be_cancelled(store):
    async def main():
        holder = store.transaction()
        holder.lock(b"k")
        waiter = store.transaction(lock_timeout_ms=300)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiter.lock_async(b"k"), 0.01)
        with pytest.raises(situ.InvalidError, match="another task"):
            waiter[b"x"] = b"y"
        with pytest.raises(situ.InvalidError, match="another task"):
            await waiter.lock_async(b"x")
        waiter.rollback()
        with pytest.raises(situ.InvalidError, match="ended"):
            waiter.commit()
        with pytest.raises(situ.LockTimeoutError):
            async with store.transaction(lock_timeout_ms=30) as waiter:
                await waiter.lock_async(b"k")
        holder.rollback()
        while store.properties()["transactions"]:
            await asyncio.sleep(0.01)
        async with store.transaction(lock_timeout_ms=0) as transaction:
            await transaction.lock_async(b"k")

    run(main)


def test_cancelled_tasks_do_no_harm(store):
    async def main():
        async def put(number):
            await store.put_async(b"%04d" % number, b"v", sync=True)

        for _ in range(5):
            tasks = [asyncio.create_task(put(number)) for number in range(100)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(outcome is None for outcome in outcomes[1::2])
            assert any(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
        await store.put_async(b"last", b"", sync=True)
        assert store.count() == 101, "a write takes place whether it is awaited or not"

        entries = store.items_async()
        future = entries.__anext__()
        future.cancel()
        assert len([pair async for pair in entries]) >= 100

    run(main)


def test_errors_come_from_the_future(path):
    async def main():
        store = situ.open(path)
        with pytest.raises(TypeError):
            store.get_async("text")
        future = store.put_async(b"", b"v")
        with pytest.raises(situ.InvalidError):
            await future
        pending = [store.put_async(b"%d" % number, b"v", sync=True) for number in range(100)]
        store.close()
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, situ.ClosedError) for outcome in outcomes)
        for call in (
            lambda: store.get_async(b"k"),
            lambda: store.put_async(b"k", b"v"),
            lambda: store.multi_get_async([b"k"]),
        ):
            with pytest.raises(situ.ClosedError):
                await call()
        with pytest.raises(situ.ClosedError):
            store.items_async()

    run(main)


def test_there_must_be_a_loop(store):
    for call in (lambda: store.get_async(b"k"), lambda: store.put_async(b"k", b"v")):
        with pytest.raises(RuntimeError, match="loop"):
            call()
    assert store.is_empty(), "nothing has begun"


def test_loops_come_and_go(store):
    async def leave():
        for number in range(100):
            store.put_async(b"%d" % number, b"v", sync=True)

    async def main():
        await asyncio.gather(*(store.put_async(b"%d" % number, b"w", sync=True) for number in range(100)))

    for _ in range(10):
        asyncio.run(leave())
        asyncio.run(main())
    gc.collect()
    assert store.count() == 100


def test_loops_of_several_threads(store):
    failures = []

    async def main(thread):
        async def one(number):
            key = b"%d/%d" % (thread, number)
            await store.put_async(key, key, sync=True)
            assert await store.get_async(key) == key

        for _ in range(5):
            await asyncio.gather(*(one(number) for number in range(50)))

    def work(thread):
        try:
            asyncio.run(main(thread))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and store.count() == 200


def test_a_program_may_end_with_writes_under_way(path):
    import subprocess
    import sys

    program = f"""
import asyncio, situ
store = situ.open({str(path)!r})
async def main():
    for number in range(1000):
        store.put_async(b"%d" % number, b"v", sync=True)
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    with situ.open(path) as store:
        assert store.count() == 1000
