//! Base64 for binary keys in meta commands (flag `b`): the standard alphabet, padded, nothing else.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// The codec. Like memcached, it decodes text whose last letter has bits that belong to no byte.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Returns the bytes that `text` stands for, or `None` if it is empty or not padded base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(text).ok().filter(|bytes| !bytes.is_empty())
}

/// Appends the base64 form of `bytes`.
pub(crate) fn push_encoded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
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
        assert_eq!(decode(b"Zm9="), Some(b"fo".to_vec()), "bits that belong to no byte");
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
