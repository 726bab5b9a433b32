use super::*;
use crate::changes;
use crate::error::CallError;
use crate::fields::Rest;
use crate::lease::Note;
use crate::message::PatchPages;
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, Operation, Rule, SimDevice, SimExecutor, SimVolume, crash_everywhere, for_each_seed,
};
use situ_storage::{DirectoryVolume, FileMeta, PAGE_BYTES};

const LOG: FileName = FileName::Log(1);
const TABLE: FileName = FileName::Table(2);
const MANIFEST: FileName = FileName::Manifest(3);
const OTHER: FileName = FileName::Table(4);
const NOW: Duration = Duration::ZERO;
/// Bytes of a test's read.
const READ_MAX: usize = 64 << 20;

fn client(id: u128) -> Owner {
    Owner { id, name: format!("client {id}") }
}

/// A store's files over a volume whose lease is noted in `notes`.
fn files(env: &Env, volume: Arc<dyn Volume>, notes: &std::path::Path, limits: Limits) -> Arc<Files> {
    let lease = Lease::open(env, "shop", Duration::from_secs(10), Note::Beside(notes.to_owned()), &volume).unwrap();
    Files::new(env, volume, lease, limits)
}

/// Calls `test` with the files of a store on each kind of volume.
fn each(test: impl Fn(&Arc<Files>)) {
    let env = Env::system();
    let [notes, home] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let device: Arc<dyn situ_device::Device> = Arc::new(SimDevice::new(&env, 32 << 20, FaultPlan::none(), 1));
    let format = FormatOptions { log_bytes: Some(8 << 20), ..FormatOptions::default() };
    RawVolume::format(Arc::clone(&device), env.clone(), &format).unwrap();
    let raw = RawVolume::open(device, env.clone(), RawOptions { cache_bytes: 1 << 20 }).unwrap();
    let volumes: [Arc<dyn Volume>; 3] = [
        Arc::new(DirectoryVolume::open(home.path()).unwrap()),
        Arc::new(SimVolume::new(&env, FaultPlan::none(), 1)),
        Arc::new(raw),
    ];
    for volume in volumes {
        eprintln!("on {}", volume.location());
        let notes = notes.path().join(volume.location().replace('/', "_"));
        std::fs::create_dir(&notes).unwrap();
        test(&files(&env, volume, &notes, Limits::default()));
    }
}

fn read(attached: &Attached, number: u64, offset: u64, bytes: usize) -> Result<Vec<u8>, CallError> {
    attached.read(number, &[(offset, u32::try_from(bytes).unwrap_or(u32::MAX))], READ_MAX)
}

fn contents(attached: &Attached, name: FileName) -> Vec<u8> {
    let number = 1 << 40;
    let file = attached.open(number, name).unwrap();
    let bytes = read(attached, number, 0, file.bytes as usize).unwrap();
    attached.close(number);
    bytes
}

/// All files, in answers of two.
fn list(attached: &Attached) -> Vec<FileMeta> {
    let mut files: Vec<FileMeta> = Vec::new();
    loop {
        let (found, has_more) = attached.list(files.last().map(|file| file.name), 2).unwrap();
        assert!(found.len() == 2 || !has_more, "{found:?}");
        files.extend(found);
        if !has_more {
            return files;
        }
    }
}

fn is_not_found(error: &CallError) -> bool {
    matches!(error, CallError::Storage(Error::NotFound { .. }))
}

fn storage(error: CallError) -> Error {
    match error {
        CallError::Storage(error) => error,
        other => panic!("{other:?}"),
    }
}

fn page(of: u8) -> Vec<u8> {
    vec![of; PAGE_BYTES]
}

