#!/usr/bin/env python3
"""Runs the list of operations with a Python client, and prints a line for each: its name, a tab, and its result.

    drive.py pymemcache|pylibmc|pylibmc-binary|python-memcached|aiomcache HOST PORT

`scripts/clients/run.py` has the list and the form of the lines. An adapter gives each client the same methods. The methods that it
lacks are operations that the client does not offer. If the first operation fails, the rest is not run.
"""

import asyncio
import importlib.metadata
import os
import sys
import threading
import time

TIMEOUT_S = 20
OVER_1_MB = 2_000_000


class Pymemcache:
    package, protocol, types = "pymemcache", "text", [7, "text", [1, {"two": 2.0}]]

    def __init__(self, host, port):
        from pymemcache import Client, PooledClient, serde

        options = {"serde": serde.pickle_serde, "timeout": TIMEOUT_S, "default_noreply": False}
        self.client = PooledClient((host, port), **options)
        if hasattr(Client, "gat"):
            single = Client((host, port), **options)
            self.gat = lambda key, expire: single.gat(key, expire)
        for name in ("set", "get", "add", "replace", "append", "prepend", "gets", "cas", "incr", "decr", "delete", "touch",
                     "flush_all", "get_many", "version", "stats"):
            setattr(self, name, getattr(self.client, name))

    def set_many(self, items):
        return self.client.set_many(items) == []

    def share(self):
        return self


class Pylibmc:
    package, protocol, types, binary = "pylibmc", "text", [7, "text", [1, {"two": 2.0}]], False

    def __init__(self, host, port):
        import pylibmc

        # The timeouts for sending and receiving are in microseconds.
        timeouts = {"connect_timeout": TIMEOUT_S * 1000, "_poll_timeout": TIMEOUT_S * 1000}
        client = pylibmc.Client([f"{host}:{port}"], binary=self.binary, behaviors={"cas": True, "tcp_nodelay": True, **timeouts})
        self.pool = pylibmc.ThreadMappedPool(client)
        for name in ("set", "get", "add", "replace", "append", "prepend", "gets", "cas", "incr", "decr", "delete", "touch", "flush_all"):
            setattr(self, name, getattr(client, name))
        self.get_many = client.get_multi
        self.set_many = lambda items: client.set_multi(items) == []
        self.stats = lambda: client.get_stats()[0][1]

    def share(self):
        pool = self.pool

        class Shared:
            def set(self, key, value):
                with pool.reserve() as client:
                    return client.set(key, value)

            def get(self, key):
                with pool.reserve() as client:
                    return client.get(key)

        return Shared()


class PylibmcBinary(Pylibmc):
    protocol, binary = "binary", True


class PythonMemcached:
    package, protocol, types = "python-memcached", "text", [7, "text", [1, {"two": 2.0}]]

    def __init__(self, host, port):
        import memcache

        self.client = memcache.Client([f"{host}:{port}"], cache_cas=True, socket_timeout=TIMEOUT_S, server_max_value_length=64 << 20)
        for name in ("set", "get", "add", "replace", "append", "prepend", "incr", "decr", "delete", "touch"):
            setattr(self, name, getattr(self.client, name))
        self.get_many = self.client.get_multi
        self.set_many = lambda items: self.client.set_multi(items) == []
        self.gets = lambda key: (self.client.gets(key), None)
        # The client keeps the cas ids that it has seen.
        self.cas = lambda key, value, _: self.client.cas(key, value)
        self.stats = lambda: self.client.get_stats()[0][1]

    def flush_all(self):
        # It returns nothing.
        self.client.flush_all()
        return True

    def share(self):
        return self


