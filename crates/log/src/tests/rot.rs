//! Damage at rest.

use super::*;
use crate::{PageState, inspect};

/// Several files of synced records; the last one open or closed.
pub(super) fn sound(close: bool) -> (Shadow, Vec<Vec<u8>>) {
    let shadow = Shadow::default();
    let mut rng = Rng(11);
    let mut file = 1;
    let log = begin(&shadow, file);
    let mut records = Vec::new();
    for number in 0..200 {
        records.push(record(number, &mut rng));
        let lsn = append(&log, &mut file, &records[number]);
        log.commit(lsn, Durability::Synced).unwrap();
    }
    assert!(file >= 3, "{file}");
    if close {
        log.close().unwrap();
    }
    (shadow, records)
}

fn is_subsequence(found: &[Vec<u8>], records: &[Vec<u8>]) -> bool {
    let mut rest = records.iter();
    found.iter().all(|record| rest.any(|other| other == record))
}

#[test]
fn rot_in_a_closed_log_is_always_found_and_named() {
    let (shadow, records) = sound(true);
    let contents = shadow.contents();
    let mut rng = Rng(5);
    let pages: Vec<(u64, usize, usize)> = log_files(&contents)
        .into_iter()
        .flat_map(|file| inspect(&*shadow.volume(), file).unwrap().map(move |page| (file, page.unwrap())))
        .filter_map(|(file, page)| match page.state {
            PageState::Good(header) => Some((file, page.number as usize, 48 + usize::from(header.used))),
            _ => None,
        })
        .collect();
    assert!(pages.len() > 25);
    let (_, whole) = read_all(&shadow, RecoveryMode::Strict).unwrap();
    let (last_file, last_page, _) = *pages.last().unwrap();
    for (file, page, bytes) in pages {
        for _ in 0..6 {
            let mut image = contents.clone();
            let offset = page * PAGE_BYTES + rng.below(bytes);
            image.get_mut(&FileName::Log(file)).unwrap()[offset] ^= 1 << rng.below(8);
            let damaged = Shadow::of(image);
            let place = format!("file {file} page {page} offset {offset}");
            match read_all(&damaged, RecoveryMode::Strict) {
                Err(Error::Corruption(rot)) => {
                    assert!(rot.file.starts_with(&format!("{file:06}")), "{place}: {rot}");
                    assert_eq!(rot.offset, (page * PAGE_BYTES) as u64, "{place}: {rot}");
                }
                Err(error) => panic!("{place}: {error}"),
                // Without its closing mark a log looks like one that was not closed; all its records are there.
                Ok((report, found)) => {
                    assert_eq!((file, page), (last_file, last_page), "{place}: {report:?}");
                    assert_eq!(bodies(found), records);
                    continue;
                }
            }
            let (report, found) = read_all(&damaged, RecoveryMode::Repair).unwrap();
            assert!(!report.lost.is_empty(), "{place}");
            let found = bodies(found);
            assert!(found.len() < records.len() || bytes == 48, "{place}");
            assert!(is_subsequence(&found, &records), "{place}");
            // Every record that does not touch the page is there.
            let untouched = whole.iter().filter(|(position, record)| {
                let first = position.page as usize;
                let last = first + (usize::from(position.offset) + 8 + record.len() - 1) / PAYLOAD_BYTES;
                position.file != file || last < page || first > page
            });
            let untouched: Vec<Vec<u8>> = untouched.map(|(_, record)| record.clone()).collect();
            assert!(untouched.len() + 50 > records.len() && is_subsequence(&untouched, &found), "{place}");
            let lost = &report.lost[0];
            assert_eq!((lost.file, lost.first_page as usize, lost.pages), (file, page, 1), "{place}: {lost:?}");
        }
    }
}

