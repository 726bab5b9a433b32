//! The operations on files, carried out by the caller's session.
//!
//! Requests about one writer run in the order in which they came. All others run at once, on any of the pool's threads.
//! `Renew` is answered on the reader thread, and every frame of the connection that took the lease renews it. So an
//! owner whose disk is slow does not lose its lease, also while its requests wait for credit. While a request keeps the
//! reader thread, the janitor renews the lease in its place, and the connection does not count as silent. A short write
//! of pages that need not be durable runs there, too, if the connection has no other request under way: handing it over
//! takes longer than the write. One that takes long sends those after it to the pool.

use super::service::{Caller, Service, answer, finish};
use crate::error::CallError;
use crate::fields::Bytes;
use crate::files::{Attached, OpenedFile, OpenedPages};
use crate::message::*;
use crate::peer::Reply;
use situ_base::bytes::Fields;
use situ_storage::Space;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Names of one answer to `List`.
const NAMES_MAX: usize = 4096;
/// Writes up to this length may run on the reader thread.
const QUICK_BYTES_MAX: usize = 64 << 10;
/// The time beyond a term for which a client is kept waiting for the lease of a silent owner.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// See the module's page.
pub(super) struct FileService;

impl Service for FileService {
    fn operations(&self) -> &'static [Operation] {
        use Operation::*;
        &[
            Lock,
            Renew,
            Unlock,
            List,
            Stat,
            GetSpace,
            GetLogRoom,
            GetGeometry,
            GetTroubles,
            GetFailure,
            Tidy,
            Create,
            Append,
            WriterSync,
            WriterFlush,
            WriterFinish,
            WriterDrop,
            Resume,
            Open,
            Read,
            Prefetch,
            Close,
            Keep,
            CreatePages,
            OpenPages,
            WritePages,
            SyncPages,
            ReadPages,
            PatchPages,
            Replace,
            Rename,
            Remove,
            SyncNames,
        ]
    }

    fn request(&self, caller: &Arc<Caller>, operation: Operation, payload: Vec<u8>, reply: Reply) {
        if operation == Operation::Renew {
            return finish(reply, run(caller, operation, &payload));
        }
        let writer = writer_of(operation, &payload);
        let is_quick = is_quick(caller, operation, &payload);
        let for_job = Arc::clone(caller);
        let job = move || {
            // The caller does not wait any more: the client asks again, or has given up.
            if !reply.is_expired() {
                finish(reply, run(&for_job, operation, &payload));
            }
        };
        match writer {
            Some(writer) => caller.later_in_turn(writer, Box::new(job)),
            None if is_quick => {
                if let Err(job) = caller.lane.run_here(job) {
                    caller.later(job);
                }
            }
            None => caller.later(job),
        }
    }

    fn gone(&self, caller: &Arc<Caller>) {
        if let Ok(files) = caller.files() {
            files.leave();
        }
    }
}

/// The writer that a request is about. Its number stands behind the token, or behind the token and the volume.
fn writer_of(operation: Operation, payload: &[u8]) -> Option<u64> {
    use Operation::{Append, Create, Resume, WriterDrop, WriterFinish, WriterFlush, WriterSync};
    let at = match operation {
        Append | WriterSync | WriterFlush | WriterFinish | WriterDrop => 8,
        Create | Resume => 12,
        _ => return None,
    };
    Fields(payload.get(at..)?).u64("writer").ok()
}

/// Returns true if it writes few pages that the system only takes into memory. The file's number stands behind the
/// token.
fn is_quick(caller: &Caller, operation: Operation, payload: &[u8]) -> bool {
    let durable_at = match operation {
        Operation::WritePages => 24,
        Operation::PatchPages => 21,
        _ => return false,
    };
    let is_short = payload.len() <= QUICK_BYTES_MAX && payload.get(durable_at) == Some(&0);
    let number = payload.get(8..).and_then(|rest| rest.first_chunk::<8>());
    match (is_short, number, caller.files()) {
        (true, Some(number), Ok(files)) => files.takes_pages_at_once(u64::from_le_bytes(*number)),
        _ => false,
    }
}

fn run(caller: &Caller, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
    let files = caller.files()?;
    match operation {
        Operation::Lock | Operation::Renew | Operation::Unlock => lease(caller, files, operation, payload),
        Operation::List
        | Operation::Stat
        | Operation::GetSpace
        | Operation::GetLogRoom
        | Operation::GetGeometry
        | Operation::GetTroubles
        | Operation::GetFailure
        | Operation::Tidy => volume(files, operation, payload),
        Operation::Replace | Operation::Rename | Operation::Remove | Operation::SyncNames => {
            names(files, operation, payload)
        }
        Operation::Open | Operation::Read | Operation::Prefetch | Operation::Close | Operation::Keep => {
            reading(files, operation, payload, caller.peer.payload_bytes_max())
        }
        Operation::CreatePages
        | Operation::OpenPages
        | Operation::WritePages
        | Operation::SyncPages
        | Operation::ReadPages
        | Operation::PatchPages => pages(files, operation, payload, caller.peer.payload_bytes_max()),
        _ => writing(files, operation, payload),
    }
}

