//! The page `docs/formats/accelerator.md` says of each struct what the code has.

use situ_accel::abi::*;

const PAGE: &str = include_str!("../../../../docs/formats/accelerator.md");

/// The rows of the table below a heading: offset, bytes, field.
fn rows(heading: &str) -> Vec<(String, usize, usize)> {
    let section = PAGE.split(&format!("### {heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading {heading}"));
    let rows = section.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[3].trim_matches('`').to_owned(), cells[1].parse().unwrap(), cells[2].parse().unwrap())
    };
    rows.map(row).collect()
}

#[test]
fn every_struct_is_on_the_page() {
    let structs = [
        ("TaskHeader", TaskHeader::fields(), TaskHeader::BYTES),
        ("Way", Way::fields(), Way::BYTES),
        ("InputBlock", InputBlock::fields(), InputBlock::BYTES),
        ("Span", Span::fields(), Span::BYTES),
        ("AnswerHeader", AnswerHeader::fields(), AnswerHeader::BYTES),
        ("BlockReport", BlockReport::fields(), BlockReport::BYTES),
    ];
    for (name, fields, bytes) in structs {
        let fields: Vec<_> = fields.into_iter().map(|(name, at, width)| (name.to_owned(), at, width)).collect();
        assert_eq!(rows(name), fields, "{name}");
        // What C aligns lies where it lies without alignment, and an array of the struct has no gaps.
        let aligned = fields.iter().all(|(_, at, width)| at % (*width).min(8) == 0 || *width == 32);
        let widest = fields.iter().map(|(_, _, width)| (*width).min(8)).max().unwrap();
        assert!(aligned && bytes % widest == 0, "{name}");
    }
}

#[test]
fn the_limits_are_on_the_page() {
    let rows: Vec<&str> =
        PAGE.split("### Limits\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty()).collect();
    let says = |what: &str, number: u64| {
        let row = rows.iter().find(|row| row.contains(what)).unwrap_or_else(|| panic!("no row {what}"));
        assert!(row.contains(&number.to_string()), "{row}: {number}");
    };
    says("ways", u64::from(WAYS_MAX));
    says("snapshots", u64::from(SNAPSHOTS_MAX));
    says("user key", u64::from(KEY_BYTES_MAX));
    says("value", u64::from(VALUE_BYTES_MAX));
    says("uncompressed", u64::from(RAW_BLOCK_BYTES_MAX));
    says("block_bytes", u64::from(BLOCK_BYTES_MAX));
    says("data area", DATA_BYTES_MAX >> 30);
}