#[test]
fn repair_goes_on_behind_the_damage() {
    let (shadow, records) = sound(true);
    let mut image = shadow.contents();
    image.get_mut(&FileName::Log(1)).unwrap()[3 * PAGE_BYTES + 20] ^= 1;
    let (report, found) = read_all(&Shadow::of(image), RecoveryMode::Repair).unwrap();
    let found = bodies(found);
    assert_eq!((found.first(), found.last()), (records.first(), records.last()));
    assert_eq!(report.tail, Tail::Closed);
    assert_eq!(report.lost.len(), 1);
    let lost = &report.lost[0];
    assert_eq!((lost.file, lost.first_page, lost.pages), (1, 3, 1));
    let text = lost.error.to_string();
    assert!(text.contains("000001.log is damaged at byte 12288") && text.contains("log page 3"), "{text}");
}

#[test]
fn a_missing_file_is_named() {
    let (shadow, records) = sound(false);
    let volume = shadow.volume();
    let mut files = shadow.log_files();
    files.retain(|file| *file != 2);
    let error = read_files(&volume, &files, RecoveryMode::Strict).unwrap_err();
    assert!(error.to_string().contains("log file 2, which was durable"), "{error}");
    let (report, found) = read_files(&volume, &files, RecoveryMode::Repair).unwrap();
    let found = bodies(found);
    assert!(report.lost.len() == 1 && is_subsequence(&found, &records));
    assert_eq!((found.first(), found.last()), (records.first(), records.last()));
    // Without the files before, it is an ordinary log whose front was released.
    files.retain(|file| *file != 1);
    let found = bodies(read_files(&volume, &files, RecoveryMode::Strict).unwrap().1);
    assert!(!found.is_empty() && found.len() < records.len() && records.ends_with(&found));
}

/// The metadata of a disk without a file system lost its last edit to rot, and with it the name of the log file that
/// was begun last. The file before says that there is another, and the log was taken to end there: what had been
/// acknowledged since was gone without a word.
#[test]
fn a_missing_last_file_is_named() {
    let (shadow, records) = sound(false);
    let mut image = shadow.contents();
    // One that was made ready and never used may be missing.
    let in_use = |image: &BTreeMap<FileName, Vec<u8>>, file| image[&FileName::Log(file)].iter().any(|byte| *byte != 0);
    while let Some(file) = log_files(&image).last().copied().filter(|file| !in_use(&image, *file)) {
        image.remove(&FileName::Log(file));
    }
    assert_eq!(bodies(read_all(&Shadow::of(image.clone()), RecoveryMode::Strict).unwrap().1), records);
    let last = *log_files(&image).last().unwrap();
    let blank = vec![0; image[&FileName::Log(last)].len()];
    image.remove(&FileName::Log(last));
    let before = *log_files(&image).last().unwrap();
    let missing = Shadow::of(image.clone());
    let error = read_all(&missing, RecoveryMode::Strict).unwrap_err();
    assert!(error.to_string().contains(&format!("a log file behind log file {before}")), "{error}");
    let (report, found) = read_all(&missing, RecoveryMode::Repair).unwrap();
    assert_eq!(report.lost.iter().map(|lost| lost.file).collect::<Vec<_>>(), [before]);
    let found = bodies(found);
    assert!(found.len() < records.len() && records.starts_with(&found));
    // A file that the writer went on to after the files were listed is no loss.
    let files = log_files(&image);
    image.insert(FileName::Log(last), blank);
    assert_eq!(read_files(&Shadow::of(image).volume(), &files, RecoveryMode::Strict).unwrap().1.len(), found.len());
}

