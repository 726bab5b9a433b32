//! Reading `docs/formats/hash.md`: tests compare its tables and its examples with the code.

use crate::format::address::{BUCKET_BITS_MAX, OVERFLOW_PREFIX_BYTES};
use crate::format::bucket::{BUCKET_BYTES, BUCKET_FORMAT, BUCKET_HEADER_BYTES, USABLE_BYTES};
use crate::format::entry::{ENTRY_HEAD_BYTES, EXPIRY_BYTES, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, POINTER_BYTES_MAX};
use crate::format::image::{
    IMAGE_BATCH_PAGES_MAX, IMAGE_HEAD_BYTES, IMAGE_PAGE_BYTES, IMAGE_PAGE_HEADER_BYTES, IMAGE_PAYLOAD_BYTES,
};
use crate::format::record::{RECORD_HEADER_BYTES, SEQUENCE_END, VALUE_BYTES_MAX};
use crate::format::space::{MARK_BYTES, SPACE_FORMAT, SPACE_HEADER_BYTES};
use crate::format::superblock::{DEVICE_PATH_BYTES_MAX, SLOT_BYTES, SLOTS, STORE_FORMAT};

pub(crate) const PAGE: &str = include_str!("../../../../docs/formats/hash.md");

/// Returns the rows of the first table in a section, as cells.
pub(crate) fn rows(section: &str) -> Vec<Vec<String>> {
    let (_, rest) = PAGE.split_once(&format!("# {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let section = rest.split("\n#").next().unwrap_or_default();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let table = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(cells).collect()
}

/// A structure whose fields have fixed places.
pub(crate) struct Layout(Vec<(String, usize, usize)>);

impl Layout {
    /// Returns the first table in a section. Its fields follow each other from 0 on, and end at `bytes`; one may have
    /// the length `...`.
    pub(crate) fn of(section: &str, bytes: usize) -> Layout {
        let rows = rows(section);
        let number = |cell: &str| cell.parse::<usize>().ok();
        let mut fields = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let at = number(&row[0]).expect("a field begins somewhere");
            let next =
                rows.get(index + 1).map_or(Some(bytes), |row| number(&row[0])).expect("a field begins somewhere");
            let length = number(&row[1]).unwrap_or(next - at);
            assert_eq!(at + length, next, "{section}: {} ends where the next field begins", row[2]);
            fields.push((row[2].clone(), at, length));
        }
        assert_eq!(fields[0].1, 0);
        Layout(fields)
    }

    /// Returns the bytes of a field.
    pub(crate) fn field<'a>(&self, name: &str, bytes: &'a [u8]) -> &'a [u8] {
        let (_, at, length) =
            self.0.iter().find(|(field, ..)| field == name).unwrap_or_else(|| panic!("no field {name}"));
        &bytes[*at..*at + *length]
    }

    /// Returns a field that is a number.
    pub(crate) fn number(&self, name: &str, bytes: &[u8]) -> u64 {
        let mut number = [0; 8];
        let field = self.field(name, bytes);
        number[..field.len()].copy_from_slice(field);
        u64::from_le_bytes(number)
    }
}

/// Returns the bytes of an example. Text behind four spaces is a comment.
pub(crate) fn example(name: &str) -> Vec<u8> {
    let (_, rest) = PAGE.split_once(&format!("```hex {name}\n")).unwrap_or_else(|| panic!("no example {name}"));
    let (hex, _) = rest.split_once("```").expect("an example ends");
    let bytes = hex.lines().flat_map(|line| line.split("    ").next().unwrap_or_default().split_whitespace());
    bytes.map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits")).collect()
}

#[test]
fn the_format_page_and_the_constants_agree() {
    let constants = [
        ("STORE_FORMAT", u64::from(STORE_FORMAT)),
        ("SPACE_FORMAT", u64::from(SPACE_FORMAT)),
        ("BUCKET_FORMAT", u64::from(BUCKET_FORMAT)),
        ("BUCKET_BYTES", BUCKET_BYTES as u64),
        ("BUCKET_HEADER_BYTES", BUCKET_HEADER_BYTES as u64),
        ("USABLE_BYTES", USABLE_BYTES as u64),
        ("ENTRY_HEAD_BYTES", ENTRY_HEAD_BYTES as u64),
        ("EXPIRY_BYTES", EXPIRY_BYTES as u64),
        ("KEY_BYTES_MAX", KEY_BYTES_MAX as u64),
        ("INLINE_VALUE_BYTES_MAX", INLINE_VALUE_BYTES_MAX as u64),
        ("POINTER_BYTES_MAX", POINTER_BYTES_MAX as u64),
        ("VALUE_BYTES_MAX", VALUE_BYTES_MAX as u64),
        ("SEQUENCE_END", SEQUENCE_END),
        ("BUCKET_BITS_MAX", u64::from(BUCKET_BITS_MAX)),
        ("OVERFLOW_PREFIX_BYTES", OVERFLOW_PREFIX_BYTES as u64),
        ("SPACE_HEADER_BYTES", SPACE_HEADER_BYTES as u64),
        ("MARK_BYTES", MARK_BYTES as u64),
        ("SLOT_BYTES", SLOT_BYTES as u64),
        ("SLOTS", SLOTS as u64),
        ("DEVICE_PATH_BYTES_MAX", DEVICE_PATH_BYTES_MAX as u64),
        ("RECORD_HEADER_BYTES", RECORD_HEADER_BYTES as u64),
        ("IMAGE_PAGE_BYTES", IMAGE_PAGE_BYTES as u64),
        ("IMAGE_PAGE_HEADER_BYTES", IMAGE_PAGE_HEADER_BYTES as u64),
        ("IMAGE_PAYLOAD_BYTES", IMAGE_PAYLOAD_BYTES as u64),
        ("IMAGE_HEAD_BYTES", IMAGE_HEAD_BYTES as u64),
        ("IMAGE_BATCH_PAGES_MAX", IMAGE_BATCH_PAGES_MAX as u64),
    ];
    let rows = rows("Constants");
    let on_page: Vec<(&str, u64)> =
        rows.iter().map(|row| (row[0].trim_matches('`'), row[1].parse().expect("a number"))).collect();
    assert_eq!(on_page, constants);
}
