"""The exceptions of a store. Each has the text of the store's error: what happened, where, and what to do."""

from __future__ import annotations

__all__ = [
    "ChangedError",
    "ChangesGoneError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "DeadlockError",
    "DisksError",
    "Error",
    "ExistenceError",
    "FailedError",
    "InvalidError",
    "KeyspaceDroppedError",
    "LimitError",
    "LockTimeoutError",
    "LockedError",
    "NoSpaceError",
    "NoSuchKeyspaceError",
    "PermissionDeniedError",
    "ReadOnlyError",
    "RetryableError",
    "StorageError",
]


class Error(Exception):
    """An operation did not happen."""


class ClosedError(Error):
    """The store is closed."""


class ReadOnlyError(Error):
    """The store is open for reading only."""


class FailedError(Error):
    """The store takes no writes since a write of its log or manifest failed. Reads still work."""


class LockedError(Error):
    """The store is open elsewhere: in another process, or in this one."""


class ExistenceError(Error):
    """There is no store and none may be created, or there is one and a new one was asked for."""


class InvalidError(Error, ValueError):
    """An argument is out of bounds, or the call is not possible now."""


class LimitError(Error):
    """A limit of memory or of locks would be exceeded."""


class NoSuchKeyspaceError(Error, LookupError):
    """The store has no keyspace of this name."""


class KeyspaceDroppedError(Error):
    """The keyspace was dropped while its handle was kept."""


class RetryableError(Error):
    """Another writer was in the way. The transaction may succeed if it is run again from its beginning."""


class ConflictError(RetryableError):
    """Another writer has changed a key that the transaction relies on."""


class DeadlockError(RetryableError):
    """Waiting for a lock would never end. Roll the transaction back."""


class LockTimeoutError(RetryableError):
    """Another transaction kept a key locked for too long."""


class StorageError(Error):
    """The disk, or the data on it, is at fault."""


class CorruptionError(StorageError):
    """Bytes on disk are damaged."""


class NoSpaceError(StorageError):
    """A disk is full. Writes succeed again when there is space."""


class PermissionDeniedError(StorageError):
    """The process lacks a right to a file or a device."""


class DisksError(Error):
    """A disk of the store is missing, or is another store's."""


class ChangesGoneError(Error):
    """The log does not have the changes behind a position. A copy that was kept by them has to be made again."""


class ChangedError(Error):
    """Another process changed a store that is open for reading, faster than it could be read."""
