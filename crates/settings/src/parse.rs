//! Counts and sizes, as the command line has them.

/// Reads a count such as `250000`, `250k` or `1.5m`.
pub fn parse_count(text: &str) -> std::result::Result<u64, String> {
    let (digits, scale) = match text.trim().to_ascii_lowercase() {
        text if text.ends_with('k') => (text[..text.len() - 1].to_owned(), 1e3),
        text if text.ends_with('m') => (text[..text.len() - 1].to_owned(), 1e6),
        text if text.ends_with('g') => (text[..text.len() - 1].to_owned(), 1e9),
        text => return text.replace('_', "").parse().map_err(|error| format!("{error}")),
    };
    let count: f64 = digits.parse().map_err(|error| format!("{error}"))?;
    let scaled = (count * scale).round();
    if (0.0..=1e18).contains(&scaled) { Ok(scaled as u64) } else { Err("out of range".to_owned()) }
}

/// Reads a size such as `4096`, `64k`, `256MiB` or `1.5G`; units are powers of 1024.
///
/// # Errors
/// The fault of the text, in words.
pub fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let none = || format!("{text:?} is no size; write for example 256M");
    if number.is_empty() {
        return Err(none());
    }
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => return Err(format!("{other:?} is no unit of size; use k, M, G or T, as in 256M")),
    };
    let number: f64 = number.parse().map_err(|_| none())?;
    let bytes = number * (1u64 << shift) as f64;
    if (0.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err("out of range".to_owned()) }
}

/// Reads a size that lies within bounds.
///
/// # Errors
/// The fault of the text, in words.
pub fn parse_bytes_within(text: &str, min: u64, max: u64) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match (min..=max).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("this option takes {min} to {max} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_accept_suffixes_and_refuse_nonsense() {
        assert_eq!(parse_count("250_000"), Ok(250_000));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000));
        assert_eq!(parse_count("20k"), Ok(20_000));
        for text in ["", "k", "-1k", "1e30g", "nank", "12x"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("1.5k"), Ok(1536));
        assert_eq!(parse_bytes("256 MiB"), Ok(256 << 20));
        for text in ["", "12x", "-1", ".", "1.2.3", "9999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