class Aiomcache:
    package, protocol, types = "aiomcache", "text", [7, "text"]

    def __init__(self, host, port):
        import aiomcache

        async def take(value, flags):
            return int(value) if flags == 2 else value.decode() if flags == 1 else value

        async def give(value):
            return (str(value).encode(), 2) if isinstance(value, int) else (value.encode(), 1)

        self.loop = asyncio.new_event_loop()

        async def connect():
            return aiomcache.FlagClient(host, port, get_flag_handler=take, set_flag_handler=give)

        self.client = self.loop.run_until_complete(connect())

    def call(self, name, *arguments):
        return self.loop.run_until_complete(asyncio.wait_for(getattr(self.client, name)(*arguments), TIMEOUT_S))

    def set(self, key, value, expire=0):
        return self.call("set", key.encode(), value, expire)

    def get(self, key):
        return self.call("get", key.encode())

    def add(self, key, value):
        return self.call("add", key.encode(), value)

    def replace(self, key, value):
        return self.call("replace", key.encode(), value)

    def append(self, key, value):
        return self.call("append", key.encode(), value)

    def prepend(self, key, value):
        return self.call("prepend", key.encode(), value)

    def gets(self, key):
        return self.call("gets", key.encode())

    def cas(self, key, value, token):
        return self.call("cas", key.encode(), value, token)

    def incr(self, key, by):
        return self.call("incr", key.encode(), by)

    def decr(self, key, by):
        return self.call("decr", key.encode(), by)

    def delete(self, key):
        return self.call("delete", key.encode())

    def touch(self, key, expire):
        return self.call("touch", key.encode(), expire)

    def get_many(self, keys):
        values = self.call("multi_get", *(key.encode() for key in keys))
        return {key: value for key, value in zip(keys, values) if value is not None}

    def set_many(self, items):
        return all(self.set(key, value) for key, value in items.items())

    def stats(self):
        return self.call("stats")

    def version(self):
        return self.call("version")

    def flush_all(self):
        self.call("flush_all")
        return True

    def share(self):
        return None

    def concurrent(self):
        async def task(number):
            for step in range(200):
                key, value = f"task{number}-{step}".encode(), f"{number}:{step}"
                expect(await self.client.set(key, value), True)
                expect(await self.client.get(key), value)

        async def both():
            await asyncio.gather(task(1), task(2))

        self.loop.run_until_complete(both())


CLIENTS = {
    "pymemcache": Pymemcache,
    "pylibmc": Pylibmc,
    "pylibmc-binary": PylibmcBinary,
    "python-memcached": PythonMemcached,
    "aiomcache": Aiomcache,
}


class NotOffered(Exception):
    pass


def short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def expect(found, wanted):
    # Some clients answer 1 and 0. What is nothing must be nothing.
    if wanted is True or wanted is False:
        good = bool(found) is wanted
    else:
        good = type(found) is type(wanted) and found == wanted
    if not good:
        raise AssertionError(f"returned {short(found)}, expected {short(wanted)}")


def refused(function):
    """Checks that a call stores nothing. Some clients raise an exception then, others return False."""
    try:
        stored = function()
    except Exception:
        return
    expect(stored, False)