#[test]
fn a_request_that_is_sent_again_is_carried_out_once() {
    each(|files| {
        let attached = files.attach(&client(1)).unwrap().0;
        let token = attached.lock(NOW).unwrap();
        attached.create(token, 1, TABLE, 100).unwrap();
        attached.create(token, 1, TABLE, 100).unwrap();
        assert_eq!(attached.append(token, 1, 0, b"abc").unwrap(), 3);
        assert_eq!(attached.append(token, 1, 0, b"abc").unwrap(), 3);
        assert_eq!(attached.append(token, 1, 2, b"cde").unwrap(), 5);
        assert!(attached.append(token, 1, 6, b"g").unwrap_err().to_string().contains("has 5 bytes"));
        attached.sync(token, 1, 5, true).unwrap();
        attached.sync(token, 1, 5, false).unwrap();
        assert!(attached.finish(token, 1, 6).is_err(), "a finished file has all bytes that the client sent");
        attached.finish(token, 1, 5).unwrap();
        attached.finish(token, 1, 5).unwrap();
        assert_eq!(attached.append(token, 1, 2, b"cde").unwrap(), 5);
        assert!(attached.append(token, 1, 5, b"f").is_err());
        attached.forget(1);
        assert_eq!(contents(&attached, TABLE), b"abcde");

        let reserved = attached.create_pages(token, 2, LOG, 3 * PAGE_BYTES as u64).unwrap();
        assert_eq!(attached.create_pages(token, 2, LOG, 3 * PAGE_BYTES as u64).unwrap(), reserved);
        assert_eq!(reserved.pages, 3);
        let renamed = FileName::Table(9);
        attached.rename(token, TABLE, renamed).unwrap();
        assert!(is_not_found(&attached.rename(token, TABLE, renamed).unwrap_err()));
        attached.remove(token, renamed).unwrap();
        assert!(is_not_found(&attached.remove(token, renamed).unwrap_err()));
        attached.replace(token, FileName::Current, b"one").unwrap();
        attached.replace(token, FileName::Current, b"two").unwrap();
        assert_eq!(contents(&attached, FileName::Current), b"two");
        attached.sync_names(token).unwrap();
    });
}

#[test]
fn a_client_that_connects_anew_finds_its_files_and_its_former_connection_changes_nothing() {
    each(|files| {
        let former = files.attach(&client(1)).unwrap().0;
        let token = former.lock(NOW).unwrap();
        former.create(token, 1, TABLE, 100).unwrap();
        former.append(token, 1, 0, b"abc").unwrap();
        former.create_pages(token, 2, LOG, 2 * PAGE_BYTES as u64).unwrap();
        former.write_pages(token, 2, 1, &page(1), false).unwrap();
        let newer = files.attach(&client(1)).unwrap().0;
        assert!(former.append(token, 1, 3, b"x").is_err());
        assert!(former.write_pages(token, 2, 1, &page(9), true).is_err());
        drop(former);
        assert!(files.is_connected(1), "the end of the former connection is not the end of the newer one");
        newer.append(token, 1, 3, b"def").unwrap();
        newer.finish(token, 1, 6).unwrap();
        assert_eq!(contents(&newer, TABLE), b"abcdef");
        newer.write_pages(token, 2, 0, &page(2), true).unwrap();
        newer.sync_pages(token, 2).unwrap();
        assert_eq!(read(&newer, 2, 0, 2 * PAGE_BYTES).unwrap(), [page(2), page(1)].concat());
    });
}

#[test]
fn the_parts_of_a_list_are_all_files_once_and_a_file_is_found_by_its_name() {
    each(|files| {
        let attached = files.attach(&client(1)).unwrap().0;
        let token = attached.lock(NOW).unwrap();
        assert_eq!(list(&attached), []);
        attached.create_pages(token, 1, LOG, PAGE_BYTES as u64).unwrap();
        for number in 2..7 {
            attached.create(token, number, FileName::Table(number), 0).unwrap();
            attached.append(token, number, 0, &vec![1; number as usize]).unwrap();
            attached.finish(token, number, number).unwrap();
        }
        let found = list(&attached);
        assert_eq!(found, attached.list(None, 100).unwrap().0);
        let tables: Vec<_> = (2..7).map(|number| FileMeta { name: FileName::Table(number), bytes: number }).collect();
        assert!(found.len() == 6 && tables.iter().all(|table| found.contains(table)), "{found:?}");
        for file in found {
            assert_eq!(attached.stat(file.name).unwrap(), Some(file.bytes));
        }
        assert_eq!(attached.stat(FileName::Table(7)).unwrap(), None);
        assert_eq!(attached.stat(FileName::Lock).unwrap(), None);
    });
}

