//! The answers of commands that read or write one key.

use crate::failure::{Exit, Outcome};
use crate::options::GetOptions;
use crate::output::Output;
use crate::text::{Encoding, bytes_entry};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Shows the value of a key, or says that there is none.
pub(crate) fn told(
    options: &GetOptions,
    key: &[u8],
    shown: Option<&[u8]>,
    missing: impl FnOnce() -> String,
    out: &mut Output,
) -> Outcome {
    let encoding = options.encoding.encoding();
    match shown {
        _ if out.is_json() => {
            out.object(&Answer { fields: &[("found", shown.is_some())], key, value: shown, encoding })?;
        }
        Some(value) => {
            out.bytes(&encoding.encode(value))?;
            if !options.no_newline {
                out.bytes(b"\n")?;
            }
        }
        None => out.warn(&missing()),
    }
    Ok(if shown.is_some() { Exit::Done } else { Exit::NotFound })
}

/// The answer for one key.
pub(crate) struct Answer<'a> {
    pub(crate) fields: &'a [(&'a str, bool)],
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) encoding: Encoding,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.fields {
            map.serialize_entry(name, value)?;
        }
        bytes_entry(&mut map, "key", self.key, self.encoding)?;
        if let Some(value) = self.value {
            bytes_entry(&mut map, "value", value, self.encoding)?;
        }
        map.end()
    }
}
