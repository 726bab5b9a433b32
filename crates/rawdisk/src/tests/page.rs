//! The format page against the code.

use super::layout::{Copy, Superblock};
use super::*;

const TEXT: &str = include_str!("../../../../docs/formats/disk.md");

/// Offset and length of a field, from the tables of the page.
fn field(name: &str) -> (usize, usize) {
    let row = TEXT.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let found = row.into_iter().find(|cells| cells.len() > 4 && cells[3] == name);
    let cells = found.unwrap_or_else(|| panic!("no field {name} on the page"));
    (cells[1].parse().unwrap(), cells[2].parse().unwrap())
}

/// The bytes of the example number `index`; None where it leaves a checksum open.
fn example(index: usize) -> Vec<Option<u8>> {
    let section = TEXT.split("## Worked example").nth(1).unwrap();
    let block = section.split("```").nth(2 * index + 1).unwrap();
    let is_byte =
        |word: &&str| word.len() == 2 && (word.chars().all(|c| c.is_ascii_hexdigit()) || "BBPPHH".contains(word));
    let mut bytes = Vec::new();
    for line in block.lines() {
        // A sentence behind the bytes begins with two spaces and a word; "01  0a 30" is bytes all through.
        let words = line.split_whitespace().take_while(is_byte);
        bytes.extend(words.map(|word| match word {
            "BB" | "PP" | "HH" => None,
            word => Some(u8::from_str_radix(word, 16).unwrap()),
        }));
    }
    bytes
}

fn matches(bytes: &[u8], expected: &[Option<u8>]) {
    for (at, expected) in expected.iter().enumerate() {
        assert!(expected.is_none_or(|byte| byte == bytes[at]), "byte {at}: {:02x}, not {expected:02x?}", bytes[at]);
    }
}

/// The disk of the worked example.
fn example_disk(body: impl FnOnce(&Env, &SimDevice) + Send) {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let device = SimDevice::new(&env, 256 * PAGE, FaultPlan::none(), 1);
    sim.run(|| {
        let layout = Superblock::plan(DiskId(ID), 1, 256 * PAGE, Some(16), Some(64), 1_700_000_000).unwrap();
        for (copy, page) in (0..).zip(layout.copy_pages()) {
            let mut bytes = vec![0; PAGE_BYTES];
            layout.encode(copy, &mut bytes);
            device.set_contents(page * PAGE, &bytes);
        }
        device.set_contents(layout.half_first(0) * PAGE, &journal::first_frame(&layout));
        body(&env, &device);
    });
}

#[test]
fn the_worked_example_is_what_is_written() {
    example_disk(|env, device| {
        let volume = open(env, device).unwrap();
        volume.create_pages(FileName::Log(1), 8 * PAGE).unwrap();
        let (superblock, frame) = (example(0), example(1));
        assert_eq!((superblock.len(), frame.len()), (108, 64 + 41));
        matches(&device.contents(0..PAGE), &superblock);
        matches(&device.contents(2 * PAGE..3 * PAGE), &frame);
        assert!(device.contents(2 * PAGE + 105..3 * PAGE).iter().all(|byte| *byte == 0));
    });
}

/// What the example leaves open, and what a reader of these bytes must find for ever.
#[test]
fn golden_bytes_read_back() {
    example_disk(|env, device| {
        let volume = open(env, device).unwrap();
        volume.create_pages(FileName::Log(1), 8 * PAGE).unwrap();
        drop(volume);
        let checksum = |at: u64| u32::from_le_bytes(device.contents(at..at + 4).try_into().unwrap());
        let golden = [4092, PAGE + 48, PAGE + 60, 2 * PAGE + 48, 2 * PAGE + 52, 2 * PAGE + 60].map(checksum);
        assert_eq!(golden, GOLDEN, "{golden:#010x?}");
        assert_eq!(checksum(2 * PAGE + 52), checksum(PAGE + 60));
        let volume = open(env, device).unwrap();
        assert_eq!(volume.list().unwrap(), [FileMeta { name: FileName::Log(1), bytes: 8 * PAGE }]);
        assert_eq!((volume.report().journal_sequence, volume.report().log_touched_bytes), (2, 8 * PAGE));
    });
}

/// Superblock; body and header of the first frame; body of the second, its link, its header.
const GOLDEN: [u32; 6] = [0xe4d4_0b11, 0x2b60_b55d, 0x50b1_932d, 0x72c2_4d03, 0x50b1_932d, 0xaab1_8205];

#[test]
fn the_fields_are_where_the_page_says() {
    let layout = Superblock::plan(DiskId(ID), 3, 256 * PAGE, Some(16), Some(64), 77).unwrap();
    let mut page = vec![0; PAGE_BYTES];
    layout.encode(1, &mut page);
    assert_eq!(Superblock::decode(1, &page), Copy::Sound(layout));
    assert!(matches!(Superblock::decode(0, &page), Copy::Damaged(_)));
    let number = |bytes: &[u8], name: &str| {
        let (at, length) = field(name);
        bytes[at..at + length].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let expected = [
        ("version", u64::from(layout::VERSION)),
        ("page_bytes", PAGE),
        ("generation", 3),
        ("device_pages", layout.device_pages),
        ("journal_first", layout.journal_first),
        ("journal_half_pages", layout.half_pages),
        ("log_first", layout.log.first),
        ("log_pages", layout.log.pages),
        ("top_first", layout.top.first),
        ("top_pages", layout.top.pages),
        ("formatted_at", 77),
        ("copy", 1),
        ("checksum", u64::from(crc32c::crc32c(&page[..4092]))),
    ];
    for (name, value) in expected {
        assert_eq!(number(&page, name), value, "{name}");
    }
    assert_eq!(page[field("magic").0..][..8], layout::MAGIC);
    assert_eq!(page[field("disk_id").0..][..16], ID);
    assert_eq!(field("reserved"), (108, 3984));

    let (frame, checksum) = frame::encode(frame::Kind::Edits, DiskId(ID), 5, 6, 7, b"body");
    let expected = [
        ("frame_version", u64::from(frame::FRAME_VERSION)),
        ("kind", 2),
        ("epoch", 5),
        ("sequence", 6),
        ("body_bytes", 4),
        ("body_checksum", u64::from(crc32c::crc32c(b"body"))),
        ("previous_checksum", 7),
        ("header_checksum", u64::from(checksum)),
    ];
    for (name, value) in expected {
        assert_eq!(number(&frame, name), value, "{name}");
    }
    assert_eq!(frame[field("frame_magic").0..][..4], frame::FRAME_MAGIC);
    assert_eq!(frame[field("frame_disk_id").0..][..16], ID);
    let (at, length) = field("header_checksum");
    assert_eq!(at + length, frame::FRAME_HEADER_BYTES);
    for phrase in [
        format!("addressed in *pages* of {PAGE} bytes"),
        format!("at most {INLINE_BYTES_MAX})"),
        format!("a multiple of {} pages", layout::AREA_ALIGN_PAGES),
        format!("a header of {} bytes", frame::FRAME_HEADER_BYTES),
    ] {
        assert!(TEXT.contains(&phrase), "the page does not say: {phrase}");
    }
}