/// Once, each part of a list was a list of all files, and so was the look at one file: a store of 100,000 tables opened
/// slowly.
#[test]
fn all_parts_of_a_list_are_of_one_look_at_the_disk_unless_it_is_old() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(move || {
        let notes = tempfile::tempdir().unwrap();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let tables = [1, 2, 3, 4, 5].map(FileName::Table);
        tables.iter().for_each(|name| volume.set_contents(*name, b"x"));
        let files = files(&env, Arc::new(volume.clone()), notes.path(), Limits::default());
        let attached = files.attach(&client(1)).unwrap().0;
        let looks = |work: &dyn Fn()| {
            let before = volume.operations();
            work();
            volume.operations() - before
        };
        let go_on = || assert_eq!(attached.list(Some(tables[1]), 2).unwrap().0.len(), 2);
        assert_eq!(looks(&|| assert_eq!(list(&attached).len(), 5)), 1);
        assert_eq!(looks(&go_on), 1, "the list was dropped with its last part");
        assert_eq!(looks(&go_on), 0);
        env.clock.sleep(listing::KEPT_FOR * 2);
        assert_eq!(looks(&go_on), 1, "an old list is none");
        volume.set_contents(FileName::Table(6), b"new");
        assert_eq!(list(&attached).len(), 6, "the first part is of a new list");
        volume.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::List])));
        assert_eq!(attached.stat(FileName::Table(6)).unwrap(), Some(3));
    });
}

#[test]
fn what_makes_no_sense_is_an_error() {
    each(|files| {
        let attached = files.attach(&client(1)).unwrap().0;
        assert!(attached.create(0, 1, TABLE, 1).is_err(), "nobody has the lease");
        let token = attached.lock(NOW).unwrap();
        attached.create_pages(token, 2, LOG, 2 * PAGE_BYTES as u64).unwrap();
        for (at, bytes) in [(2, page(0)), (u64::MAX, page(0)), (0, vec![0; 5]), (1, vec![0; 2 * PAGE_BYTES])] {
            assert!(attached.write_pages(token, 2, at, &bytes, true).is_err(), "{} bytes at {at}", bytes.len());
        }
        attached.write_pages(token, 2, 0, &[], true).unwrap();
        for (offset, bytes) in [(u64::MAX, 1), (0, usize::MAX), (2 * PAGE_BYTES as u64, 1)] {
            assert!(read(&attached, 2, offset, bytes).is_err(), "{bytes} bytes at {offset}");
        }
        assert!(read(&attached, 77, 0, 1).is_err());
        assert!(attached.create_pages(token, 3, FileName::Log(9), u64::MAX).is_err());
        assert!(attached.create(token, 3, TABLE, u64::MAX).is_err());
        assert!(attached.create(token, 3, FileName::Lock, 1).is_err());
        assert!(attached.remove(token, FileName::Lock).is_err());
        assert!(attached.append(token, 77, 0, b"x").is_err());
        attached.create(token, 4, TABLE, 1).unwrap();
        assert!(attached.append(token, 4, u64::MAX, b"x").is_err());
        assert!(attached.create(token, 4, MANIFEST, 1).is_err(), "the number means another file");
        assert!(attached.open_pages(2, TABLE).is_err());
        assert!(attached.open(2, LOG).is_err());
        assert!(list(&attached).iter().all(|file| file.name != FileName::Lock));
    });
}