/// A restore that mixed up two names. The pages of the later file passed for stale ones, and the log was taken to end
/// before them without a word.
#[test]
fn two_files_that_have_changed_names_are_found() {
    let (shadow, records) = sound(false);
    let contents = shadow.contents();
    let is_in_use = |file: &u64| contents[&FileName::Log(*file)].iter().any(|byte| *byte != 0);
    let files: Vec<u64> = log_files(&contents).into_iter().filter(is_in_use).collect();
    assert!(files.len() >= 3);
    for (at, one) in files.iter().enumerate() {
        for other in &files[at + 1..] {
            let mut image = contents.clone();
            let names = [FileName::Log(*one), FileName::Log(*other)];
            let [first, second] = names.map(|name| contents[&name].clone());
            image.insert(names[0], second);
            image.insert(names[1], first);
            let damaged = Shadow::of(image);
            let error = read_all(&damaged, RecoveryMode::Strict).unwrap_err();
            let text = error.to_string();
            for part in [&format!("{one:06}.log"), "file number", &other.to_string()] {
                assert!(text.contains(part), "{one} and {other}: {text}");
            }
            let (report, found) = read_all(&damaged, RecoveryMode::Repair).unwrap();
            assert!(!report.lost.is_empty() && is_subsequence(&bodies(found), &records), "{report:?}");
        }
    }
}

#[test]
fn damage_behind_what_is_known_durable_is_a_torn_tail() {
    let (shadow, records) = sound(false);
    let mut image = shadow.contents();
    let file = *log_files(&image).last().unwrap();
    let pages = inspect(&*shadow.volume(), file).unwrap().map(Result::unwrap);
    let last = pages.filter(|page| matches!(page.state, PageState::Good(_))).last().unwrap();
    let offset = last.number as usize * PAGE_BYTES;
    image.get_mut(&FileName::Log(file)).unwrap()[offset + 30] ^= 1;
    let (report, found) = read_all(&Shadow::of(image), RecoveryMode::Strict).unwrap();
    assert!(records.starts_with(&bodies(found)));
    let Tail::Open { page, reason, .. } = report.tail else { panic!("{report:?}") };
    assert_eq!(page, last.number);
    assert!(reason.contains("header checksum"), "{reason}");
}

#[test]
fn arbitrary_bytes_never_panic() {
    let (shadow, _) = sound(false);
    let contents = shadow.contents();
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mut image = contents.clone();
        for bytes in image.values_mut() {
            for _ in 0..rng.below(4) {
                let page = rng.below(bytes.len() / PAGE_BYTES) * PAGE_BYTES;
                match rng.below(4) {
                    0 => bytes[page..][..PAGE_BYTES].fill(0),
                    1 => bytes[page..][..PAGE_BYTES].iter_mut().for_each(|byte| *byte = rng.next() as u8),
                    2 => bytes.copy_within(0..PAGE_BYTES, page),
                    _ => {
                        // Sound checksums over nonsense: records and claims that cannot be.
                        let bytes = &mut bytes[page..][..PAGE_BYTES];
                        for _ in 0..3 {
                            bytes[48 + rng.below(200)] = rng.next() as u8;
                        }
                        bytes[24] = rng.next() as u8 % 3;
                        let used = usize::from(u16::from_le_bytes([bytes[20], bytes[21]])).min(PAYLOAD_BYTES);
                        let checksum = crc32c::crc32c(&bytes[48..48 + used]);
                        bytes[36..40].copy_from_slice(&checksum.to_le_bytes());
                        let checksum = crc32c::crc32c(&bytes[..44]);
                        bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
                    }
                }
            }
        }
        let damaged = Shadow::of(image);
        let strict = read_all(&damaged, RecoveryMode::Strict);
        if let Err(error) = &strict {
            assert!(error.is_corruption(), "seed {seed}: {error}");
        }
        let repaired = read_all(&damaged, RecoveryMode::Repair).unwrap();
        if let Ok((report, found)) = strict {
            assert_eq!((report.tail, found), (repaired.0.tail, repaired.1), "seed {seed}");
        }
    }
}

