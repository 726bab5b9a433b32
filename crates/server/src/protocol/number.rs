//! Decimal numbers as memcached reads and writes them.
//!
//! memcached parses with C's `strtol` family, and clients depend on the corners. Leading white space and a sign are
//! accepted. Anything after white space is ignored (`"5 abc"` is 5, which is why `incr` works on it). 64-bit overflow
//! is an error, while 32-bit numbers silently keep the low half. These functions reproduce those rules over byte
//! slices; they never allocate and never panic. A differential test against a real memcached holds them.

/// Returns true for white space in the C locale, which ends a number.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Returns the sign and magnitude of the number that `text` starts with, or `None` where C would report an error.
fn magnitude(text: &[u8]) -> Option<(bool, u64)> {
    let mut rest = text;
    while let [first, tail @ ..] = rest
        && is_space(*first)
    {
        rest = tail;
    }
    let negative = match rest {
        [b'-', tail @ ..] => {
            rest = tail;
            true
        }
        [b'+', tail @ ..] => {
            rest = tail;
            false
        }
        _ => false,
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let mut value = 0u64;
    for byte in rest.iter().take(digits) {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    match rest.get(digits) {
        None | Some(0) => Some((negative, value)),
        Some(byte) if is_space(*byte) => Some((negative, value)),
        Some(_) => None,
    }
}

/// Parses a 64-bit unsigned number: cas ids, deltas and the values that `incr` works on.
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    let (negative, value) = magnitude(text)?;
    let value = if negative { value.wrapping_neg() } else { value };
    // A minus sign is tolerated exactly when the wrapped result looks positive, as the original does.
    if negative && value > i64::MAX as u64 { None } else { Some(value) }
}

/// Parses client flags: as 64 bits, of which the low 32 are kept.
pub(crate) fn parse_u32(text: &[u8]) -> Option<u32> {
    parse_u64(text).map(|value| value as u32)
}

/// Parses expiration times and lengths: as 64 signed bits, of which the low 32 are kept.
pub(crate) fn parse_i32(text: &[u8]) -> Option<i32> {
    let (negative, value) = magnitude(text)?;
    let value = if negative { 0i64.checked_sub_unsigned(value)? } else { i64::try_from(value).ok()? };
    Some(value as i32)
}

/// Appends `value` in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_the_c_library_reads_them() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"-1"), None);
        assert_eq!(parse_u64(b"-0"), Some(0));
        assert_eq!(parse_u64(b"5 abc"), Some(5));
        assert_eq!(parse_u64(b"5abc"), None);
        assert_eq!(parse_u64(b""), None);
        assert_eq!(parse_u64(b"+"), None);
        assert_eq!(parse_u32(b"4294967296"), Some(0));
        assert_eq!(parse_i32(b"4294967396"), Some(100));
        assert_eq!(parse_i32(b"2147483648"), Some(i32::MIN));
        assert_eq!(parse_i32(b"9223372036854775808"), None);
        assert_eq!(parse_i32(b"-9223372036854775808"), Some(0));
    }

    proptest! {
        #[test]
        fn decimals_survive_a_round_trip(value: u64) {
            let mut text = Vec::new();
            push_decimal(&mut text, value);
            prop_assert_eq!(std::str::from_utf8(&text).unwrap(), value.to_string());
            prop_assert_eq!(parse_u64(&text), Some(value));
        }

        #[test]
        fn any_bytes_are_a_number_or_not(text: Vec<u8>) {
            let _ = (parse_u64(&text), parse_u32(&text), parse_i32(&text));
        }
    }
}
