//! Registers and admin commands.

use super::*;

fn small() -> NvmeConfig {
    NvmeConfig { entries_max: 16, queues_max: 3, vectors: 2, doorbell_stride: 2, ..NvmeConfig::default() }
}

#[test]
fn registers_say_how_the_controller_is_made() {
    in_world(1, small(), NvmePlan::none(), FaultPlan::none(), |host, _| {
        let capabilities = u64::from(host.model.read(0)) | u64::from(host.model.read(4)) << 32;
        assert_eq!((capabilities & 0xffff, capabilities >> 24 & 0xff), (15, 2));
        assert_eq!((capabilities >> 32 & 0xf, capabilities >> 37 & 0xff, capabilities >> 48), (2, 1, 0));
        assert_eq!((host.model.read(8), host.model.read(0x1c)), (0x1_0400, 0));
        assert_eq!((host.model.vectors(), host.model.watch(2).is_err()), (2, true));
    });
}

#[test]
fn readiness_and_its_end_take_time() {
    let config = NvmeConfig { ready_after: 3 * MS, ..NvmeConfig::default() };
    in_world(1, config, NvmePlan::none(), FaultPlan::none(), |host, _| {
        let clock = host.env().clock;
        for _ in 0..2 {
            host.switch_on(16, GOOD);
            assert_eq!(host.model.read(0x1c) & 1, 0);
            clock.sleep(4 * MS);
            assert_eq!(host.model.read(0x1c), 1);
            host.model.write(0x14, 0);
            assert_eq!(host.model.read(0x1c), 1);
            clock.sleep(4 * MS);
            assert_eq!(host.model.read(0x1c), 0);
        }
        assert_eq!(host.model.violations(), [""; 0]);
    });
}

#[test]
fn a_controller_that_is_set_wrong_reports_a_fatal_status() {
    let wrong = [
        ("the page is larger", GOOD | 1 << 7),
        ("the command set", GOOD | 1 << 4),
        ("entries are not", GOOD & !(15 << 16)),
        ("entries are not", GOOD & !(15 << 20) | 5 << 20),
    ];
    for (why, configuration) in wrong {
        in_world(1, NvmeConfig::default(), NvmePlan::none(), FaultPlan::none(), |host, _| {
            host.switch_on(16, configuration);
            assert_eq!(host.model.read(0x1c), 2);
            assert!(host.model.violations()[0].contains(why), "{:?}", host.model.violations());
            host.switch_off();
            host.start();
        });
    }
    in_world(1, NvmeConfig::default(), NvmePlan::none(), FaultPlan::none(), |host, _| {
        host.switch_on(16, 0);
        host.model.write(0x24, 0);
        host.model.write(0x14, GOOD);
        assert!(host.model.violations()[0].contains("fewer than two entries"));
        host.switch_off();
        host.switch_on(16, 0);
        host.model.write(0x28, 0x1_0040);
        host.model.write(0x14, GOOD);
        assert!(host.model.violations()[1].contains("whole pages"));
        host.switch_off();
        host.start();
        host.model.write(0x24, 1);
        assert!(host.model.violations()[2].contains("while the controller is on"));
        // On again before it is off.
        host.model.write(0x14, 0);
        host.model.write(0x14, GOOD);
        assert_eq!(host.model.read(0x1c) & 2, 2);
    });
}