/// A client's store lies on one volume of the node.
fn check_volume(volume: u32) -> Result<(), CallError> {
    match volume {
        0 => Ok(()),
        other => Err(CallError::Unsupported(format!("the node has no volume {other} of this store"))),
    }
}

fn lease(caller: &Caller, files: &Attached, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
    let ttl_ms = u32::try_from(files.term().as_millis()).unwrap_or(u32::MAX);
    match operation {
        Operation::Lock => answer(payload, |asked: Lock| {
            check_volume(asked.volume)?;
            let token = files.lock(files.term() + LOCK_PATIENCE)?;
            caller.token.store(token, Ordering::Relaxed);
            Ok(Lease { token, ttl_ms })
        }),
        Operation::Renew => answer(payload, |asked: Renew| {
            files.renew(asked.token)?;
            caller.token.store(asked.token, Ordering::Relaxed);
            Ok(Lease { token: asked.token, ttl_ms })
        }),
        _ => answer(payload, |asked: Unlock| {
            files.unlock(asked.token);
            Ok(Done {})
        }),
    }
}

fn volume(files: &Attached, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
    let volume = files.volume();
    match operation {
        Operation::List => answer(payload, |asked: List| {
            check_volume(asked.volume)?;
            let (found, more) = files.list(asked.after, NAMES_MAX)?;
            Ok(Listing { files: found.into_iter().map(|file| (file.name, file.bytes)).collect(), more })
        }),
        Operation::Stat => answer(payload, |asked: Stat| {
            check_volume(asked.volume)?;
            Ok(Found { bytes: files.stat(asked.name)? })
        }),
        Operation::GetSpace => answer(payload, |asked: GetSpace| {
            check_volume(asked.volume)?;
            let Space { logical_total, logical_used, physical_used, .. } = volume.space();
            Ok(Room { logical_total, logical_used, physical_used })
        }),
        Operation::GetLogRoom => answer(payload, |asked: GetLogRoom| {
            check_volume(asked.volume)?;
            let room = volume.log_room();
            Ok(LogRoom {
                total_and_used: room.map(|room| (room.logical_total, room.logical_used)),
                physical_used: room.and_then(|room| room.physical_used),
            })
        }),
        Operation::GetGeometry => answer(payload, |asked: GetGeometry| {
            check_volume(asked.volume)?;
            Ok(geometry(&**volume))
        }),
        Operation::GetTroubles => answer(payload, |asked: GetTroubles| {
            check_volume(asked.volume)?;
            Ok(Troubles { troubles: volume.troubles() })
        }),
        Operation::GetFailure => answer(payload, |asked: GetFailure| {
            check_volume(asked.volume)?;
            Ok(Failure { error: volume.failure().map(|error| Bytes(CallError::from(error).encode())) })
        }),
        _ => answer(payload, |asked: Tidy| {
            check_volume(asked.volume)?;
            Ok(Tidied { more: files.tidy(asked.token)? })
        }),
    }
}

fn geometry(volume: &dyn situ_storage::Volume) -> GeometryAnswer {
    let geometry = volume.geometry();
    let known = geometry.is_some();
    let geometry = geometry.unwrap_or(situ_storage::Geometry {
        block_bytes: 0,
        atomic_write_bytes: 0,
        max_transfer_bytes: 0,
        volatile_write_cache: false,
        discard_bytes: 0,
        discard_zeroes: false,
    });
    GeometryAnswer {
        known,
        block_bytes: geometry.block_bytes,
        atomic_write_bytes: geometry.atomic_write_bytes,
        max_transfer_bytes: geometry.max_transfer_bytes,
        volatile_write_cache: geometry.volatile_write_cache,
        discard_bytes: geometry.discard_bytes,
        discard_zeroes: geometry.discard_zeroes,
    }
}

