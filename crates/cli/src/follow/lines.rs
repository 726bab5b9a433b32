//! Changes as JSON lines: `docs/formats/changes.md`.

use crate::text::Encoding;
use serde::{Deserialize, Serialize};
use situ::{Change, ChangeBatch, ChangeKind, ChangePosition};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Names of keyspaces by their numbers.
pub(super) type Keyspaces = BTreeMap<u32, String>;

/// One line: the keyspaces that there are from here on, or a batch.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keyspaces: Option<Keyspaces>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<ChangeLine<'a>>>,
}

/// A change of a batch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeLine<'a> {
    pub(super) keyspace: Cow<'a, str>,
    pub(super) keyspace_id: u32,
    #[serde(rename = "do")]
    pub(super) what: What,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    end: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    end_base64: Option<Cow<'a, str>>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Put,
    Delete,
    DeleteRange,
}

/// The contents of a line.
pub(super) enum Told<'a> {
    /// All keyspaces of the source, told behind this position.
    Keyspaces(ChangePosition, Keyspaces),
    Batch(Batch<'a>),
}

/// A batch of a line.
pub(super) struct Batch<'a> {
    pub(super) since: ChangePosition,
    pub(super) position: ChangePosition,
    pub(super) changes: Vec<ChangeLine<'a>>,
}

impl<'a> Line<'a> {
    pub(super) fn of_keyspaces(since: ChangePosition, keyspaces: Keyspaces) -> Line<'a> {
        Line { keyspaces: Some(keyspaces), since: Some(since.to_string()), ..Line::default() }
    }

    pub(super) fn of_batch(since: ChangePosition, batch: &'a ChangeBatch) -> Line<'a> {
        let (since, position) = (Some(since.to_string()), Some(batch.position.to_string()));
        Line { since, position, changes: Some(batch.changes.iter().map(ChangeLine::of).collect()), ..Line::default() }
    }

    /// Returns a line of a feed that has no changes at present.
    pub(super) fn without_changes(position: ChangePosition) -> Line<'a> {
        let text = Some(position.to_string());
        Line { since: text.clone(), position: text, changes: Some(Vec::new()), ..Line::default() }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// The line is malformed; the error says why.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Told<'a>, String> {
        // The caller adds the line number; the parser sees each line as line 1.
        let read = serde_json::from_slice(bytes);
        match read.map_err(|error| error.to_string().replace(" at line 1 column ", ", column "))? {
            Line { keyspaces: Some(keyspaces), since: Some(since), position: None, changes: None } => {
                Ok(Told::Keyspaces(since.parse()?, keyspaces))
            }
            Line { keyspaces: None, since: Some(since), position: Some(position), changes: Some(changes) } => {
                changes.iter().try_for_each(ChangeLine::check)?;
                Ok(Told::Batch(Batch { since: since.parse()?, position: position.parse()?, changes }))
            }
            _ => Err("a line has `since`, and either `keyspaces`, or `position` and `changes`".to_owned()),
        }
    }
}

impl<'a> ChangeLine<'a> {
    fn of(change: &'a Change) -> ChangeLine<'a> {
        let (key, key_base64) = written(&change.key);
        let (what, value, end) = match &change.kind {
            ChangeKind::Put(value) => (What::Put, Some(value), None),
            ChangeKind::Delete => (What::Delete, None, None),
            ChangeKind::DeleteRange(end) => (What::DeleteRange, None, Some(end)),
            // The enum may grow; this program is built with its crate.
            other => unreachable!("a change of the kind {other:?}"),
        };
        let (value, value_base64) = value.map_or((None, None), |value| written(value));
        let (end, end_base64) = end.map_or((None, None), |end| written(end));
        let (keyspace, keyspace_id) = (Cow::Borrowed(&*change.name), change.keyspace);
        ChangeLine { keyspace, keyspace_id, what, key, key_base64, value, value_base64, end, end_base64 }
    }

    pub(super) fn key(&self) -> Result<Cow<'_, [u8]>, String> {
        read("key", self.key.as_deref(), self.key_base64.as_deref())
    }

    pub(super) fn value(&self) -> Result<Cow<'_, [u8]>, String> {
        read("value", self.value.as_deref(), self.value_base64.as_deref())
    }

    pub(super) fn end(&self) -> Result<Cow<'_, [u8]>, String> {
        read("end", self.end.as_deref(), self.end_base64.as_deref())
    }

    /// Checks that the change has the fields of its kind, and no others.
    fn check(&self) -> Result<(), String> {
        let has_value = self.value.is_some() || self.value_base64.is_some();
        let has_end = self.end.is_some() || self.end_base64.is_some();
        match (has_value, has_end) == (self.what == What::Put, self.what == What::DeleteRange) {
            true => Ok(()),
            false => Err("a put has a value, a delete_range has an end, and no other change has one".to_owned()),
        }
    }
}

