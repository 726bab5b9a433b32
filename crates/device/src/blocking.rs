//! One operation on a file or block device, done before the call returns.

use crate::buffer::zeros;
use crate::target::{Kind, Target};
use crate::{Buffer, Op};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::io::{self, IoSlice};

/// `BLKDISCARD` and `BLKZEROOUT` of `linux/fs.h`: both take the address of two `u64`, offset and length.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);

pub(crate) fn run(target: &Target, op: Op, buffer: &mut Buffer) -> io::Result<()> {
    match op {
        Op::Read { offset } => read(target, buffer, offset),
        Op::Write { offset, durable } => write(target, buffer, offset, durable),
        Op::Flush => flush(target),
        Op::Discard { offset, bytes } => discard(target, offset, bytes),
        Op::Zero { offset, bytes } => zero(target, offset, bytes),
    }
}

fn read(target: &Target, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(&*target.file, &mut buffer[done..], offset + done as u64) {
            Ok(count) => match target.whole_units(count) {
                0 => return Err(ended_early(offset, buffer.len() as u64, (done + count) as u64)),
                count => done += count,
            },
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the error of a transfer that the device stopped serving before its end: the file has shrunk, or the disk
/// has.
pub(crate) fn ended_early(offset: u64, wanted: u64, done: u64) -> io::Error {
    let why = format!(
        "the device ended within a transfer: {done} of {wanted} bytes at offset {offset}; it is shorter than when it was opened"
    );
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

/// Writes a buffer. The disk makes a durable write durable by itself (force unit access). It is not a write and a flush
/// of all that others have written meanwhile. Without a volatile cache, it is a plain write.
fn write(target: &Target, buffer: &[u8], offset: u64, durable: bool) -> io::Result<()> {
    target.check_whole()?;
    let forced = durable && target.geometry.volatile_write_cache;
    let mut done = 0;
    while done < buffer.len() {
        let (rest, at) = (&buffer[done..], offset + done as u64);
        let written = if forced {
            pwritev2(&*target.file, &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC)
        } else {
            pwrite(&*target.file, rest, at)
        };
        match written {
            Ok(count) => match target.whole_units(count) {
                0 => return Err(ended_early(offset, buffer.len() as u64, (done + count) as u64)),
                count => done += count,
            },
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn flush(target: &Target) -> io::Result<()> {
    target.check_whole()?;
    if target.geometry.volatile_write_cache { fdatasync(&*target.file).map_err(io::Error::from) } else { Ok(()) }
}

pub(crate) fn discard(target: &Target, offset: u64, bytes: u64) -> io::Result<()> {
    target.check_discard()?;
    match target.kind {
        Kind::RegularFile => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(&*target.file, flags, offset, bytes)?)
        }
        Kind::BlockDevice => range_ioctl::<BLKDISCARD>(target, offset, bytes),
    }
}

/// Zeros in a file are written, not promised. A range that the file system only marks as unwritten changes the metadata
/// when it is written later. The log area, the user of this call, would pay for that with every page. A sparse file
/// keeps its holes only by [`Op::Discard`]. A block device has commands of its own for it; the kernel writes zeros
/// where the disk has none.
fn zero(target: &Target, offset: u64, bytes: u64) -> io::Result<()> {
    if target.kind == Kind::BlockDevice {
        match range_ioctl::<BLKZEROOUT>(target, offset, bytes) {
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::OPNOTSUPP | Errno::NOTTY)) => {}
            other => return other,
        }
    }
    let zeros = zeros();
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(zeros.len() as u64) as usize;
        write(target, &zeros[..count], offset + done, false)?;
        done += count as u64;
    }
    Ok(())
}

fn range_ioctl<const OPCODE: Opcode>(target: &Target, offset: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: both operations take the address of two u64 and only read them. The file is a block device's, and what
    // they change is on the disk, not in this process's memory.
    unsafe { ioctl(&*target.file, Setter::<OPCODE, [u64; 2]>::new([offset, bytes]))? };
    Ok(())
}
