//! The columns of CSV and TSV files. The names in the header decide which columns are key and value.
//!
//! 1. Names are compared without surrounding blanks, and without case if no name matches exactly.
//! 2. The key is the column that `--key` names, otherwise `key`, `key_hex` or `key_base64`.
//! 3. The value is the column that `--value` names, otherwise `value`, `value_hex` or `value_base64`. Several columns
//!    form one JSON object, in the header's order. With `--key` and no column for a value, all other columns form that
//!    object.
//! 4. `expires_ms`, unless `--key` or `--value` names it, is the expiration time.
//!
//! A column that would be dropped silently is an error. So is a first line without these names, because it may be an
//! entry.

use super::{KEY, Own, Record, VALUE, decode, one_name};
use crate::options::Layout;
use crate::text::{EXPIRES_MS, Encoding};
use csv::ByteRecord;

/// The place of a column, and the encoding of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column {
    at: usize,
    encoding: Encoding,
}

/// The value's columns.
#[derive(Debug, PartialEq, Eq)]
enum Value {
    One(Column),
    /// Column numbers, ascending.
    Object(Vec<usize>),
}

/// The columns of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    names: Vec<String>,
    key: Column,
    value: Value,
    expires: Option<usize>,
}

impl Columns {
    /// Returns the columns of a file without a header: key and value.
    pub(super) fn plain() -> Columns {
        let column = |at| Column { at, encoding: Encoding::Text };
        let names = ["key", "value"].map(str::to_owned).to_vec();
        Columns { names, key: column(0), value: Value::One(column(1)), expires: None }
    }

    /// Returns the columns that a header names.
    ///
    /// # Errors
    /// The header does not determine the columns of key and value.
    pub(super) fn of_header(header: &ByteRecord, layout: &Layout) -> Result<Columns, String> {
        let names: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        let at_key = match &layout.key {
            Some(name) => named(&names, name)?,
            None => own(&names, &KEY, None)?.ok_or("no column is called key")?,
        };
        let chosen = layout.values.iter().map(|name| named(&names, name)).collect::<Result<Vec<usize>, String>>()?;
        let expires = named(&names, EXPIRES_MS).ok().filter(|at| *at != at_key && !chosen.contains(at));
        let others = || (0..names.len()).filter(|at| *at != at_key && Some(*at) != expires);
        let at_value = match (&chosen[..], own(&names, &VALUE, Some(at_key))?) {
            ([at], _) => *at,
            ([], Some(value)) => {
                if let Some(lost) = others().find(|at| *at != value) {
                    return Err(format!("the column {:?} is neither key nor value", names[lost]));
                }
                value
            }
            ([], None) if layout.key.is_none() => return Err("no column is called value".to_owned()),
            ([], None) => return Columns::object(names.clone(), at_key, others().collect(), expires),
            (several, _) => return Columns::object(names.clone(), at_key, several.to_vec(), expires),
        };
        let value = Value::One(column(&names, at_value, &VALUE));
        Ok(Columns { key: column(&names, at_key, &KEY), value, expires, names })
    }

    /// Makes JSON objects with these columns the values.
    fn object(
        names: Vec<String>,
        at_key: usize,
        mut columns: Vec<usize>,
        expires: Option<usize>,
    ) -> Result<Columns, String> {
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            return Err("there is no column for the value".to_owned());
        }
        for at in &columns {
            one_name(columns.iter().filter(|other| names[**other] == names[*at]).count(), "columns", &names[*at])?;
        }
        Ok(Columns { key: column(&names, at_key, &KEY), value: Value::Object(columns), expires, names })
    }

    /// Returns the entry of a row, and its expiration time.
    ///
    /// # Errors
    /// The row has more or fewer columns than the header, or a field is not in the encoding of its column.
    pub(super) fn read(&self, row: &ByteRecord) -> Result<(Record, Option<u64>), String> {
        if row.len() != self.names.len() {
            let names = match self.names.len() {
                0..=3 => join(&self.names),
                _ => "as in the header".to_owned(),
            };
            return Err(format!("expected {} columns, {names}, found {}", self.names.len(), row.len()));
        }
        let field = |column: Column| {
            let name = &self.names[column.at];
            decode(column.encoding, row.get(column.at).unwrap_or_default(), name)
        };
        let value = match &self.value {
            Value::One(column) => field(*column)?,
            Value::Object(columns) => self.object_of(columns, row)?,
        };
        let expires = self.expires.and_then(|at| row.get(at)).filter(|text| !text.is_empty());
        Ok(((field(self.key)?, value), expires.map(milliseconds).transpose()?))
    }

    fn object_of(&self, columns: &[usize], row: &ByteRecord) -> Result<Vec<u8>, String> {
        let mut object = vec![b'{'];
        for at in columns {
            if object.len() > 1 {
                object.push(b',');
            }
            let name = &self.names[*at];
            let text = str::from_utf8(row.get(*at).unwrap_or_default())
                .map_err(|_| format!("{name}: the bytes are not UTF-8, so a JSON object cannot hold them"))?;
            serde_json::to_writer(&mut object, name).map_err(|error| error.to_string())?;
            object.push(b':');
            serde_json::to_writer(&mut object, text).map_err(|error| error.to_string())?;
        }
        object.push(b'}');
        Ok(object)
    }
}

fn column(names: &[String], at: usize, own: &Own) -> Column {
    Column { at, encoding: own.encoding(&names[at].to_lowercase()) }
}

/// Finds the column with this name.
fn named(names: &[String], wanted: &str) -> Result<usize, String> {
    let wanted = wanted.trim();
    let with = |is: &dyn Fn(&str) -> bool| {
        let mut found = names.iter().enumerate().filter(|(_, name)| is(name)).map(|(at, _)| at);
        (found.next(), found.count())
    };
    let (found, more) = match with(&|name| name == wanted) {
        (None, _) => with(&|name| name.to_lowercase() == wanted.to_lowercase()),
        exact => exact,
    };
    let found = found.ok_or_else(|| format!("no column is called {wanted:?}"))?;
    one_name(1 + more, "columns", wanted)?;
    Ok(found)
}

/// Finds the column that has one of the names in a dump.
fn own(names: &[String], own: &Own, except: Option<usize>) -> Result<Option<usize>, String> {
    let mut found = (0..names.len()).filter(|at| Some(*at) != except && own.has(&names[*at].to_lowercase()));
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(format!("more than one column is called {}", own.alternatives("or"))),
        (found, None) => Ok(found),
    }
}

fn join(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

fn milliseconds(text: &[u8]) -> Result<u64, String> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        format!("{EXPIRES_MS}: expected milliseconds since 1970, found {:?}", text.escape_ascii().to_string())
    })
}