#[test]
fn a_read_that_no_answer_can_carry_is_refused_before_anything_is_read() {
    let env = Env::system();
    let notes = tempfile::tempdir().unwrap();
    let volume = SimVolume::new(&env, FaultPlan::none(), 1);
    let files = files(&env, Arc::new(volume.clone()), notes.path(), Limits::default());
    let attached = files.attach(&client(1)).unwrap().0;
    let token = attached.lock(NOW).unwrap();
    let most = 2 * PAGE_BYTES;
    attached.create_pages(token, 1, LOG, most as u64).unwrap();
    attached.write_pages(token, 1, 1, &page(7), false).unwrap();
    let one = PAGE_BYTES as u32;
    let before = volume.operations();
    for ranges in [vec![(0, one), (0, one), (0, 1)], vec![(0, one), (u64::MAX, 1)], vec![(0, u32::MAX); 5]] {
        let refused = storage(attached.read(1, &ranges, most).unwrap_err());
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
    assert_eq!(volume.operations(), before, "a part was read");
    let read = attached.read(1, &[(PAGE_BYTES as u64, one), (0, one)], most).unwrap();
    assert!(read == [page(7), page(0)].concat());
}

#[test]
fn after_a_restart_a_file_goes_on_behind_what_was_synced() {
    each(|files| {
        let before = files.attach(&client(1)).unwrap().0;
        let token = before.lock(NOW).unwrap();
        before.create(token, 1, MANIFEST, 100).unwrap();
        let synced: Vec<u8> = (0..2_500_000u32).map(|at| at as u8).collect();
        before.append(token, 1, 0, &synced).unwrap();
        before.sync(token, 1, synced.len() as u64, true).unwrap();
        before.append(token, 1, synced.len() as u64, b"perhaps").unwrap();
        before.sync(token, 1, synced.len() as u64 + 7, false).unwrap();
        // The node knows no writer any more.
        before.forget(1);
        let after = files.attach(&client(1)).unwrap().0;
        let too_long = storage(after.resume(token, 1, MANIFEST, synced.len() as u64 + 8).unwrap_err());
        assert!(too_long.is_corruption(), "{too_long}");
        after.resume(token, 1, MANIFEST, synced.len() as u64).unwrap();
        after.resume(token, 1, MANIFEST, synced.len() as u64).unwrap();
        after.append(token, 1, synced.len() as u64, b"surely").unwrap();
        after.finish(token, 1, synced.len() as u64 + 6).unwrap();
        assert!(contents(&after, MANIFEST) == [&synced[..], b"surely"].concat());
        assert!(list(&after).iter().all(|file| file.name != FileName::REPLACEMENT));
    });
}

#[test]
fn promise_1_a_crash_while_a_file_is_resumed_keeps_what_was_synced() {
    let front = vec![7; 5000];
    crash_everywhere(
        1,
        &CrashPoints::default(),
        |env, volume| {
            let mut synced = Vec::new();
            let notes = tempfile::tempdir().unwrap();
            let files = files(env, Arc::new(volume.clone()), notes.path(), Limits::default());
            let attached = files.attach(&client(1)).unwrap().0;
            let token = attached.lock(NOW).unwrap();
            let mut work = || -> Result<(), CallError> {
                attached.create(token, 1, MANIFEST, 100)?;
                attached.append(token, 1, 0, &front)?;
                attached.sync(token, 1, 5000, true)?;
                synced.clone_from(&front);
                attached.forget(1);
                attached.resume(token, 2, MANIFEST, 5000)?;
                attached.append(token, 2, 5000, b"more")?;
                attached.sync(token, 2, 5004, true)?;
                synced.extend(b"more");
                Ok(())
            };
            let _ = work();
            synced
        },
        |_, volume, synced| {
            let found = volume.contents(MANIFEST).unwrap_or_default();
            assert!(found.starts_with(synced), "{} bytes, synced {}", found.len(), synced.len());
        },
    );
}

/// An old copy of a page waits in the node while the client, which has connected anew, writes the page again.
#[test]
fn an_older_copy_of_a_request_is_never_carried_out_after_a_newer_one() {
    for_each_seed(1, 60, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(move || {
            let plan = FaultPlan::none().latency(NOW..Duration::from_millis(5));
            let notes = tempfile::tempdir().unwrap();
            let volume = SimVolume::new(&env, plan, seed);
            let files = files(&env, Arc::new(volume.clone()), notes.path(), Limits::default());
            let former = files.attach(&client(1)).unwrap().0;
            let token = former.lock(NOW).unwrap();
            former.create_pages(token, 1, LOG, PAGE_BYTES as u64).unwrap();
            let old = move || {
                let _ = former.write_pages(token, 1, 0, &page(1), true);
                let _ = former.replace(token, FileName::Current, b"old");
            };
            let job = env.executor.spawn("old connection", Box::new(old)).unwrap();
            let newer = files.attach(&client(1)).unwrap().0;
            newer.write_pages(token, 1, 0, &page(2), true).unwrap();
            newer.replace(token, FileName::Current, b"new").unwrap();
            job.join().unwrap();
            assert!(volume.contents(LOG).unwrap() == page(2));
            assert_eq!(volume.contents(FileName::Current).unwrap(), b"new");
        });
    });
}

/// The disk holds the first write of pages for so long.
fn a_write_hangs(hang: Duration) -> FaultPlan {
    FaultPlan::none().with(Rule::new(Fault::Delay(hang)).on(&[Operation::WritePages]).nth(0))
}

