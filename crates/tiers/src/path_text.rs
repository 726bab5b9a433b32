//! Paths as lines of text, for DISKS and for messages.
//!
//! A path is written as it is if it is UTF-8 without a newline or a carriage return. Otherwise `escaped:` comes first.
//! Then `%`, and each byte that is not a printable ASCII character, are written as `%` and two hexadecimal digits. An
//! absolute path begins with `/`, so no two paths give one text, and each text gives its path back.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const ESCAPED: &str = "escaped:";
/// A line that ends with a carriage return is read without it.
pub(crate) const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// Returns an absolute path as a line.
pub(crate) fn line_of(path: &Path) -> String {
    if let Some(text) = path.to_str()
        && !text.contains(LINE_ENDS)
        && !text.starts_with(ESCAPED)
    {
        return text.to_owned();
    }
    let mut line = ESCAPED.to_owned();
    for byte in path.as_os_str().as_bytes() {
        if (b' '..=b'~').contains(byte) && *byte != b'%' {
            line.push(char::from(*byte));
        } else {
            let _ = write!(line, "%{byte:02X}");
        }
    }
    line
}

/// Returns the path of a line; text that is no escape stands for itself.
pub(crate) fn path_of(line: &str) -> PathBuf {
    let Some(escaped) = line.strip_prefix(ESCAPED) else { return PathBuf::from(line) };
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Returns true if two lines lead to one directory, file or device.
pub(crate) fn is_one(a: &str, b: &str) -> bool {
    let identity = |line: &str| {
        let meta = fs::metadata(path_of(line)).ok()?;
        // A device may have several nodes.
        let is_device = meta.file_type().is_block_device() || meta.file_type().is_char_device();
        Some(if is_device { (meta.rdev(), None) } else { (meta.dev(), Some(meta.ino())) })
    };
    a == b || identity(a).is_some_and(|a| Some(a) == identity(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_path_comes_back_from_its_line_and_no_two_have_the_same() {
        let names: [&[u8]; 10] = [
            b"/mnt/fast",
            b"/a b%41",
            b"/x\ny",
            b"/x\r",
            b"/x y",
            b"/h\xff",
            b"/h\xfe",
            b"/h\xef\xbf\xbd",
            b"/%\xff%41\n",
            "/\u{e9}".as_bytes(),
        ];
        let paths = names.map(|name| PathBuf::from(OsStr::from_bytes(name)));
        let lines = paths.each_ref().map(|path| line_of(path));
        for (at, (path, line)) in paths.iter().zip(&lines).enumerate() {
            assert_eq!(&path_of(line), path, "{line}");
            assert!(!line.contains('\n') && !lines[..at].contains(line), "{line}");
        }
        assert_eq!((&*lines[0], &*lines[1]), ("/mnt/fast", "/a b%41"));
        assert_eq!(lines[2], "escaped:/x%0Ay");
    }

    #[test]
    fn a_line_that_nobody_wrote_is_a_path_too() {
        for line in ["escaped:", "escaped:%", "escaped:%4", "escaped:/%zz", "escaped:/%\u{e9}", ""] {
            let _ = path_of(line);
        }
        assert_eq!(path_of("escaped:/%zz%"), PathBuf::from("/%zz%"));
    }
}
