//! Reading and writing of files packed by gzip or Zstandard.
//!
//! `load` recognises a packed file or standard input by its first bytes, not by its name. If the name ends in `.gz` or
//! `.zst` and the first bytes disagree, the file was cut or renamed, and `load` refuses it. `dump` packs a file if its
//! name has such an ending.
//!
//! Offsets count unpacked bytes. A packed file cannot be positioned, so resuming at an offset unpacks everything before
//! it.

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes at the start of a file that identify its packing, at most.
const MAGIC_BYTES: usize = 4;

/// The packing of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// RFC 1952, with one or more members.
    Gzip,
    /// RFC 8878, with one or more frames.
    Zstd,
}

impl Packing {
    /// Returns the packing that a file name indicates.
    pub(crate) fn of_name(path: &Path) -> Option<Packing> {
        match super::extension(path).as_str() {
            "gz" => Some(Packing::Gzip),
            "zst" => Some(Packing::Zstd),
            _ => None,
        }
    }

    /// Returns the packing of a file that begins with these bytes.
    pub(crate) fn of_head(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "Zstandard",
        }
    }
}

/// Returns the path without the ending that indicates its packing.
pub(crate) fn unpacked_name(path: &Path) -> &Path {
    match (Packing::of_name(path), path.file_stem()) {
        (Some(_), Some(stem)) => Path::new(stem),
        _ => path,
    }
}

/// The source of a load's bytes. Only files can be positioned.
enum Source {
    File(File),
    Stdin(io::Stdin),
    /// Bytes in memory, returned in small reads as from a pipe.
    #[cfg(any(test, feature = "fuzzing"))]
    Pieces(io::Cursor<Vec<u8>>, usize),
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file) => file.read(into),
            Source::Stdin(stdin) => stdin.lock().read(into),
            #[cfg(any(test, feature = "fuzzing"))]
            Source::Pieces(bytes, at_most) => bytes.take(*at_most as u64).read(into),
        }
    }
}

impl Source {
    fn seek(&mut self, offset: u64) -> io::Result<()> {
        match self {
            Source::File(file) => file.seek(SeekFrom::Start(offset)).map(drop),
            Source::Stdin(_) => Err(io::Error::other("standard input cannot be positioned")),
            #[cfg(any(test, feature = "fuzzing"))]
            Source::Pieces(bytes, _) => bytes.seek(SeekFrom::Start(offset)).map(drop),
        }
    }
}

/// A source whose first bytes may have been read ahead to identify its packing.
struct Peeked {
    front: Vec<u8>,
    source: Source,
}

impl Read for Peeked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.front.is_empty() {
            return self.source.read(into);
        }
        let read = self.front.as_slice().read(into)?;
        self.front.drain(..read);
        Ok(read)
    }
}

/// The unpacked bytes of a file or a pipe.
pub(crate) struct Input {
    reader: Reader,
    promised: Option<Packing>,
}

enum Reader {
    /// Nothing is read before the first use, because standard input may block for a long time.
    New(Peeked),
    Plain(Peeked),
    Gzip(Box<MultiGzDecoder<Peeked>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<Peeked>>>),
    /// The decoder could not be made.
    Failed,
}

impl Input {
    /// Makes the input of a file or a named pipe. `promised` is the packing that its name indicates.
    pub(crate) fn file(file: File, promised: Option<Packing>) -> Input {
        Input::of(Source::File(file), promised)
    }

    pub(crate) fn stdin() -> Input {
        Input::of(Source::Stdin(io::stdin()), None)
    }