/// A page write hangs in the disk. The client connects anew, gives that connection up, and connects again. The second
/// new connection must not be let in before the first one would have been: the page of the oldest connection would
/// overwrite a newer page.
#[test]
fn a_change_that_hangs_keeps_every_newer_connection_out_until_it_is_over() {
    for_each_seed(1, 20, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(move || {
            let hang = Duration::from_secs(100);
            let notes = tempfile::tempdir().unwrap();
            let volume = SimVolume::new(&env, a_write_hangs(hang), seed);
            let files = files(&env, Arc::new(volume.clone()), notes.path(), Limits::default());
            let oldest = files.attach(&client(1)).unwrap().0;
            let token = oldest.lock(NOW).unwrap();
            oldest.create_pages(token, 1, LOG, PAGE_BYTES as u64).unwrap();
            let began = env.clock.now();
            let old = move || {
                let _ = oldest.write_pages(token, 1, 0, &page(1), true);
            };
            let write = env.executor.spawn("oldest connection", Box::new(old)).unwrap();
            env.clock.sleep(Duration::from_secs(1));
            let given_up = Arc::clone(&files);
            let attach = move || assert!(given_up.attach(&client(1)).is_err());
            let second = env.executor.spawn("second connection", Box::new(attach)).unwrap();
            env.clock.sleep(Duration::from_secs(5));
            let newest = loop {
                match files.attach(&client(1)) {
                    Ok((attached, _)) => break attached,
                    Err(error) => assert!(error.to_string().contains("does not finish"), "{error}"),
                }
            };
            assert!(env.clock.now() - began >= hang, "a connection was let in while an older change was under way");
            newest.write_pages(token, 1, 0, &page(2), true).unwrap();
            write.join().unwrap();
            second.join().unwrap();
            assert!(volume.contents(LOG).unwrap() == page(2));
        });
    });
}

#[test]
fn a_session_whose_client_was_not_let_in_is_swept_when_its_changes_are_over() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(move || {
        let limits = Limits { linger: Duration::from_secs(60), ..Limits::default() };
        let hang = limits.linger * 3;
        let notes = tempfile::tempdir().unwrap();
        let volume: Arc<dyn Volume> = Arc::new(SimVolume::new(&env, a_write_hangs(hang), 1));
        let files = files(&env, volume, notes.path(), limits.clone());
        let owner = files.attach(&client(1)).unwrap().0;
        let token = owner.lock(NOW).unwrap();
        let guest = files.attach(&client(2)).unwrap().0;
        guest.create_pages(token, 1, LOG, PAGE_BYTES as u64).unwrap();
        let began = env.clock.now();
        let write = move || {
            let _ = guest.write_pages(token, 1, 0, &page(1), true);
        };
        let job = env.executor.spawn("guest", Box::new(write)).unwrap();
        env.clock.sleep(Duration::from_secs(1));
        assert!(files.attach(&client(2)).is_err(), "the guest's change is under way");
        env.clock.sleep(limits.linger * 2);
        assert!(env.clock.now() - began < hang);
        assert_eq!(files.sweep(), 0, "the session knows of the change that is under way");
        job.join().unwrap();
        assert_eq!(files.sweep(), 1);
        drop(owner);
    });
}

#[test]
fn an_owner_that_was_cut_off_writes_nothing_after_its_successor() {
    for_each_seed(1, 60, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(move || {
            let plan = FaultPlan::none().latency(NOW..Duration::from_millis(5));
            let notes = tempfile::tempdir().unwrap();
            let volume = SimVolume::new(&env, plan, seed);
            let files = files(&env, Arc::new(volume.clone()), notes.path(), Limits::default());
            let cut_off = files.attach(&client(1)).unwrap().0;
            let token = cut_off.lock(NOW).unwrap();
            cut_off.create_pages(token, 1, LOG, PAGE_BYTES as u64).unwrap();
            env.clock.sleep(Duration::from_secs(11));
            let late = move || {
                for _ in 0..4 {
                    // Each that is let through renews the lease, and is over before the successor has it.
                    let _ = cut_off.write_pages(token, 1, 0, &page(1), true);
                }
                cut_off.write_pages(token, 1, 0, &page(1), true).is_err()
            };
            let refused = Arc::new(Mutex::new(None));
            let noted = Arc::clone(&refused);
            let job = env.executor.spawn("cut off", Box::new(move || *lock(&noted) = Some(late()))).unwrap();
            let successor = files.attach(&client(2)).unwrap().0;
            if let Ok(token) = successor.lock(NOW) {
                successor.open_pages(1, LOG).unwrap();
                successor.write_pages(token, 1, 0, &page(2), true).unwrap();
                job.join().unwrap();
                assert!(volume.contents(LOG).unwrap() == page(2));
                assert_eq!(*lock(&refused), Some(true));
            } else {
                job.join().unwrap();
            }
        });
    });
}