fn names(files: &Attached, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
    match operation {
        Operation::Replace => answer(payload, |asked: Replace| {
            check_volume(asked.volume)?;
            files.replace(asked.token, asked.name, &asked.contents.0)?;
            Ok(Done {})
        }),
        Operation::Rename => answer(payload, |asked: Rename| {
            check_volume(asked.volume)?;
            files.rename(asked.token, asked.from, asked.to)?;
            Ok(Done {})
        }),
        Operation::Remove => answer(payload, |asked: Remove| {
            check_volume(asked.volume)?;
            files.remove(asked.token, asked.name)?;
            Ok(Done {})
        }),
        _ => answer(payload, |asked: SyncNames| {
            check_volume(asked.volume)?;
            files.sync_names(asked.token)?;
            Ok(Done {})
        }),
    }
}

/// An answer to the caller has `most` bytes at most.
fn reading(files: &Attached, operation: Operation, payload: &[u8], most: usize) -> Result<Vec<u8>, CallError> {
    match operation {
        Operation::Open => answer(payload, |asked: Open| {
            check_volume(asked.volume)?;
            let OpenedFile { path, bytes } = files.open(asked.handle, asked.name)?;
            Ok(Opened { bytes, writes_wait: false, path })
        }),
        Operation::Read => {
            let Read { handle, ranges } = Read::decode(payload)?;
            // The bytes are all of the answer: they are not copied into a message.
            files.read(handle, &ranges, most)
        }
        Operation::Prefetch => answer(payload, |asked: Prefetch| {
            files.prefetch(asked.handle, asked.offset, asked.bytes)?;
            Ok(Done {})
        }),
        Operation::Close => answer(payload, |asked: Close| {
            files.close(asked.handle);
            Ok(Done {})
        }),
        _ => answer(payload, |asked: Keep| {
            files.keep_only(&asked.handles);
            Ok(Done {})
        }),
    }
}

/// An answer to the caller has `most` bytes at most.
fn pages(files: &Attached, operation: Operation, payload: &[u8], most: usize) -> Result<Vec<u8>, CallError> {
    let opened = |OpenedPages { path, pages, writes_wait }| Opened {
        bytes: pages * situ_storage::PAGE_BYTES as u64,
        writes_wait,
        path,
    };
    match operation {
        Operation::CreatePages => answer(payload, |asked: CreatePages| {
            check_volume(asked.volume)?;
            Ok(opened(files.create_pages(asked.token, asked.handle, asked.name, asked.bytes)?))
        }),
        Operation::OpenPages => answer(payload, |asked: OpenPages| {
            check_volume(asked.volume)?;
            Ok(opened(files.open_pages(asked.handle, asked.name)?))
        }),
        Operation::WritePages => answer(payload, |asked: WritePages| {
            files.write_pages(asked.token, asked.handle, asked.first, &asked.data.0, asked.durable)?;
            Ok(Done {})
        }),
        Operation::PatchPages => answer(payload, |asked: PatchPages| {
            files.patch_pages(&asked)?;
            Ok(Done {})
        }),
        Operation::SyncPages => answer(payload, |asked: SyncPages| {
            files.sync_pages(asked.token, asked.handle)?;
            Ok(Done {})
        }),
        _ => {
            let ReadPages { handle, offset, bytes } = ReadPages::decode(payload)?;
            files.read(handle, &[(offset, bytes)], most)
        }
    }
}

fn writing(files: &Attached, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
    match operation {
        Operation::Create => answer(payload, |asked: Create| {
            check_volume(asked.volume)?;
            files.create(asked.token, asked.handle, asked.name, asked.bound)?;
            Ok(begun(files, asked.name, 0))
        }),
        Operation::Resume => answer(payload, |asked: Resume| {
            check_volume(asked.volume)?;
            files.resume(asked.token, asked.handle, asked.name, asked.written)?;
            Ok(begun(files, asked.name, asked.written))
        }),
        Operation::Append => answer(payload, |asked: Append| {
            files.append(asked.token, asked.handle, asked.offset, &asked.data.0)?;
            Ok(Done {})
        }),
        Operation::WriterSync => answer(payload, |asked: WriterSync| {
            files.sync(asked.token, asked.handle, asked.written, true)?;
            Ok(Done {})
        }),
        Operation::WriterFlush => answer(payload, |asked: WriterFlush| {
            files.sync(asked.token, asked.handle, asked.written, false)?;
            Ok(Done {})
        }),
        Operation::WriterFinish => answer(payload, |asked: WriterFinish| {
            files.finish(asked.token, asked.handle, asked.written)?;
            Ok(Done {})
        }),
        _ => answer(payload, |asked: WriterDrop| {
            files.forget(asked.handle);
            Ok(Done {})
        }),
    }
}

fn begun(files: &Attached, name: situ_storage::FileName, bytes: u64) -> Opened {
    Opened { bytes, writes_wait: false, path: format!("{}/{name}", files.volume().location()) }
}
