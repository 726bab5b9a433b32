//! Keys, values and numbers as text, both ways.

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::{DecodeError as Base64Error, Engine as _};
use clap::Args;
use serde::ser::{Serialize, SerializeMap, Serializer};
use situ_storage::Error as StorageError;
use std::fmt::{self, Write as _};

pub(crate) use situ_settings::parse_bytes;

/// How keys and values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8 as it is.
    Text,
    /// Two digits a byte.
    Hex,
    /// RFC 4648 with padding.
    Base64,
}

/// The reason why a text stands for no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The fault of the text, in words.
    Malformed(String),
    /// There is no memory for this number of bytes.
    NoMemory(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Malformed(why) => f.write_str(why),
            DecodeError::NoMemory(bytes) => StorageError::out_of_memory(*bytes, "a key or value").fmt(f),
        }
    }
}

/// The options that choose an [`Encoding`].
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct EncodingOptions {
    /// Keys and values, on the command line and in the output, are in hexadecimal
    #[arg(long, conflicts_with = "base64")]
    hex: bool,
    /// Keys and values, on the command line and in the output, are in base64
    #[arg(long)]
    base64: bool,
}

impl EncodingOptions {
    pub(crate) fn encoding(self) -> Encoding {
        match (self.hex, self.base64) {
            (true, _) => Encoding::Hex,
            (_, true) => Encoding::Base64,
            _ => Encoding::Text,
        }
    }
}

impl Encoding {
    /// Returns the bytes that `text` stands for.
    ///
    /// # Errors
    /// The fault of the text; or there is no memory for the bytes.
    pub(crate) fn decode(self, text: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut bytes = Vec::new();
        let bytes_max = match self {
            Encoding::Text => text.len(),
            Encoding::Hex => text.len() / 2,
            Encoding::Base64 => base64::decoded_len_estimate(text.len()),
        };
        bytes.try_reserve_exact(bytes_max).map_err(|_| DecodeError::NoMemory(bytes_max))?;
        match self {
            Encoding::Text => bytes.extend_from_slice(text),
            Encoding::Hex => decode_hex(text, &mut bytes).map_err(DecodeError::Malformed)?,
            Encoding::Base64 => BASE64.decode_vec(text, &mut bytes).map_err(|error| {
                DecodeError::Malformed(match error {
                    Base64Error::InvalidByte(at, _) | Base64Error::InvalidLastSymbol { offset: at, .. } => {
                        format!("not base64 at character {}", at + 1)
                    }
                    Base64Error::InvalidLength(characters) => {
                        format!("not base64: {} do not make whole bytes", plural(characters as u64, "character"))
                    }
                    Base64Error::InvalidPadding => {
                        "not base64: the equals signs at its end are missing or wrong".to_owned()
                    }
                })
            })?,
        }
        Ok(bytes)
    }

    /// `bytes` as a line's part: control characters and bytes that are no UTF-8 are escaped in [`Encoding::Text`].
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Text => escape(bytes),
            _ => String::from_utf8_lossy(&self.encode(bytes)).into_owned(),
        }
    }

    /// Encodes bytes: the opposite of [`decode`](Encoding::decode).
    pub(crate) fn encode(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Encoding::Text => bytes.to_vec(),
            Encoding::Hex => encode_hex(bytes).into_bytes(),
            Encoding::Base64 => BASE64.encode(bytes).into_bytes(),
        }
    }

    /// Returns the suffix of a field's name for this encoding.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Encoding::Text => "",
            Encoding::Hex => "_hex",
            Encoding::Base64 => "_base64",
        }
    }
}

fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn decode_hex(text: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        return Err("not hexadecimal: an odd number of digits".to_owned());
    }
    for (at, [high, low]) in text.as_chunks::<2>().0.iter().enumerate() {
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
            return Err(format!("not hexadecimal at digit {}", 2 * at + 1));
        };
        bytes.push(high << 4 | low);
    }
    Ok(())
}

/// Text on one line, from which the bytes can be read back: `\n`, `\t`, `\r`, `\\` and `\xNN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        let _ = write!(text, "\\x{byte:02x}");
                    }
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// `text` on one line, with nothing in it that a terminal would obey: names that others chose are in messages.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// `bytes` escaped, cut to `columns` with an ellipsis.
pub(crate) fn shorten(bytes: &[u8], columns: usize) -> String {
    // A character has at most four bytes, so this many suffice to fill the columns.
    clip(&escape(&bytes[..bytes.len().min(columns.saturating_mul(4).saturating_add(4))]), columns)
}

