//! Which of two checkpoints counts when one cannot be read, is of a later Situ, or changes meanwhile.

use super::*;
use std::ops::Range;

/// A disk whose catalogue is long, just behind a checkpoint; and the bytes of the bodies in force and before.
fn with_long_checkpoints(body: impl FnOnce(&Env, &SimDevice, Range<u64>, Range<u64>) + Send) {
    on_a_disk(300, 21, |env, device| {
        let volume = open(env, device).unwrap();
        (0..10).for_each(|number| volume.replace(FileName::Temporary(number), &pattern(number, 900)).unwrap());
        // As often as it takes for both halves to be long.
        let (mut epoch, mut rounds) = (volume.report().journal_epoch, 0);
        while rounds < 3 {
            volume.replace(FileName::Identity, &[rounds]).unwrap();
            let now = volume.report().journal_epoch;
            rounds += u8::from(now > epoch);
            epoch = now;
        }
        let (in_force, before) = {
            let state = volume.shared.lock();
            let bytes = |extents: &[Extent]| {
                let [extent] = extents else { panic!("{extents:?}") };
                extent.first * PAGE..(extent.first + extent.pages) * PAGE
            };
            (bytes(&state.journal.long), bytes(&state.journal.reserve))
        };
        drop(volume);
        body(env, device, in_force, before);
    });
}

fn unreadable(device: &SimDevice, bytes: &Range<u64>) {
    let rule = Rule::new(Fault::Io).on(&[Operation::Read]).within(bytes.clone());
    device.set_faults(FaultPlan::none().with(rule));
}

fn is_whole(env: &Env, device: &SimDevice) {
    let volume = open(env, device).unwrap();
    assert_eq!(read(&volume, FileName::Identity).unwrap(), [2]);
    (0..10).for_each(|number| assert!(read(&volume, FileName::Temporary(number)).unwrap() == pattern(number, 900)));
}

/// Its pages are free, and one of them may be bad: a disk that has all that it needs is opened.
#[test]
fn an_older_checkpoint_that_cannot_be_read_is_not_needed() {
    with_long_checkpoints(|env, device, _, before| {
        unreadable(device, &before);
        is_whole(env, device);
        assert_eq!(RawVolume::check(device.reached(), env.clone()).unwrap().problems, [""; 0]);
    });
}

/// The other half is sound and older: it has not what came with the checkpoint, and is no way out.
#[test]
fn a_checkpoint_in_force_that_cannot_be_read_is_an_error() {
    with_long_checkpoints(|env, device, in_force, _| {
        unreadable(device, &in_force);
        let error = open(env, device).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        device.set_faults(FaultPlan::none());
        is_whole(env, device);
        device.rot(in_force.start + 100, 1);
        let error = open(env, device).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("the body of the checkpoint in force"), "{error}");
    });
}

#[test]
fn a_checkpoint_of_a_later_version_is_named_and_not_passed_over() {
    with_long_checkpoints(|env, device, _, _| {
        let half = {
            let volume = open(env, device).unwrap();
            let state = volume.shared.lock();
            state.layout.half_first(state.journal.half) * PAGE
        };
        let mut header = device.contents(half..half + 64);
        header[4] = 2;
        let checksum = crc32c::crc32c(&header[..60]).to_le_bytes();
        header[60..].copy_from_slice(&checksum);
        device.set_contents(half, &header);
        let error = open(env, device).unwrap_err().to_string();
        assert!(error.contains("version 2") && error.contains("use the Situ that wrote it"), "{error}");
    });
}

/// A store takes more of the log area for its page files while the area is looked at.
#[test]
fn a_check_beside_a_writer_of_logs_sees_no_damage() {
    for_each_seed(22, 10, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let device = SimDevice::new(&env, 1200 * PAGE, FaultPlan::none(), seed);
        sim.run(|| {
            format(&env, &device, &FormatOptions { log_bytes: Some(800 * PAGE), ..small() });
            let volume = open(&env, &device).unwrap();
            let slow = Rule::new(Fault::Delay(std::time::Duration::from_micros(20))).on(&[Operation::Read]);
            device.set_faults(FaultPlan::none().with(slow));
            let mut page = Buffer::new(PAGE_BYTES);
            page.fill(1);
            let work = move || {
                for number in 0..200 {
                    let log = volume.create_pages(FileName::Log(number), 4 * PAGE).unwrap();
                    log.write(number % 4, &page, 1, true).unwrap();
                }
            };
            let job = env.executor.spawn("writer", Box::new(work)).unwrap();
            for _ in 0..20 {
                let found = RawVolume::check(device.reached(), env.clone()).unwrap();
                assert_eq!(found.problems, [""; 0]);
            }
            job.join().unwrap();
        });
    });
}