#[test]
fn the_controller_and_its_namespaces_describe_themselves() {
    let config = NvmeConfig { transfer_shift: 3, serial: "A1".to_owned(), ..small() };
    in_world(1, config, NvmePlan::none(), FaultPlan::none(), |host, _| {
        host.start();
        let memory = host.memory(2 * 4096);
        // The answer may cross pages.
        let answer = |host: &mut Host, namespace, what| {
            let second = memory + PAGE;
            let words = command(6).namespace(namespace).pages(memory + 1024, second).word(10, what);
            (host.admin(words).0, host.get(memory + 1024, 4096))
        };
        let (status, controller) = answer(host, 0, 1);
        assert_eq!(status, 0);
        assert_eq!((&controller[4..8], controller[77], u32_at(&controller, 80)), (&b"A1  "[..], 3, 0x1_0400));
        assert_eq!((u16_at(&controller, 256), controller[512], controller[513]), (1 << 8, 0x66, 0x44));
        assert_eq!((u32_at(&controller, 516), u16_at(&controller, 520), controller[525]), (1, 0b1101, 0b111));
        assert_eq!((u16_at(&controller, 528), u32_at(&controller, 536)), (0, 1));
        let (status, namespace) = answer(host, 1, 0);
        assert_eq!(status, 0);
        assert_eq!((u64_at(&namespace, 0), u64_at(&namespace, 8)), (PAGES, PAGES));
        assert_eq!((namespace[25], namespace[26], namespace[130], namespace[134]), (1, 1, 9, 12));
        assert_eq!((namespace[24], u16_at(&namespace, 36), u16_at(&namespace, 68)), (0b1_0010, 0, 0));
        let (status, active) = answer(host, 0, 2);
        assert_eq!((status, u32_at(&active, 0), u32_at(&active, 4)), (0, 1, 0));
        assert_eq!(answer(host, 1, 2).1, [0; 4096]);
        let (status, names) = answer(host, 1, 3);
        assert_eq!((status, names[0], names[1]), (0, 3, 16));
        for (namespace, what, status) in
            [(2, 0, 0x0b), (0, 0, 0x0b), (2, 3, 0x0b), (u32::MAX, 2, 0x0b), (1, 0x13, 0x02)]
        {
            assert_eq!(answer(host, namespace, what).0, FINAL | status, "{namespace} {what}");
        }
    });
}

fn create(opcode: u8, number: u32, entries: u32, word_11: u32, address: u64) -> Words {
    command(opcode).pages(address, 0).word(10, number | (entries - 1) << 16).word(11, word_11)
}

#[test]
fn queues_are_created_and_deleted_by_the_rules() {
    in_world(1, small(), NvmePlan::none(), FaultPlan::none(), |host, _| {
        host.start();
        let memory = host.memory(4096);
        let ask = |host: &mut Host, words| host.admin(words).0 & !FINAL;
        let both = |host: &mut Host, number, entries, word_11, address| {
            ask(host, create(5, number, entries, word_11, address))
        };
        // Completion queues: number, size, address, in one piece, interrupt.
        for (number, entries, word_11, address, status) in [
            (0, 8, 3, memory, 0x101),
            (4, 8, 3, memory, 0x101),
            (1, 1, 3, memory, 0x102),
            (1, 17, 3, memory, 0x102),
            (1, 8, 3, memory + 16, 0x13),
            (1, 8, 2, memory, 0x02),
            (1, 8, 3 | 2 << 16, memory, 0x108),
            (1, 8, 3 | 1 << 16, memory, 0),
            (1, 8, 3, memory, 0x101),
        ] {
            assert_eq!(both(host, number, entries, word_11, address), status, "{number} {entries} {word_11:#x}");
        }
        // Submission queues: the completion queue, and the same.
        for (number, entries, word_11, address, status) in [
            (1, 8, 1, memory, 0x100),
            (1, 8, 1 | 2 << 16, memory, 0x100),
            (0, 8, 1 | 1 << 16, memory, 0x101),
            (4, 8, 1 | 1 << 16, memory, 0x101),
            (1, 1, 1 | 1 << 16, memory, 0x102),
            (1, 17, 1 | 1 << 16, memory, 0x102),
            (1, 8, 1 | 1 << 16, memory + 64, 0x13),
            (1, 8, 1 << 16, memory, 0x02),
            (1, 8, 1 | 1 << 16, memory, 0),
            (1, 8, 1 | 1 << 16, memory, 0x101),
        ] {
            let status_now = ask(host, create(1, number, entries, word_11, address));
            assert_eq!(status_now, status, "{number} {entries} {word_11:#x}");
        }
        for (opcode, number, status) in [
            (0, 0, 0x101),
            (0, 2, 0x101),
            (4, 0, 0x101),
            (4, 2, 0x101),
            (4, 1, 0x10c),
            (0, 1, 0),
            (4, 1, 0),
            (4, 1, 0x101),
        ] {
            assert_eq!(ask(host, command(opcode).word(10, number)), status, "{opcode} {number}");
        }
        assert_eq!(ask(host, command(2)), 0x01);
    });
}