/// Returns bytes as text if they are valid UTF-8, or else in base64.
fn written(bytes: &[u8]) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => {
            let text = String::from_utf8_lossy(&Encoding::Base64.encode(bytes)).into_owned();
            (None, Some(text.into()))
        }
    }
}

fn read<'a>(name: &str, text: Option<&'a str>, base64: Option<&str>) -> Result<Cow<'a, [u8]>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(Cow::Borrowed(text.as_bytes())),
        (None, Some(text)) => {
            let bytes = Encoding::Base64.decode(text.as_bytes());
            bytes.map(Cow::Owned).map_err(|error| format!("{name}_base64: {error}"))
        }
        _ => Err(format!("expected one of {name} and {name}_base64")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_batch(text: &str) -> Result<usize, String> {
        let Told::Batch(batch) = Line::read(text.as_bytes())? else { return Err("keyspaces".to_owned()) };
        batch.changes.iter().try_for_each(|change| change.key().map(drop))?;
        Ok(batch.changes.len())
    }

    /// The example of `docs/formats/changes.md`, but for its line ends.
    #[test]
    fn golden_lines() {
        let change = |key: &[u8], kind| Change { keyspace: 1, name: "users".into(), key: key.to_vec(), kind };
        let changes = vec![
            change(b"ada", ChangeKind::Put(vec![0, 255])),
            change(b"bob", ChangeKind::Delete),
            change(b"c", ChangeKind::DeleteRange(b"d\n".to_vec())),
        ];
        let batch =
            ChangeBatch { first: 118, position: ChangePosition { sequence: 120, checksum: Some(0xab) }, changes };
        let text = serde_json::to_string(&Line::of_batch(ChangePosition::of_copy(117), &batch)).unwrap();
        let golden = concat!(
            r#"{"since":"117","position":"120:000000ab","changes":["#,
            r#"{"keyspace":"users","keyspace_id":1,"do":"put","key":"ada","value_base64":"AP8="},"#,
            r#"{"keyspace":"users","keyspace_id":1,"do":"delete","key":"bob"},"#,
            r#"{"keyspace":"users","keyspace_id":1,"do":"delete_range","key":"c","end":"d\n"}]}"#
        );
        assert_eq!(text, golden);
        assert_eq!(read_batch(golden), Ok(3));
        let keyspaces = Keyspaces::from([(0, "default".to_owned())]);
        let since = ChangePosition::of_copy(117);
        let text = serde_json::to_string(&Line::of_keyspaces(since, keyspaces.clone())).unwrap();
        assert_eq!(text, r#"{"keyspaces":{"0":"default"},"since":"117"}"#);
        let told = Line::read(text.as_bytes());
        assert!(matches!(told, Ok(Told::Keyspaces(at, found)) if at == since && found == keyspaces));
    }

    #[test]
    fn malformed_lines_are_refused() {
        let change = |fields: &str| {
            format!(r#"{{"since":"1","position":"2","changes":[{{"keyspace":"a","keyspace_id":0,{fields}}}]}}"#)
        };
        assert_eq!(read_batch(&change(r#""do":"put","key":"k","value":"v""#)), Ok(1));
        for (fields, expected) in [
            (r#""do":"put","key":"k""#, "a put has a value"),
            (r#""do":"delete","key":"k","value":"v""#, "a put has a value"),
            (r#""do":"delete_range","key":"k""#, "a delete_range has an end"),
            (r#""do":"delete","key":"k","key_base64":"aw==""#, "expected one of key and key_base64"),
            (r#""do":"delete""#, "expected one of key and key_base64"),
            (r#""do":"delete","key_base64":"a""#, "key_base64: not base64"),
            (r#""do":"merge","key":"k""#, "unknown variant `merge`"),
            (r#""do":"delete","key":"k","extra":1"#, "unknown field `extra`"),
        ] {
            let error = read_batch(&change(fields)).unwrap_err();
            assert!(error.contains(expected), "{fields}: {error}");
        }
        for (text, expected) in [
            ("", "EOF"),
            ("{}", "a line has `since`"),
            (r#"{"since":"1","position":"2"}"#, "a line has `since`"),
            (r#"{"since":"x","position":"2","changes":[]}"#, "no position"),
            (r#"{"keyspaces":{"0":"a"}}"#, "a line has `since`"),
        ] {
            let error = read_batch(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