    /// Makes an input of plain bytes that returns at most `at_most` of them at a time.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn pieces(bytes: &[u8], at_most: usize) -> Input {
        let source = Source::Pieces(io::Cursor::new(bytes.to_vec()), at_most);
        Input { reader: Reader::Plain(Peeked { front: Vec::new(), source }), promised: None }
    }

    fn of(source: Source, promised: Option<Packing>) -> Input {
        Input { reader: Reader::New(Peeked { front: Vec::new(), source }), promised }
    }

    /// Reads the first bytes and chooses the decoder.
    fn look(&mut self) -> io::Result<()> {
        if !matches!(self.reader, Reader::New(_)) {
            return Ok(());
        }
        let Reader::New(mut peeked) = std::mem::replace(&mut self.reader, Reader::Failed) else { return Ok(()) };
        let mut front = Vec::new();
        peeked.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut front)?;
        let found = Packing::of_head(&front);
        peeked.front = front;
        if let (Some(promised), false) = (self.promised, self.promised == found) {
            return Err(io::Error::other(format!(
                "its name says that {} packed it, but its first bytes differ; correct the name, or restore the file",
                promised.name()
            )));
        }
        self.reader = match found {
            None => Reader::Plain(peeked),
            Some(Packing::Gzip) => Reader::Gzip(Box::new(MultiGzDecoder::new(peeked))),
            Some(Packing::Zstd) => Reader::Zstd(Box::new(zstd::Decoder::new(peeked)?)),
        };
        Ok(())
    }

    /// Restarts the input at `offset`. For a packed file, all bytes before it are unpacked again.
    ///
    /// # Errors
    /// The input is not a file, or it cannot be read.
    pub(crate) fn restart_at(self, offset: u64) -> io::Result<Input> {
        let mut source = match self.reader {
            Reader::New(peeked) | Reader::Plain(peeked) => peeked.source,
            Reader::Gzip(decoder) => decoder.into_inner().source,
            Reader::Zstd(decoder) => decoder.finish().into_inner().source,
            Reader::Failed => return Err(io::Error::other("an earlier read has failed")),
        };
        source.seek(0)?;
        let mut input = Input::of(source, self.promised);
        input.look()?;
        match &mut input.reader {
            Reader::Plain(peeked) => {
                peeked.front.clear();
                peeked.source.seek(offset)?;
            }
            _ => {
                io::copy(&mut input.by_ref().take(offset), &mut io::sink())?;
            }
        }
        Ok(input)
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.look()?;
        match &mut self.reader {
            Reader::New(peeked) | Reader::Plain(peeked) => peeked.read(into),
            Reader::Gzip(decoder) => decoder.read(into),
            Reader::Zstd(decoder) => decoder.read(into),
            Reader::Failed => Err(io::Error::other("an earlier read has failed")),
        }
    }
}

/// A writer that packs as the file name indicates, and counts the bytes that it writes.
pub(crate) enum Packer<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Packer<W> {
    pub(crate) fn new(to: W, packing: Option<Packing>) -> io::Result<Packer<W>> {
        Ok(match packing {
            None => Packer::Plain(to),
            Some(Packing::Gzip) => Packer::Gzip(GzEncoder::new(to, flate2::Compression::default())),
            Some(Packing::Zstd) => {
                let mut encoder = zstd::Encoder::new(to, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Packer::Zstd(encoder)
            }
        })
    }

    /// Writes the remaining bytes, and returns the destination.
    pub(crate) fn finish(self) -> io::Result<W> {
        let mut to = match self {
            Packer::Plain(to) => to,
            Packer::Gzip(encoder) => encoder.finish()?,
            Packer::Zstd(encoder) => encoder.finish()?,
        };
        to.flush()?;
        Ok(to)
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Packer::Plain(to) => to.write(bytes),
            Packer::Gzip(encoder) => encoder.write(bytes),
            Packer::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Packer::Plain(to) => to.flush(),
            Packer::Gzip(encoder) => encoder.flush(),
            Packer::Zstd(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(packing: Option<Packing>, bytes: &[u8]) -> Vec<u8> {
        let mut packer = Packer::new(Vec::new(), packing).unwrap();
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn input(bytes: &[u8], promised: Option<Packing>) -> Input {
        Input::of(Source::Pieces(io::Cursor::new(bytes.to_vec()), 3), promised)
    }

    #[test]
    fn packed_bytes_are_read_from_any_offset_and_cut_ones_are_an_error() {
        let text: Vec<u8> = (0..3000).flat_map(|n| format!("{n},").into_bytes()).collect();
        for packing in [None, Some(Packing::Gzip), Some(Packing::Zstd)] {
            let (first, second) = text.split_at(5000);
            // Two members, or two frames, are one file.
            let file = [packed(packing, first), packed(packing, second)].concat();
            let mut found = Vec::new();
            input(&file, packing).read_to_end(&mut found).unwrap();
            assert!(found == text, "{packing:?}");
            for offset in [0, 1, 4999, 5000, text.len()] {
                let mut begun = input(&file, packing);
                begun.read_exact(&mut [0; 7]).unwrap();
                found.clear();
                begun.restart_at(offset as u64).unwrap().read_to_end(&mut found).unwrap();
                assert!(found == text[offset..], "{packing:?} from {offset}");
            }
            if packing.is_some() {
                for cut in [1, 5, file.len() / 2, file.len() - 1] {
                    let read = input(&file[..cut], packing).read_to_end(&mut Vec::new());
                    assert!(read.is_err(), "{packing:?} cut at {cut}");
                }
                let why = input(b"key,value\n", packing).read_to_end(&mut Vec::new()).unwrap_err().to_string();
                assert!(why.contains("its name says"), "{why}");
            }
        }
        assert!(input(b"", Some(Packing::Gzip)).read_to_end(&mut Vec::new()).is_err());
    }
}