#[test]
fn features_are_those_that_there_are() {
    in_world(1, small(), NvmePlan::none(), FaultPlan::none(), |host, _| {
        host.start();
        let set = |host: &mut Host, feature, value| host.admin(command(9).word(10, feature).word(11, value));
        let get = |host: &mut Host, feature| host.admin(command(10).word(10, feature));
        // Fewer than asked for are granted.
        assert_eq!(set(host, 7, 7 | 7 << 16), (0, 2 | 2 << 16));
        assert_eq!(set(host, 7, 1 | 4 << 16), (0, 1 | 2 << 16));
        assert_eq!(get(host, 7), (0, 1 | 2 << 16));
        assert_eq!(set(host, 7, 0xffff).0, FINAL | 0x02);
        assert_eq!((get(host, 6), set(host, 6, 0), get(host, 6)), ((0, 1), (0, 0), (0, 0)));
        assert_eq!((get(host, 0x55).0, set(host, 0x55, 0).0), (FINAL | 0x02, FINAL | 0x02));
        assert_eq!(host.admin(command(9).word(10, 6 | 1 << 31)).0, FINAL | 0x10d);
        assert_eq!(host.admin(command(10).word(10, 6 | 1 << 8)).0, FINAL | 0x02);
        host.pair(1, 8, 1);
        assert_eq!(set(host, 7, 0).0, FINAL | 0x0c, "there are queues");
        host.switch_off();
        host.start();
        assert_eq!((get(host, 6), get(host, 7)), ((0, 1), (0, 2 | 2 << 16)), "a reset forgets");
    });
}

#[test]
fn events_answer_requests_that_the_controller_keeps() {
    sound(|host, _, _| {
        let mut admin = host.take_admin();
        // Too many.
        let ids: Vec<u16> = (0..5).map(|_| host.submit(&mut admin, command(0x0c))).collect();
        let refused = host.within(&mut admin, MS).unwrap();
        assert_eq!((refused.id, refused.status), (ids[4], FINAL | 0x105));
        assert_eq!(host.within(&mut admin, MS), None);
        // An event.
        host.doorbell(1, false, 8);
        let told = host.within(&mut admin, MS).unwrap();
        assert!(ids.contains(&told.id));
        assert_eq!((told.status, told.result), (0, 0x01_01_00));
        host.doorbell(7, true, 0);
        assert_eq!(host.within(&mut admin, MS).unwrap().result, 0x01_00_00);
        assert_eq!(host.model.violations().len(), 2, "{:?}", host.model.violations());
        // Requests end by an abort.
        assert_eq!(host.run(&mut admin, command(8).word(10, u32::from(ids[4]) << 16)), (0, 1));
        host.submit(&mut admin, command(8).word(10, u32::from(ids[0]) << 16));
        let aborted = host.within(&mut admin, MS).unwrap();
        assert_eq!((aborted.id, aborted.status), (ids[0], 0x07));
        assert_eq!(host.within(&mut admin, MS).unwrap().result, 0);
        // An event before its request.
        let left = [host.doorbell(1, false, 9), host.doorbell(1, false, 9)].map(|()| host.next(&mut admin));
        assert!(left[0].is_some());
        assert_eq!(host.run(&mut admin, command(0x0c)), (0, 0x01_01_00));
    });
}

#[test]
fn a_shutdown_flushes() {
    ready(NvmePlan::none(), FaultPlan::none().latency(MS..2 * MS), |host, ring, device| {
        let memory = host.memory(4096);
        host.put(memory, &[7; 4096]);
        assert_eq!(host.status(ring, write(memory, 3, 1)), 0);
        let is_lost = |device: &SimDevice| {
            (0..50).any(|seed| device.crash(seed).contents(3 * PAGE..4 * PAGE).iter().any(|byte| *byte != 7))
        };
        assert!(is_lost(device));
        host.model.write(0x14, GOOD | 1 << 14);
        assert_eq!(host.model.read(0x1c) >> 2 & 3, 1);
        assert!(host.is_status_within(10 * MS, |status| status >> 2 & 3 == 2));
        assert!(!is_lost(device));
        host.switch_off();
        assert_eq!(host.model.read(0x1c), 0);
        host.start();
    });
}
