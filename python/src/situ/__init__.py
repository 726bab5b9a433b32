"""Situ: an ordered, durable key-value store.

    import situ

    with situ.open("people") as store:
        store[b"ada"] = b"1815"
        for name, born in store[b"a":b"b"]:
            print(name, born)

A store is a directory. One process at a time writes to it; any number of its threads do. Keys and values are bytes:
anything with a buffer goes in, `bytes` come out.
"""

from situ import errors
from situ._situ import (
    AsyncEntries,
    Batch,
    Change,
    ChangeBatch,
    ChangeFeed,
    Entries,
    Keyspace,
    Map,
    Reader,
    Snapshot,
    Store,
    Transaction,
    destroy,
    open,
)
from situ.errors import (
    ChangedError,
    ChangesGoneError,
    ClosedError,
    ConflictError,
    CorruptionError,
    DeadlockError,
    DisksError,
    Error,
    ExistenceError,
    FailedError,
    InvalidError,
    KeyspaceDroppedError,
    LimitError,
    LockTimeoutError,
    LockedError,
    NoSpaceError,
    NoSuchKeyspaceError,
    PermissionDeniedError,
    ReadOnlyError,
    RetryableError,
    StorageError,
)

__all__ = [
    "AsyncEntries",
    "Batch",
    "Change",
    "ChangeBatch",
    "ChangeFeed",
    "ChangedError",
    "ChangesGoneError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "DeadlockError",
    "DisksError",
    "Entries",
    "Error",
    "ExistenceError",
    "FailedError",
    "InvalidError",
    "Keyspace",
    "KeyspaceDroppedError",
    "LimitError",
    "LockTimeoutError",
    "LockedError",
    "Map",
    "NoSpaceError",
    "NoSuchKeyspaceError",
    "PermissionDeniedError",
    "ReadOnlyError",
    "Reader",
    "RetryableError",
    "Snapshot",
    "StorageError",
    "Store",
    "Transaction",
    "destroy",
    "errors",
    "open",
]
