//! Power failures and kills at every point of a run.

use super::*;

/// What a crash image must hold: a prefix of `appended` with at least `promised` records.
fn check(image: BTreeMap<FileName, Vec<u8>>, appended: &[Vec<u8>], promised: usize, place: &str) -> Vec<Vec<u8>> {
    let shadow = Shadow::of(image);
    let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = bodies(found);
    let place = format!("{place}: {promised} promised, {} found, {report:?}", found.len());
    assert!(found.len() >= promised, "{place}");
    assert!(found[..] == appended[..found.len()], "not a prefix; {place}");
    found
}

pub(super) fn check_all(before: &World, trace: &[Step], appended: &[Vec<u8>], seed: u64, images: usize) {
    assert_eq!(before.durable, 0);
    check_after(World::default(), trace, appended, 0, seed, images);
}

/// Draws crash images at every point of `trace`, which goes on from `world`.
fn check_after(mut world: World, trace: &[Step], appended: &[Vec<u8>], base: usize, seed: u64, images: usize) {
    let mut rng = Rng(seed ^ 0xdead);
    for (index, step) in trace.iter().enumerate() {
        world.step(step);
        let place = format!("seed {seed}, after step {index}");
        for _ in 0..images {
            check(world.crash(&mut rng), appended, base + world.durable, &place);
        }
        let promised = base + world.written.max(world.durable);
        check(world.kill(&mut rng), appended, promised, &format!("{place}, killed"));
    }
}

/// One thread appends, commits, rotates as the seed says. Returns what it appended.
fn live(shadow: &Shadow, log: &Log, file: &mut u64, rng: &mut Rng, records: usize) -> Vec<Vec<u8>> {
    let mut appended = Vec::new();
    // Runs differ in how they mix the two durabilities.
    let synced = [0, 20, 50, 100][rng.below(4)];
    for number in 0..records {
        appended.push(record(number, rng));
        let lsn = append(log, file, &appended[number]);
        if rng.chance(70) {
            if rng.chance(synced) {
                log.commit(lsn, Durability::Synced).unwrap();
                shadow.note(Step::Durable(appended.len()));
            } else {
                log.commit(lsn, Durability::Buffered).unwrap();
                shadow.note(Step::Written(appended.len()));
            }
        }
        if rng.chance(3) {
            *file += 1;
            log.prepare_next(*file, 0).unwrap();
            log.rotate().unwrap();
        }
    }
    appended
}

#[test]
fn every_synced_record_survives_a_crash_anywhere_and_there_are_no_holes() {
    for seed in 0..40 {
        let mut rng = Rng(seed);
        let shadow = Shadow::default();
        let mut file = 1;
        let log = begin(&shadow, file);
        let mut appended = live(&shadow, &log, &mut file, &mut rng, 40);
        if rng.chance(50) {
            log.close().unwrap();
            shadow.note(Step::Durable(appended.len()));
        }
        appended.push(Vec::new());
        check_all(&World::default(), &shadow.trace(), &appended, seed, 4);
    }
}

#[test]
fn a_second_life_goes_on_where_the_first_was_recovered() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let first = Shadow::default();
        let mut file = 1;
        let log = begin(&first, file);
        let appended = live(&first, &log, &mut file, &mut rng, 25);
        let trace = first.trace();
        let mut world = World::default();
        trace[..1 + rng.below(trace.len())].iter().for_each(|step| world.step(step));
        let image = world.crash(&mut rng);
        let mut all = check(image.clone(), &appended, world.durable, "first life");
        let base = all.len();

        // The torn tail of the first life stays on the disk; the second must not be cut off by it, nor revive it.
        let second = Shadow::of(image.clone());
        file = log_files(&image).last().unwrap() + 1;
        let log = begin(&second, file);
        let appended = live(&second, &log, &mut file, &mut rng, 15);
        all.extend(appended);
        check_after(World::of(&image), &second.trace(), &all, base, seed, 3);
    }
}

#[test]
fn a_lost_rewrite_does_not_leave_a_hole() {
    // The page's first image survives, its rewrite is lost, and a page behind it survives: reading on would skip a
    // record.
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let commit = |length: usize| {
        let lsn = log.append(&[&vec![length as u8; length]]).unwrap();
        log.commit(lsn, Durability::Buffered).unwrap();
    };
    commit(100);
    let old = shadow.contents()[&FileName::Log(1)][..PAGE_BYTES].to_vec();
    commit(3900);
    commit(500);
    commit(600);
    let mut image = shadow.contents();
    assert_eq!(bodies(read_all(&Shadow::of(image.clone()), RecoveryMode::Strict).unwrap().1).len(), 4);
    image.get_mut(&FileName::Log(1)).unwrap()[..PAGE_BYTES].copy_from_slice(&old);
    let (report, found) = read_all(&Shadow::of(image), RecoveryMode::Strict).unwrap();
    assert_eq!(bodies(found), [vec![100; 100]]);
    assert!(matches!(report.tail, Tail::Open { page: 1, .. }), "{report:?}");
    assert_eq!(report.pages_discarded, 1);
}

#[test]
fn a_torn_rewrite_keeps_what_was_durable() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let commit = |byte: u8, length: usize| {
        let lsn = log.append(&[&vec![byte; length]]).unwrap();
        log.commit(lsn, Durability::Synced).unwrap();
    };
    commit(1, 1000);
    let old = shadow.contents()[&FileName::Log(1)][..PAGE_BYTES].to_vec();
    commit(2, 1000);
    let new = shadow.contents()[&FileName::Log(1)][..PAGE_BYTES].to_vec();
    // Every mix of old and new sectors.
    for mix in 0..256u32 {
        let mut page = old.clone();
        for sector in (0..8).filter(|sector| mix >> sector & 1 == 1) {
            page[sector * 512..][..512].copy_from_slice(&new[sector * 512..][..512]);
        }
        let mut image = shadow.contents();
        image.get_mut(&FileName::Log(1)).unwrap()[..PAGE_BYTES].copy_from_slice(&page);
        let found = bodies(read_all(&Shadow::of(image), RecoveryMode::Strict).unwrap().1);
        assert_eq!(found[0], vec![1; 1000], "mix {mix:08b}");
        assert!(found[1..].iter().all(|record| *record == vec![2; 1000]), "mix {mix:08b}");
        if mix == 255 {
            assert_eq!(found.len(), 2);
        }
    }
}
