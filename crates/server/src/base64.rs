//! Base64 for binary keys in meta commands (flag `b`): the standard alphabet, padded, nothing else.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

/// The bytes that `text` stands for, or `None` if it is empty or not padded base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for quad in text[..text.len() - padding].chunks(4) {
        let mut bits = 0;
        for byte in quad {
            bits = bits << 6 | sextet(*byte)?;
        }
        bits <<= 6 * (4 - quad.len());
        let [_, a, b, c] = bits.to_be_bytes();
        bytes.extend_from_slice(&[a, b, c][..quad.len() - 1]);
    }
    Some(bytes)
}

/// Appends the base64 form of `bytes`.
pub(crate) fn push_encoded(out: &mut Vec<u8>, bytes: &[u8]) {
    for triple in bytes.chunks(3) {
        let mut bits = [0u8; 4];
        bits[1..=triple.len()].copy_from_slice(triple);
        let bits = u32::from_be_bytes(bits);
        for index in 0..4 {
            let sextet = (bits >> (18 - 6 * index)) & 63;
            out.push(if index <= triple.len() { ALPHABET[sextet as usize] } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_text_is_refused() {
        for text in [&b""[..], b"Zm8", b"!!!!", b"====", b"Z===", b"Zm=v", b"Zm9vZg"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
        assert_eq!(decode(b"Zm8="), Some(b"fo".to_vec()));
    }

    proptest! {
        #[test]
        fn keys_survive_a_round_trip(bytes in proptest::collection::vec(any::<u8>(), 1..250)) {
            let mut text = Vec::new();
            push_encoded(&mut text, &bytes);
            prop_assert_eq!(decode(&text), Some(bytes));
        }

        #[test]
        fn any_text_decodes_or_not(text: Vec<u8>) {
            let _ = decode(&text);
        }
    }
}