/// Files are as long as they will ever be before they are used, and their last page is kept for the end mark: one whose
/// last page is a page of records was cut, whatever its pages know of each other.
#[test]
fn a_file_that_was_cut_within_its_records_is_found() {
    let (shadow, records) = sound(false);
    let contents = shadow.contents();
    let files = log_files(&contents);
    for file in &files {
        let name = FileName::Log(*file);
        let written: Vec<bool> = inspect(&*shadow.volume(), *file)
            .unwrap()
            .map(|page| matches!(page.unwrap().state, PageState::Good(_)))
            .collect();
        let written = written.iter().take_while(|good| **good).count();
        for pages in 0..written {
            let mut image = contents.clone();
            // Cut in the middle of a page, half of the time.
            image.get_mut(&name).unwrap().truncate(pages * PAGE_BYTES + 77 * (pages % 2));
            let newest = Some(file) == files.last();
            match read_all(&Shadow::of(image.clone()), RecoveryMode::Strict) {
                Err(Error::Corruption(rot)) => {
                    assert!(
                        rot.to_string().contains("cut") || rot.what == "record length",
                        "file {file} cut to {pages} pages: {rot}"
                    );
                }
                // The newest may be a file that was just being made.
                Ok(_) if newest && pages == 0 => {}
                other => panic!("file {file} cut to {pages} pages: {other:?}"),
            }
            let (report, found) = read_all(&Shadow::of(image), RecoveryMode::Repair).unwrap();
            assert!((newest && pages == 0) || !report.lost.is_empty(), "file {file} cut to {pages} pages");
            let bodies: Vec<Vec<u8>> = found.into_iter().map(|(_, body)| body).collect();
            assert!(is_subsequence(&bodies, &records));
        }
    }
}

/// A file is whole before it is used, and used before the next one is: one that another follows was cut, also if nobody
/// knows what of it was durable.
#[test]
fn a_file_that_another_follows_was_not_being_made() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let write = |body: &[u8]| {
        let lsn = log.append(&[body]).unwrap();
        log.commit(lsn, Durability::Buffered).unwrap();
    };
    write(b"in the first");
    assert!(log.prepare_next(2, 0).unwrap());
    log.rotate().unwrap();
    write(b"in the second");
    for pages in 0..4 {
        let mut image = shadow.contents();
        image.insert(FileName::Log(1), vec![0; pages * PAGE_BYTES]);
        let error = read_all(&Shadow::of(image), RecoveryMode::Strict).unwrap_err();
        assert!(error.to_string().contains("cut"), "{pages} pages: {error}");
    }
}

/// Once, a store could not be opened any more when a process had ended while it made a log file, and the next one when
/// it had just made its own.
#[test]
fn a_file_that_was_being_made_is_passed_over_before_others_too() {
    let (shadow, records) = sound(false);
    let contents = shadow.contents();
    let last = *log_files(&contents).last().unwrap();
    // Where nothing was written yet, a crash may leave anything.
    for (pages, filling) in (0..4).map(|pages| (pages, 0)).chain((1..4).map(|pages| (pages, 0xa5))) {
        let mut image = contents.clone();
        image.insert(FileName::Log(last + 1), vec![filling; pages * PAGE_BYTES]);
        let behind = Shadow::of(image.clone());
        let log = begin(&behind, last + 2);
        let (report, found) = read_all(&behind, RecoveryMode::Strict).unwrap();
        assert_eq!(bodies(found), records);
        assert!(report.unused.ends_with(&[last + 2]) && (filling != 0 || report.unused == [last + 1, last + 2]));
        let lsn = log.append(&[b"behind"]).unwrap();
        log.commit(lsn, Durability::Synced).unwrap();
        let found = bodies(read_all(&behind, RecoveryMode::Strict).unwrap().1);
        assert_eq!(found.split_last().unwrap(), (&b"behind".to_vec(), &records[..]));
        // Where the file before it says that the log goes on, a file was whole.
        image.remove(&FileName::Log(last));
        image.insert(FileName::Log(last + 2), vec![0; 12 * PAGE_BYTES]);
        let error = read_all(&Shadow::of(image), RecoveryMode::Strict).unwrap_err();
        assert!(error.to_string().contains("cut"), "{error}");
    }
}