/// A helper writes the output of a task to another node, under the token of a host that has died. The host's successor
/// waits for the term, and not for the helper.
#[test]
fn a_helper_that_writes_under_the_owners_token_does_not_keep_the_lease_of_a_dead_owner() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(move || {
        let notes = tempfile::tempdir().unwrap();
        let files = files(&env, Arc::new(SimVolume::new(&env, FaultPlan::none(), 1)), notes.path(), Limits::default());
        let owner = files.attach(&client(1)).unwrap().0;
        let token = owner.lock(NOW).unwrap();
        let helper = files.attach(&client(2)).unwrap().0;
        assert!(matches!(helper.renew(token), Err(CallError::Fenced(_))), "only the owner says that it is alive");
        let died = env.clock.now();
        drop(owner);
        let clock = Arc::clone(&env.clock);
        let writes = move || {
            helper.create(token, 1, TABLE, 0).unwrap();
            let mut written = 0;
            while let Ok(bytes) = helper.append(token, 1, written, b"block") {
                written = bytes;
                clock.sleep(Duration::from_secs(1));
                assert!(written < 200, "nobody stops the helper");
            }
        };
        let job = env.executor.spawn("helper", Box::new(writes)).unwrap();
        let successor = files.attach(&client(3)).unwrap().0;
        successor.lock(Duration::from_secs(12)).unwrap();
        let waited = env.clock.now() - died;
        assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(12), "{waited:?}");
        job.join().unwrap();
    });
}

#[test]
fn a_full_disk_is_told_as_such_and_the_session_goes_on_when_there_is_room() {
    let env = Env::system();
    let notes = tempfile::tempdir().unwrap();
    let volume = SimVolume::new(&env, FaultPlan::none().capacity(10_000), 1);
    let files = files(&env, Arc::new(volume.clone()), notes.path(), Limits::default());
    let attached = files.attach(&client(1)).unwrap().0;
    let token = attached.lock(NOW).unwrap();
    attached.create(token, 1, TABLE, 0).unwrap();
    let full =
        attached.append(token, 1, 0, &[1; 1 << 20]).and_then(|bytes| attached.finish(token, 1, bytes)).unwrap_err();
    assert!(storage(full).is_no_space());
    assert!(storage(attached.finish(token, 1, 1 << 20).unwrap_err()).is_no_space(), "a failed file stays failed");
    attached.forget(1);
    attached.remove(token, TABLE).unwrap();
    assert!(storage(attached.create_pages(token, 2, LOG, 1 << 20).unwrap_err()).is_no_space());
    volume.set_faults(FaultPlan::none());
    attached.create(token, 3, TABLE, 0).unwrap();
    attached.append(token, 3, 0, &[1; 1 << 20]).unwrap();
    attached.finish(token, 3, 1 << 20).unwrap();
    attached.create_pages(token, 2, LOG, 1 << 20).unwrap();
}

#[test]
fn an_error_of_the_volume_reaches_the_client_as_it_is() {
    let env = Env::system();
    let notes = tempfile::tempdir().unwrap();
    let plan = FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Sync, Operation::WritePages]));
    let files = files(&env, Arc::new(SimVolume::new(&env, plan, 1)), notes.path(), Limits::default());
    let attached = files.attach(&client(1)).unwrap().0;
    let token = attached.lock(NOW).unwrap();
    attached.create(token, 1, TABLE, 0).unwrap();
    attached.append(token, 1, 0, b"abc").unwrap();
    assert!(matches!(attached.sync(token, 1, 3, true), Err(CallError::Storage(Error::Io { .. }))));
    assert!(
        matches!(attached.finish(token, 1, 3), Err(CallError::Storage(Error::Io { .. }))),
        "a failed sync is not tried again"
    );
    attached.create_pages(token, 2, LOG, PAGE_BYTES as u64).unwrap();
    assert!(matches!(attached.write_pages(token, 2, 0, &page(1), true), Err(CallError::Storage(Error::Io { .. }))));
}