def operations(client):
    """Yields the name of each operation with its function."""

    def need(*methods):
        for method in methods:
            if not hasattr(client, method):
                raise NotOffered

    def op_set():
        expect(client.set("key", "value"), True)

    def op_get():
        expect(client.get("key"), "value")

    def op_get_missing():
        expect(client.get("missing"), None)

    def op_types():
        for value in client.types:
            expect(client.set("typed", value), True)
            expect(client.get("typed"), value)

    def op_add():
        expect(client.add("added", "one"), True)
        expect(client.get("added"), "one")

    def op_add_existing():
        expect(client.add("added", "two"), False)
        expect(client.get("added"), "one")

    def op_replace():
        expect(client.replace("added", "three"), True)
        expect(client.get("added"), "three")
        refused(lambda: client.replace("missing", "three"))
        expect(client.get("missing"), None)

    def op_append():
        expect(client.set("joined", "b"), True)
        expect(client.append("joined", "c"), True)
        expect(client.get("joined"), "bc")

    def op_prepend():
        expect(client.prepend("joined", "a"), True)
        expect(client.get("joined"), "abc")

    def op_cas():
        need("gets", "cas")
        client.set("swapped", "one")
        value, token = client.gets("swapped")
        expect(value, "one")
        expect(client.cas("swapped", "two", token), True)
        expect(client.get("swapped"), "two")

    def op_cas_conflict():
        need("gets", "cas")
        _, token = client.gets("swapped")
        expect(client.set("swapped", "three"), True)
        expect(client.cas("swapped", "four", token), False)
        expect(client.get("swapped"), "three")

    def op_incr():
        expect(client.set("count", "10"), True)
        expect(client.incr("count", 5), 15)

    def op_decr():
        expect(client.decr("count", 6), 9)
        expect(client.get("count").strip(), "9")

    def op_delete():
        expect(client.delete("key"), True)
        expect(client.get("key"), None)

    def op_delete_missing():
        expect(client.delete("key"), False)

    def op_many():
        items = {f"many{number}": f"value{number}" for number in range(100)}
        expect(client.set_many(items), True)
        expect(client.get_many([*items, "missing"]), items)

    def op_touch():
        need("touch")
        expect(client.set("touched", "value", 100), True)
        expect(client.touch("touched", 1), True)
        expect(client.get("touched"), "value")
        time.sleep(2.5)
        expect(client.get("touched"), None)
        expect(client.touch("touched", 1), False)

    def op_gat():
        need("gat")
        expect(client.set("gotten", "value", 100), True)
        expect(client.gat("gotten", 1), "value")
        time.sleep(2.5)
        expect(client.get("gotten"), None)

    def op_expiry():
        expect(client.set("short", "value", 1), True)
        expect(client.set("long", "value", 100), True)
        time.sleep(2.5)
        expect(client.get("short"), None)
        expect(client.get("long"), "value")

    def op_900_kb():
        value = os.urandom(450_000).hex()
        expect(client.set("large", value), True)
        expect(client.get("large"), value)

    def op_over_1_mb():
        value = os.urandom(OVER_1_MB // 2).hex()
        refused(lambda: client.set("over", value))

    def op_after():
        expect(client.set("after", "value"), True)
        expect(client.get("after"), "value")
        expect(client.get("over"), None)

    def op_long_key():
        expect(client.set("k" * 250, "value"), True)
        expect(client.get("k" * 250), "value")

    def op_stats():
        need("stats")
        stats = {text(name): text(value) for name, value in client.stats().items()}
        if int(stats["curr_items"]) < 1 or int(stats["pid"]) < 1:
            raise AssertionError(f"curr_items {stats['curr_items']}, pid {stats['pid']}")

    def op_version():
        need("version")
        version = text(client.version())
        if not version[:1].isdigit():
            raise AssertionError(f"returned {version!r}")

    def op_row():
        for step in range(1000):
            expect(client.set(f"row{step}", f"value{step}"), True)
            expect(client.get(f"row{step}"), f"value{step}")

    def op_concurrent():
        shared = client.share()
        if shared is None:
            return client.concurrent()
        failures = []

        def work(number):
            try:
                for step in range(200):
                    expect(shared.set(f"thread{number}-{step}", f"{number}:{step}"), True)
                    expect(shared.get(f"thread{number}-{step}"), f"{number}:{step}")
            except Exception as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def op_flush_all():
        expect(client.set("flushed", "value"), True)
        expect(client.flush_all(), True)
        expect(client.get("flushed"), None)
        expect(client.set("flushed", "again"), True)
        expect(client.get("flushed"), "again")

    return [
        ("set", op_set),
        ("get", op_get),
        ("get missing", op_get_missing),
        ("types", op_types),
        ("add", op_add),
        ("add existing", op_add_existing),
        ("replace", op_replace),
        ("append", op_append),
        ("prepend", op_prepend),
        ("cas", op_cas),
        ("cas conflict", op_cas_conflict),
        ("incr", op_incr),
        ("decr", op_decr),
        ("delete", op_delete),
        ("delete missing", op_delete_missing),
        ("many keys", op_many),
        ("touch", op_touch),
        ("gat", op_gat),
        ("expiry", op_expiry),
        ("900 KB", op_900_kb),
        ("over 1 MB", op_over_1_mb),
        ("after over 1 MB", op_after),
        ("key of 250 bytes", op_long_key),
        ("stats", op_stats),
        ("version", op_version),
        ("1000 in a row", op_row),
        ("two at once", op_concurrent),
        ("flush_all", op_flush_all),
    ]


def text(value):
    return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)


def main():
    _, name, host, port = sys.argv
    adapter = CLIENTS[name]
    print("client", importlib.metadata.version(adapter.package), adapter.protocol, sep="\t", flush=True)
    client = adapter(host, int(port))
    for position, (operation, function) in enumerate(operations(client)):
        try:
            function()
            result = "ok"
        except NotOffered:
            result = "not offered"
        except Exception as failure:
            result = f"failed: {type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
        print(operation, result, sep="\t", flush=True)
        if position == 0 and result != "ok":
            break


if __name__ == "__main__":
    main()