/// `text` cut to `columns` with an ellipsis.
pub(crate) fn clip(text: &str, columns: usize) -> String {
    match text.char_indices().nth(columns) {
        None => text.to_owned(),
        Some(_) => text.chars().take(columns.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Adds a field of bytes to a JSON object: text under its name if it can be, otherwise with the encoding's suffix.
pub(crate) fn bytes_entry<M: SerializeMap>(
    map: &mut M,
    name: &str,
    bytes: &[u8],
    encoding: Encoding,
) -> Result<(), M::Error> {
    match (encoding, std::str::from_utf8(bytes)) {
        (Encoding::Text, Ok(text)) => map.serialize_entry(name, text),
        (Encoding::Hex, _) => map.serialize_entry(&format!("{name}_hex"), &encode_hex(bytes)),
        _ => map.serialize_entry(&format!("{name}_base64"), &BASE64.encode(bytes)),
    }
}

/// The field and the column with the expiry of an entry, in milliseconds since 1970.
pub(crate) const EXPIRES_MS: &str = "expires_ms";

/// An entry as a JSON object.
pub(crate) struct JsonEntry<'a> {
    pub(crate) key: &'a [u8],
    /// `None` shows the key alone.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) encoding: Encoding,
    pub(crate) expires_ms: Option<u64>,
}

impl Serialize for JsonEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        bytes_entry(&mut map, "key", self.key, self.encoding)?;
        if let Some(value) = self.value {
            bytes_entry(&mut map, "value", value, self.encoding)?;
        }
        if let Some(expires_ms) = self.expires_ms {
            map.serialize_entry(EXPIRES_MS, &expires_ms)?;
        }
        map.end()
    }
}

/// `1.20 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    situ_settings::figures::bytes(count as f64)
}

/// Exact, with a comma between thousands: `1,234,567`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 table", "2,000 tables".
pub(crate) fn plural(number: u64, one: &str) -> String {
    plural_of(number, one, &format!("{one}s"))
}

/// "1 entry", "2,000 entries".
pub(crate) fn plural_of(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", count(number)),
    }
}

/// Seconds in the unit that suits them: `3 h`.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

pub(crate) use situ_node::utc;

/// Seconds since 1970.
pub(crate) fn now_unix_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_every_encoding() {
        let all: Vec<u8> = (0..=255).collect();
        for encoding in [Encoding::Text, Encoding::Hex, Encoding::Base64] {
            assert_eq!(encoding.decode(&encoding.encode(&all)).as_ref(), Ok(&all), "{encoding:?}");
        }
        let is_refused = |text: &[u8]| decode_hex(text, &mut Vec::new()).is_err();
        assert!(is_refused(b"abc") && is_refused(b"zz"));
        for (text, why) in [
            (&b"a"[..], "1 character do"),
            (b"AA?A", "at character 3"),
            (b"AB==", "at character 2"),
            (b"AAA", "equals"),
        ] {
            let error = Encoding::Base64.decode(text).expect_err("not base64");
            let error = error.to_string();
            assert!(error.starts_with("not base64") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn shown_text_stays_on_its_line() {
        assert_eq!(escape("a\tb\n\\\u{7f}é".as_bytes()), "a\\tb\\n\\\\\\x7fé");
        assert_eq!(escape(b"\xff\x00"), "\\xff\\x00");
        assert_eq!(on_one_line("a\tb\n\\x00 \u{1b}[31m\u{9b}é"), "a\\tb\\n\\x00 \\u{1b}[31m\\u{9b}é");
        assert_eq!(shorten("äöüß".as_bytes(), 3), "äö…");
        assert_eq!(shorten(b"abc", 3), "abc");
    }

    /// Errors and results rounded: "2.00 k lines".
    #[test]
    fn counts_are_exact() {
        assert_eq!(plural(0, "line"), "0 lines");
        assert_eq!(plural(1, "line"), "1 line");
        assert_eq!(plural(999, "line"), "999 lines");
        assert_eq!(plural(2000, "line"), "2,000 lines");
        assert_eq!(plural_of(1_234_567, "entry", "entries"), "1,234,567 entries");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }
}