/// The disk fails once, and the node's answer is lost with the connection. The system has forgotten the pages: its next
/// sync succeeds. The client's second copy of the request must not hear of that.
#[test]
fn a_sync_of_pages_that_failed_is_not_tried_again() {
    let write = |attached: &Attached, token, durable| attached.write_pages(token, 1, 0, &page(1), durable);
    type Sync = fn(&Attached, u64) -> Result<(), CallError>;
    let syncs: [(Sync, Operation); 4] = [
        (|attached, token| attached.sync_pages(token, 1), Operation::Sync),
        (|attached, _| attached.sync_pages(0, 1), Operation::Sync),
        (|attached, token| attached.write_pages(token, 1, 0, &[], true), Operation::Sync),
        (|attached, token| attached.write_pages(token, 1, 1, &page(2), true), Operation::WritePages),
    ];
    for (sync, fails) in syncs {
        let env = Env::system();
        let notes = tempfile::tempdir().unwrap();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let files = files(&env, Arc::new(volume.clone()), notes.path(), Limits::default());
        let former = files.attach(&client(1)).unwrap().0;
        let token = former.lock(NOW).unwrap();
        former.create_pages(token, 1, LOG, 2 * PAGE_BYTES as u64).unwrap();
        write(&former, token, false).unwrap();
        volume.set_faults(FaultPlan::none().with(Rule::new(Fault::DropDirty).on(&[fails]).nth(0)));
        let first = storage(sync(&former, token).unwrap_err());
        let newer = files.attach(&client(1)).unwrap().0;
        for (sync, _) in syncs {
            let again = storage(sync(&newer, token).unwrap_err());
            assert_eq!(again.to_string(), first.to_string());
        }
        assert!(write(&newer, token, false).is_err(), "a page file that has failed takes no more pages");
        assert_eq!(read(&newer, 1, 0, 1).unwrap(), [1], "what the system has can be read");
    }
}

#[test]
fn a_session_is_bounded_and_is_swept_when_its_client_has_been_away_for_long() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(move || {
        let notes = tempfile::tempdir().unwrap();
        let limits = Limits { sessions: 2, handles: 2, writers: 1, ..Limits::default() };
        let files = files(&env, Arc::new(SimVolume::new(&env, FaultPlan::none(), 1)), notes.path(), limits.clone());
        let owner = files.attach(&client(1)).unwrap().0;
        let token = owner.lock(NOW).unwrap();
        owner.create(token, 1, TABLE, 0).unwrap();
        assert!(owner.create(token, 2, MANIFEST, 0).is_err(), "one writer is the limit");
        owner.finish(token, 1, 0).unwrap();
        owner.create(token, 2, MANIFEST, 0).expect("a finished file is none of them");
        assert!(matches!(owner.finish(token, 1, 0), Err(CallError::Unknown(_))), "and it has made room");
        owner.forget(2);
        owner.create(token, 1, OTHER, 0).unwrap();
        owner.finish(token, 1, 0).unwrap();
        owner.open(1, TABLE).unwrap();
        owner.open(2, TABLE).unwrap();
        assert!(owner.open(3, TABLE).is_err(), "two handles are the limit");
        owner.close(1);
        owner.open(3, TABLE).unwrap();
        let guest = files.attach(&client(2)).unwrap().0;
        assert!(files.attach(&client(3)).is_err(), "two sessions are the limit");
        drop((owner, guest));
        let other = files.attach(&client(3)).unwrap().0;
        assert_eq!(files.clients(), 2, "the guest had nothing open, and the owner of the lease has");
        other.open(1, TABLE).unwrap();
        let owner = files.attach(&client(1)).unwrap().0;
        owner.finish(token, 1, 0).unwrap();
        drop((owner, other));
        env.clock.sleep(limits.linger / 2);
        assert_eq!(files.sweep(), 0);
        env.clock.sleep(limits.linger / 2);
        assert_eq!(files.sweep(), 2);
        let (owner, is_known) = files.attach(&client(1)).unwrap();
        assert!(!is_known);
        owner.renew(token).expect("the session is gone, and the lease is not");
        owner.unlock(token);
    });
}

