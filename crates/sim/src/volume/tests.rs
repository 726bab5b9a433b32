use super::*;
use crate::{SimExecutor, for_each_seed};

const LOG: FileName = FileName::Log(1);
const TABLE: FileName = FileName::Table(2);
const PAGE: u64 = PAGE_BYTES as u64;

fn volume(plan: FaultPlan) -> SimVolume {
    SimVolume::new(&SimExecutor::new(1).env(), plan, 1)
}

fn page(byte: u8) -> Buffer {
    let mut buffer = Buffer::new(PAGE_BYTES);
    buffer.fill(byte);
    buffer
}

fn first_byte(volume: &SimVolume, page: u64) -> u8 {
    volume.contents(LOG).unwrap()[(page * PAGE) as usize]
}

#[test]
fn behaves_as_a_volume_without_faults() {
    let volume = volume(FaultPlan::none());
    let mut writer = volume.create(TABLE, 0).unwrap();
    writer.append(b"abc").unwrap();
    assert_eq!(volume.contents(TABLE).unwrap(), b"", "appended bytes stay in the writer");
    writer.append(&vec![b'd'; APPEND_BUFFER_BYTES]).unwrap();
    assert_eq!(writer.written(), 3 + APPEND_BUFFER_BYTES as u64);
    writer.finish().unwrap();
    assert!(volume.create(TABLE, 0).is_err(), "the name is taken");
    let reader = volume.open(TABLE).unwrap();
    let mut four = [0; 4];
    reader.read_at(0, &mut four).unwrap();
    assert_eq!(&four, b"abcd");
    assert!(reader.read_at(reader.bytes() - 3, &mut four).unwrap_err().is_corruption());
    assert!(reader.read_at(u64::MAX, &mut four).unwrap_err().is_corruption());
    volume.rename(TABLE, FileName::Table(3)).unwrap();
    volume.remove(FileName::Table(3)).unwrap();
    reader.read_at(0, &mut four).unwrap();
    assert!(matches!(volume.open(TABLE), Err(Error::NotFound { path }) if path == "sim/000002.table"));
    assert_eq!(volume.list().unwrap(), []);
    drop(reader);
    assert_eq!(volume.space().logical_used, 0);
    let lock = volume.lock().unwrap();
    assert!(matches!(volume.lock(), Err(Error::Locked { .. })));
    drop(lock);
    volume.lock().unwrap();
}

#[test]
fn what_was_synced_survives_every_crash_and_the_rest_only_some() {
    let (mut shorter, mut longer, mut whole, mut mixed) = (0, 0, 0, 0);
    for_each_seed(0, 300, |seed| {
        let volume = volume(FaultPlan::none());
        let mut writer = volume.create(TABLE, 0).unwrap();
        writer.append(&[1; 1000]).unwrap();
        writer.sync().unwrap();
        writer.append(&[2; 3000]).unwrap();
        writer.flush().unwrap();
        let found = volume.crash(seed).contents(TABLE).expect("a synced file keeps its name");
        assert!(found.len() >= 1000 && found[..1000].iter().all(|b| *b == 1), "seed {seed}");
        let kept = volume.crash_keep_all().contents(TABLE).unwrap();
        assert_eq!((kept.len(), kept[3999]), (4000, 2));
    });
    for seed in 0..300 {
        let volume = volume(FaultPlan::none());
        let mut writer = volume.create(TABLE, 0).unwrap();
        writer.sync().unwrap();
        writer.append(&[2; 4000]).unwrap();
        writer.flush().unwrap();
        let found = volume.crash(seed).contents(TABLE).unwrap();
        shorter += u32::from(found.len() < 4000);
        longer += u32::from(found.len() > 4000);
        let twos = found.iter().take(4000).filter(|b| **b == 2).count();
        whole += u32::from(twos == 4000);
        mixed += u32::from(found.len() == 4000 && (512..3000).contains(&twos));
    }
    assert!(shorter > 20 && longer > 5 && whole > 20 && mixed > 5, "{shorter} {longer} {whole} {mixed}");
}

#[test]
fn a_name_without_sync_may_vanish() {
    let mut vanished = 0;
    for seed in 0..100 {
        let volume = volume(FaultPlan::none());
        let mut writer = volume.create(TABLE, 0).unwrap();
        writer.append(b"x").unwrap();
        writer.flush().unwrap();
        vanished += u32::from(volume.crash(seed).contents(TABLE).is_none());
    }
    assert!((20..80).contains(&vanished), "{vanished}");
}

#[test]
fn durable_pages_survive_and_their_neighbours_may_not() {
    let mut lost = 0;
    for_each_seed(0, 100, |seed| {
        let volume = volume(FaultPlan::none());
        let file = volume.create_pages(LOG, 3 * PAGE).unwrap();
        file.write(0, &page(1), 1, false).unwrap();
        file.write(1, &page(2), 1, false).unwrap();
        file.write(1, &page(3), 1, true).unwrap();
        let after = volume.crash(seed);
        assert_eq!(after.contents(LOG).unwrap().len() as u64, 3 * PAGE);
        assert!(after.contents(LOG).unwrap()[PAGE as usize..2 * PAGE as usize].iter().all(|b| *b == 3));
        assert_eq!(first_byte(&after, 2), 0);
        file.sync().unwrap();
        assert_eq!(first_byte(&volume.crash(seed), 0), 1);
    });
    for seed in 0..100 {
        let volume = volume(FaultPlan::none());
        volume.create_pages(LOG, PAGE).unwrap().write(0, &page(1), 1, false).unwrap();
        lost += u32::from(first_byte(&volume.crash(seed), 0) == 0);
    }
    assert!((20..80).contains(&lost), "{lost}");
}
