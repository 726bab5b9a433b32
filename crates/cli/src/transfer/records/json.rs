//! JSON lines as entries.
//!
//! Without `--key` and `--value`, a line is a record of a dump. Its fields are `key` and `value`, optionally with the
//! suffix `_hex` or `_base64`, and `expires_ms`. Any other field is an error, because it would be dropped silently.
//! With `--key`, the value is the whole line, or the fields that `--value` names. A string stands for its text; any
//! other JSON value but null stands for its JSON text.

use super::{KEY, Own, Record, VALUE, decode, one_name};
use crate::options::Layout;
use crate::text::{self, EXPIRES_MS};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Maximum width of field names in an error message, in columns.
const NAMES_COLUMNS: usize = 200;

/// The fields of an object, in order of appearance.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A field name. It borrows from the line unless it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'de> Visitor<'de> for OfObject {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(OfObject)
    }
}

impl<'a> Fields<'a> {
    /// Finds the field with this name.
    fn find(&self, wanted: &str) -> Result<Option<&'a RawValue>, String> {
        let mut found = self.0.iter().filter(|(name, _)| name == wanted).map(|(_, value)| *value);
        let first = found.next();
        one_name(usize::from(first.is_some()) + found.count(), "fields", wanted)?;
        Ok(first)
    }

    fn named(&self, wanted: &str) -> Result<&'a RawValue, String> {
        self.find(wanted)?.ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|(name, _)| &**name).collect();
            format!("no field {wanted:?}: there are {}", text::clip(&names.join(", "), NAMES_COLUMNS))
        })
    }

    /// Finds the field that has one of the names in a dump, and returns it with its name.
    fn own(&self, own: &Own) -> Result<(&'a RawValue, &'static str), String> {
        let mut found = None;
        for name in own.names() {
            match (self.find(name)?.filter(|value| value.get() != "null"), found) {
                (Some(_), Some(_)) => return Err(format!("more than one of {}", own.alternatives("and"))),
                (Some(value), None) => found = Some((value, name)),
                (None, _) => {}
            }
        }
        found.ok_or_else(|| format!("no {}: expected one of {}", own.kind, own.alternatives("and")))
    }

    /// Returns an object with only these fields.
    fn only(&self, wanted: &[String]) -> Result<Vec<u8>, String> {
        for name in wanted {
            self.named(name)?;
        }
        let mut object = vec![b'{'];
        for (name, value) in self.0.iter().filter(|(name, _)| wanted.iter().any(|wanted| wanted == name)) {
            if object.len() > 1 {
                object.push(b',');
            }
            serde_json::to_writer(&mut object, &**name).map_err(|error| error.to_string())?;
            object.push(b':');
            object.extend_from_slice(value.get().as_bytes());
        }
        object.push(b'}');
        Ok(object)
    }
}

/// Returns the entry of a line, and its expiration time.
///
/// # Errors
/// The line is not an object, a field is missing, or its value cannot be used as key or value.
pub(super) fn read(line: &[u8], layout: &Layout) -> Result<(Record, Option<u64>), String> {
    if line.first() != Some(&b'{') {
        return Err(r#"not a record: expected an object such as {"key":"ada","value":"1815"}"#.to_owned());
    }
    let fields: Fields<'_> = serde_json::from_slice(line).map_err(|error| {
        // The caller adds the line number; the parser sees each line as line 1.
        format!("not a record: {}", error.to_string().replace(" at line 1 column ", ", column "))
    })?;
    let is_dump = layout.key.is_none() && layout.values.is_empty();
    let is_own = |name: &str| KEY.has(name) || VALUE.has(name) || name == EXPIRES_MS;
    if let Some((name, _)) = fields.0.iter().find(|(name, _)| is_dump && !is_own(name)) {
        return Err(format!(
            "not a record of a dump: unknown field `{name}`; --key and --value name the fields of other records"
        ));
    }
    let (raw, name) = match &layout.key {
        Some(name) => (fields.named(name)?, &**name),
        None => fields.own(&KEY)?,
    };
    let key = match raw.get().as_bytes().first() {
        Some(b'"' | b'-' | b'0'..=b'9') => content(raw, name, &KEY)?,
        _ => {
            return Err(format!(
                "{name}: a key must be a string or a number, but this is {}",
                text::clip(raw.get(), 40)
            ));
        }
    };
    let value = match &layout.values[..] {
        [] if layout.key.is_some() => return Ok(((key, line.to_vec()), None)),
        [] => fields.own(&VALUE).and_then(|(raw, name)| content(raw, name, &VALUE))?,
        [name] => content(fields.named(name)?, name, &VALUE)?,
        several => fields.only(several)?,
    };
    let expires = match layout.values.iter().any(|name| name == EXPIRES_MS) {
        true => None,
        false => fields.find(EXPIRES_MS)?.filter(|value| value.get() != "null"),
    };
    let milliseconds = |value: &RawValue| {
        let number = value.get().parse();
        number.map_err(|_| {
            format!("{EXPIRES_MS}: expected milliseconds since 1970, found {}", text::clip(value.get(), 40))
        })
    };
    Ok(((key, value), expires.map(milliseconds).transpose()?))
}

/// Returns the bytes that a field stands for.
fn content(raw: &RawValue, name: &str, own: &Own) -> Result<Vec<u8>, String> {
    let encoding = own.encoding(name);
    match raw.get().as_bytes().first() {
        Some(b'"') => {
            let text: Cow<'_, str> =
                serde_json::from_str(raw.get()).map(|Name(text)| text).map_err(|error| format!("{name}: {error}"))?;
            decode(encoding, text.as_bytes(), name)
        }
        Some(b'n') => Err(format!("{name}: null is not a value")),
        _ => decode(encoding, raw.get().as_bytes(), name),
    }
}
