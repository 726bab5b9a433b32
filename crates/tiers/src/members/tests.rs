use super::*;
use crate::path_text::line_of;
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../../docs/formats/members.md");

fn decisions() -> Vec<PlacementDecision> {
    let text = "1795000000 7 6 levels below 7 fill 81% of the fast disk's room";
    vec![PlacementDecision::parse(text).unwrap()]
}

fn home(fast: Fast) -> Home {
    Home {
        store: Id(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
        fast,
        at: Some("/mnt/fast/store".to_owned()),
        place: Some("/var/lib/situ".to_owned()),
        decisions: decisions(),
    }
}

const DISK: Id = Id(0xfedc_ba98_7654_3210_fedc_ba98_7654_3210);

#[test]
fn the_format_page_shows_what_is_written() {
    let home = home(Fast::Used(DISK));
    let member = Member { store: home.store, disk: DISK };
    for text in [home.encode(), member.encode()] {
        let lines = text.lines().take_while(|line| !line.starts_with("checksum")).collect::<Vec<_>>().join("\n");
        assert!(PAGE.contains(&format!("```\n{lines}\nchecksum ")), "the page does not show\n{lines}");
    }
}

#[test]
fn what_is_written_is_read_again_and_nothing_else_is() {
    for fast in [Fast::None, Fast::Adding(DISK), Fast::Used(DISK)] {
        for at in [None, Some("a place with spaces".to_owned()), Some(line_of(Path::new("/a carriage return\r")))] {
            let place = at.clone().map(|at| format!("not {at}"));
            let home = Home { at, place, ..home(fast) };
            let text = home.encode();
            assert_eq!(Home::decode(&text), Some(home));
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1;
                let changed = String::from_utf8(bytes).ok().and_then(|text| Home::decode(&text));
                assert_eq!(changed, None, "byte {at} changed");
                assert_eq!(Home::decode(&text[..at]), None, "cut at {at}");
            }
        }
    }
    let member = Member { store: Id(1), disk: Id(u128::MAX) };
    assert_eq!(Member::decode(&member.encode()), Some(member));
    assert_eq!(Member::decode(&home(Fast::None).encode()), None);
    assert_eq!(Home::decode(""), None);
}

/// A home was written that could not be read any more.
#[test]
fn the_longest_paths_are_read_again() {
    let sim = SimExecutor::new(1);
    let volume = SimVolume::new(&sim.env(), FaultPlan::none(), 1);
    let longest = Some(line_of(&PathBuf::from(OsString::from_vec(vec![0xff; 4095]))));
    let decision = PlacementDecision::parse(&format!("1795000000 7 6 {}", "why ".repeat(50).trim_end())).unwrap();
    let home = Home { at: longest.clone(), place: longest, decisions: vec![decision; 32], ..home(Fast::Used(DISK)) };
    sim.run(|| {
        home.write(&volume).unwrap();
        assert_eq!(Home::read(&volume).unwrap(), Some(home));
    });
}

#[test]
fn no_two_ids_are_equal() {
    assert_ne!(Id::random(), Id::random());
}