/// One count for all sessions of all stores: a client that opens all it can leaves half to others.
#[test]
fn what_one_client_has_open_leaves_room_for_the_others() {
    let env = Env::system();
    let notes = tempfile::tempdir().unwrap();
    let limits = Limits { open: OpenFiles::new(8), ..Limits::default() };
    let volume: Arc<dyn Volume> = Arc::new(SimVolume::new(&env, FaultPlan::none(), 1));
    let files = files(&env, volume, notes.path(), limits);
    let [greedy, other] = [1, 2].map(|id| files.attach(&client(id)).unwrap().0);
    let token = greedy.lock(NOW).unwrap();
    greedy.create(token, 1, TABLE, 0).unwrap();
    greedy.create_pages(token, 1, LOG, PAGE_BYTES as u64).unwrap();
    greedy.finish(token, 1, 0).unwrap();
    greedy.open(2, TABLE).unwrap();
    greedy.open(3, TABLE).unwrap();
    let refused = [
        greedy.open(4, TABLE).map(drop),
        greedy.open_pages(4, LOG).map(drop),
        greedy.create(token, 4, OTHER, 0),
        greedy.create_pages(token, 4, FileName::Log(9), PAGE_BYTES as u64).map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(error.to_string().contains("keeps the rest of its 8 for others"), "{error}");
    }
    assert_eq!(list(&other).len(), 2, "what was refused was not made");
    other.open(1, TABLE).unwrap();
    greedy.open(3, TABLE).expect("it is open already");
    greedy.forget(1);
    greedy.open(4, TABLE).unwrap();
    greedy.keep_only(&[2]);
    other.open(2, TABLE).unwrap();
    greedy.end();
    (3..8).for_each(|number| drop(other.open(number, TABLE)));
    assert!(other.open(4, TABLE).is_ok() && other.open(5, TABLE).is_err(), "half of what there is");
}

#[test]
fn a_page_is_patched_on_the_image_that_the_client_knows_or_not_at_all() {
    each(|files| {
        let attached = files.attach(&client(1)).unwrap().0;
        let token = attached.lock(NOW).unwrap();
        attached.create_pages(token, 1, LOG, 4 * PAGE_BYTES as u64).unwrap();
        let patch = |first: u32, image: Option<&[u8]>, new: &[u8]| PatchPages {
            token,
            handle: 1,
            first,
            pages: (new.len() / PAGE_BYTES) as u8,
            durable: first == 2,
            on_image: image.is_some(),
            check: crc32c::crc32c(new),
            pieces: Rest(changes::find(image, new)),
        };
        let unknown = |patch: &PatchPages| matches!(attached.patch_pages(patch), Err(CallError::Unknown(_)));
        let mut new = page(1);
        new[100..200].fill(2);
        assert!(unknown(&patch(1, Some(&page(1)), &new)), "the page was not written yet");
        attached.write_pages(token, 1, 1, &page(1), false).unwrap();
        let mut other = page(1);
        other[300..400].fill(9);
        let mut of_other = other.clone();
        of_other[100..200].fill(2);
        assert!(unknown(&patch(1, Some(&other), &of_other)), "that is not the image");
        let found = |count| read(&attached, 1, PAGE_BYTES as u64, count * PAGE_BYTES).unwrap();
        assert!(found(1) == page(1), "nothing was written");
        assert!(unknown(&patch(1, Some(&page(1)), &new)), "an image that did not fit is not kept");
        attached.write_pages(token, 1, 1, &page(1), false).unwrap();
        for _ in 0..2 {
            attached.patch_pages(&patch(1, Some(&page(1)), &new)).unwrap();
        }
        // Two pages, of which the first is written again; then the second of them.
        let two = [&new[..], &page(3)].concat();
        attached.patch_pages(&patch(1, Some(&new), &two)).unwrap();
        assert!(found(2) == two);
        attached.patch_pages(&patch(2, Some(&page(3)), &page(4))).unwrap();
        attached.patch_pages(&patch(3, None, &page(5))).unwrap();
        assert!(found(3) == [new, page(4), page(5)].concat());
        for bad in [
            PatchPages { pages: 0, ..patch(1, None, &page(1)) },
            PatchPages { pages: 2, ..patch(3, None, &page(1)) },
            PatchPages { first: u32::MAX, ..patch(3, None, &page(1)) },
            PatchPages { pieces: Rest(vec![1, 2, 3]), ..patch(3, None, &page(1)) },
        ] {
            assert!(matches!(attached.patch_pages(&bad), Err(CallError::Storage(Error::Invalid(_)))), "{bad:?}");
        }
        let other = PatchPages { token: token + 1, ..patch(3, Some(&page(5)), &page(6)) };
        assert!(matches!(attached.patch_pages(&other), Err(CallError::Fenced(_))));
    });
}
