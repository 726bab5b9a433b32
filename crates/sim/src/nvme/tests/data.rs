//! I/O commands: data pointers, statuses, durability, and the IOMMU.

use super::host::pages_are_blocks;
use super::*;
use crate::{Fault, Operation, Rule};
use situ_device::Geometry;

/// Bytes that differ from place to place.
fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at / 512) as u8 ^ (at as u8).wrapping_mul(31) ^ seed).collect()
}

fn wide() -> NvmeConfig {
    NvmeConfig { transfer_shift: 0, ..NvmeConfig::default() }
}

/// Writes by one command and reads by another one of the same form; compares both with the device.
fn round_trip(
    host: &mut Host,
    ring: &mut host::Ring,
    device: &SimDevice,
    pages: u32,
    form: impl Fn(Words) -> Words,
    pieces: &[(u64, usize)],
) {
    let bytes = pages as usize * 4096;
    assert_eq!(pieces.iter().map(|(_, bytes)| bytes).sum::<usize>(), bytes);
    let data = pattern(bytes, pages as u8);
    let mut at = 0;
    for (address, bytes) in pieces {
        host.put(*address, &data[at..at + bytes]);
        at += bytes;
    }
    assert_eq!(host.status(ring, form(write(0, 5, pages))), 0);
    assert!(device.contents(5 * PAGE..(5 + u64::from(pages)) * PAGE) == data);
    assert_eq!(host.status(ring, form(command(5).namespace(1).blocks(5, pages))), 0, "compares equal");
    for (address, bytes) in pieces {
        host.put(*address, &vec![0xee; *bytes]);
    }
    assert_eq!(host.status(ring, form(command(5).namespace(1).blocks(5, pages))), FINAL | 0x285);
    assert_eq!(host.status(ring, form(read(0, 5, pages))), 0);
    let read = pieces.iter().flat_map(|(address, bytes)| host.get(*address, *bytes)).collect::<Vec<_>>();
    assert!(read == data);
    assert_eq!(host.model.faults(), []);
    assert_eq!(host.model.violations(), [""; 0]);
}

#[test]
fn pages_are_found_in_each_form() {
    ready_as(1, wide(), NvmePlan::none(), FaultPlan::none(), |host, ring, device| {
        // Pages far from each other, so that a wrong step meets no mapping.
        let pages: Vec<u64> = (0..10).map(|_| host.memory(4096)).collect();
        let lists: Vec<u64> = (0..3).map(|_| host.memory(4096)).collect();
        let whole = |pages: &[u64]| pages.iter().map(|page| (*page, 4096)).collect::<Vec<_>>();
        let pair = |first, second| move |words: Words| words.pages(first, second);
        round_trip(host, ring, device, 1, pair(pages[0], 0), &whole(&pages[..1]));
        round_trip(host, ring, device, 2, pair(pages[0], pages[1]), &whole(&pages[..2]));
        // From the middle of a page.
        let (start, cut) = (pages[0] + 1028, 4096 - 1028);
        round_trip(host, ring, device, 1, pair(start, pages[1]), &[(start, cut), (pages[1], 1028)]);
        // A list.
        let entries = |pages: &[u64]| pages.iter().flat_map(|page| page.to_le_bytes()).collect::<Vec<_>>();
        host.put(lists[0] + 64, &entries(&pages[1..5]));
        round_trip(host, ring, device, 5, pair(pages[0], lists[0] + 64), &whole(&pages[..5]));
        let mut pieces = whole(&pages[..5]);
        (pieces[0], pieces[4].1) = ((start, cut), 1028);
        round_trip(host, ring, device, 4, pair(start, lists[0] + 64), &pieces);
        // A list that goes on elsewhere, twice; the last place of the last page is an entry, not a pointer.
        host.put(lists[0] + 4096 - 24, &entries(&[pages[1], pages[2], lists[1]]));
        host.put(lists[1], &entries(&pages[3..6]));
        round_trip(host, ring, device, 6, pair(pages[0], lists[0] + 4096 - 24), &whole(&pages[..6]));
        host.put(lists[0] + 4096 - 16, &entries(&[pages[1], pages[2]]));
        round_trip(host, ring, device, 3, pair(pages[0], lists[0] + 4096 - 16), &whole(&pages[..3]));
    });
}

#[test]
fn a_transfer_that_is_longer_than_the_devices_goes_in_pieces() {
    let sim = SimExecutor::new(1);
    let geometry = Geometry { max_transfer_bytes: 8192, ..pages_are_blocks() };
    let device = SimDevice::with_geometry(&sim.env(), PAGES * PAGE, geometry, FaultPlan::none(), 1);
    let model = crate::NvmeModel::new(&sim.env(), wide(), vec![Arc::new(device.clone())], NvmePlan::none(), 1);
    sim.run(|| {
        let mut host = Host::new(&model, &wide(), 1 << 20);
        host.start();
        let mut ring = host.pair(1, 8, 1);
        let (memory, list) = (host.memory(5 * 4096), host.memory(4096));
        let entries: Vec<u8> = (1..5).flat_map(|page| (memory + page * PAGE).to_le_bytes()).collect();
        host.put(list, &entries);
        let pieces: Vec<_> = (0..5).map(|page| (memory + page * PAGE, 4096)).collect();
        round_trip(&mut host, &mut ring, &device, 5, |words| words.pages(memory, list), &pieces);
    });
}

#[test]
fn bad_pages_are_refused() {
    ready_as(1, wide(), NvmePlan::none(), FaultPlan::none(), |host, ring, device| {
        let (memory, list) = (host.memory(8 * 4096), host.memory(4096));
        let entries: Vec<u8> = (1..4).flat_map(|page| (memory + page * PAGE).to_le_bytes()).collect();
        host.put(list, &entries);
        host.put(list + 2048, &[entries.clone(), (memory + 16).to_le_bytes().to_vec()].concat());
        for (pages, first, second, status) in [
            (1, memory + 2, 0, FINAL | 0x13),
            (2, memory, memory + PAGE + 64, FINAL | 0x13),
            (4, memory, list + 4, FINAL | 0x13),
            (5, memory, list + 2048, FINAL | 0x13),
            (5, memory, list, 0x04),
            (4, memory, list, 0),
            (2, memory, 0, 0x04),
        ] {
            let form = write(first, 5, pages).pages(first, second);
            assert_eq!(host.status(ring, form), status, "{pages} {first:#x} {second:#x}");
        }
        assert!(device.contents(9 * PAGE..10 * PAGE).iter().all(|byte| *byte == 0));
        assert_eq!(host.status(ring, write(memory, 0, 1).word(0, 1 | 3 << 14)), FINAL | 0x02);
        assert_eq!(host.status(ring, write(memory, 0, 1).word(0, 1 | 1 << 8)), FINAL | 0x02, "half of a pair");
    });
}

#[test]
fn lists_of_descriptors_are_walked_and_checked() {
    ready_as(1, wide(), NvmePlan::none(), FaultPlan::none(), |host, ring, device| {
        let (memory, lists) = (host.memory(4 * 4096), host.memory(2 * 4096));
        let (data, segment, last) = (0x00, 0x20, 0x30);
        let put = |host: &Host, at: u64, list: &[[u8; 16]]| host.put(at, &list.concat());
        let form = |descriptor: [u8; 16]| move |words: Words| words.list(descriptor);
        let inline = form(descriptor(data, memory + 12, 8192));
        round_trip(host, ring, device, 2, inline, &[(memory + 12, 8192)]);
        // Pieces of any length, over two segments.
        let pieces = [(memory, 100), (memory + 5000, 3000), (memory + 200, 996), (memory + 9000, 4096)];
        let entry = |piece: usize| descriptor(data, pieces[piece].0, pieces[piece].1 as u32);
        put(host, lists, &[entry(0), entry(1), descriptor(last, lists + PAGE, 32)]);
        put(host, lists + PAGE, &[entry(2), entry(3)]);
        round_trip(host, ring, device, 2, form(descriptor(segment, lists, 48)), &pieces);
        let status = |host: &mut Host, ring: &mut host::Ring, descriptor| {
            host.status(ring, write(0, 5, 2).list(descriptor)) & !FINAL
        };
        assert_eq!(status(host, ring, descriptor(data, memory, 8191)), 0x0f);
        assert_eq!(status(host, ring, descriptor(data, memory, 8193)), 0x0f);
        assert_eq!(status(host, ring, descriptor(0x10, memory, 8192)), 0x11);
        assert_eq!(status(host, ring, descriptor(0x01, memory, 8192)), 0x11);
        assert_eq!(status(host, ring, descriptor(segment, lists, 40)), 0x0d);
        assert_eq!(status(host, ring, descriptor(segment, lists, 0)), 0x0d);
        assert_eq!(status(host, ring, descriptor(last, lists, 48)), 0x0d, "the last one has no next");
        assert_eq!(status(host, ring, descriptor(segment, lists + PAGE, 32)), 0x0d, "there is no last one");
        // A list that goes round.
        put(host, lists, &[entry(0), descriptor(segment, lists, 32)]);
        assert_eq!(status(host, ring, descriptor(segment, lists, 32)), 0x0d);
        assert_eq!(host.admin(command(6).list(descriptor(data, memory, 4096)).word(10, 1)).0, FINAL | 0x02);
    });
    let config = NvmeConfig { has_lists: false, ..NvmeConfig::default() };
    ready_as(1, config, NvmePlan::none(), FaultPlan::none(), |host, ring, _| {
        let memory = host.memory(4096);
        assert_eq!(host.status(ring, write(0, 5, 1).list(descriptor(0, memory, 4096))), FINAL | 0x02);
    });
}

#[test]
fn commands_that_do_not_fit_are_refused() {
    let config = NvmeConfig { transfer_shift: 1, ..NvmeConfig::default() };
    ready_as(1, config, NvmePlan::none(), FaultPlan::none(), |host, ring, _| {
        let memory = host.memory(2 * 4096);
        let two = |words: Words| words.pages(memory, memory + PAGE);
        let zeroes = |first, count| command(8).namespace(1).blocks(first, count);
        for (words, status) in [
            (read(memory, PAGES - 1, 1), 0),
            (read(memory, PAGES, 1), 0x80),
            (two(read(0, PAGES - 1, 2)), 0x80),
            (read(memory, u64::MAX, 1), 0x80),
            (two(read(0, 0, 2)), 0),
            (two(read(0, 0, 3)), 0x02),
            (read(memory, 0, 1).namespace(0), 0x0b),
            (read(memory, 0, 1).namespace(2), 0x0b),
            (flush().namespace(2), 0x0b),
            (flush().namespace(u32::MAX), 0),
            (zeroes(PAGES - 8, 8), 0),
            (zeroes(PAGES - 8, 9), 0x80),
            (command(0x55).namespace(1), 0x01),
        ] {
            assert_eq!(host.status(ring, words) & !FINAL, status, "{:x?}", words.0);
        }
    });
    let bare = NvmeConfig { has_compare: false, has_write_zeroes: false, has_shadow_doorbells: false, ..wide() };
    ready_as(1, bare, NvmePlan::none(), FaultPlan::none(), |host, ring, _| {
        for opcode in [5, 8] {
            assert_eq!(host.status(ring, command(opcode).namespace(1)), FINAL | 0x01);
        }
        assert_eq!(host.admin(command(0x7c).pages(1 << 20, 1 << 21)).0, FINAL | 0x01);
    });
}

#[test]
fn small_blocks_are_read_and_whole_pages_written() {
    let sim = SimExecutor::new(1);
    let geometry = Geometry { block_bytes: 512, ..pages_are_blocks() };
    let device = SimDevice::with_geometry(&sim.env(), 2 * PAGE, geometry, FaultPlan::none(), 1);
    let config = NvmeConfig::default();
    let model = crate::NvmeModel::new(&sim.env(), config.clone(), vec![Arc::new(device.clone())], NvmePlan::none(), 1);
    sim.run(|| {
        let mut host = Host::new(&model, &config, 1 << 20);
        host.start();
        let mut ring = host.pair(1, 8, 1);
        let (memory, data) = (host.memory(2 * 4096), pattern(8192, 3));
        device.set_contents(0, &data);
        for (first, count) in [(0, 1), (3, 2), (15, 1), (13, 3), (1, 9)] {
            let bytes = count as usize * 512;
            host.put(memory, &[0; 8192]);
            assert_eq!(host.status(&mut ring, read(memory, first, count).pages(memory, memory + PAGE)), 0);
            let start = first as usize * 512;
            assert!(host.get(memory, bytes) == data[start..start + bytes]);
            assert!(host.get(memory + bytes as u64, 8192 - bytes).iter().all(|byte| *byte == 0));
        }
        assert_eq!(host.status(&mut ring, write(memory, 5, 8)), 0);
        assert_eq!(host.status(&mut ring, write(memory, 5, 1)), FINAL | 0x06);
        assert_eq!(host.status(&mut ring, read(memory, 16, 1)), FINAL | 0x80);
    });
}

#[test]
fn what_is_promised_as_durable_survives_and_nothing_else_is_sure_to() {
    const THROUGH: u32 = 1 << 30;
    let plain = |host: &mut Host, ring: &mut host::Ring, word: u32| {
        let memory = host.memory(4096);
        host.put(memory, &[9; 4096]);
        assert_eq!(host.status(ring, write(memory, 2, 1).word(12, word)), 0);
    };
    let is_lost = |device: &SimDevice, byte: u8| {
        (0..50).any(|seed| device.crash(seed).contents(2 * PAGE..3 * PAGE).iter().any(|found| *found != byte))
    };
    sound(|host, ring, device| {
        plain(host, ring, 0);
        assert!(is_lost(device, 9));
        assert_eq!(host.status(ring, flush()), 0);
        assert!(!is_lost(device, 9));
        let zeroes = command(8).namespace(1).blocks(2, 1);
        assert_eq!(host.status(ring, zeroes), 0);
        assert!(is_lost(device, 0));
        assert_eq!(host.status(ring, zeroes.word(12, THROUGH)), 0);
        assert!(!is_lost(device, 0));
    });
    sound(|host, ring, device| {
        plain(host, ring, THROUGH);
        assert!(!is_lost(device, 9));
    });
    sound(|host, ring, device| {
        assert_eq!(host.admin(command(9).word(10, 6)), (0, 0));
        plain(host, ring, 0);
        assert!(!is_lost(device, 9), "the cache is off");
    });
}

#[test]
fn ranges_are_given_back() {
    sound(|host, ring, device| {
        let memory = host.memory(4096);
        let ranges = |list: &[(u32, u64)]| {
            let bytes =
                |(count, first): &(u32, u64)| [&[0; 4][..], &count.to_le_bytes(), &first.to_le_bytes()].concat();
            list.iter().flat_map(bytes).collect::<Vec<u8>>()
        };
        let discard = command(9).namespace(1).pages(memory, 0);
        let discards = |device: &SimDevice| device.changes();
        host.put(memory, &ranges(&[(2, 3), (1, PAGES - 1), (0, 0)]));
        let before = discards(device);
        assert_eq!(host.status(ring, discard.word(10, 2).word(11, 4)), 0);
        assert_eq!(discards(device), before + 2);
        assert_eq!(host.status(ring, discard.word(10, 2)), 0, "a hint without the bit");
        assert_eq!(discards(device), before + 2);
        host.put(memory, &ranges(&[(2, 3), (2, PAGES - 1)]));
        assert_eq!(host.status(ring, discard.word(10, 1).word(11, 4)), FINAL | 0x80);
        assert_eq!(discards(device), before + 2, "all of them, or none");
    });
}

#[test]
fn errors_of_the_medium_are_statuses() {
    for (operation, words, fault, status) in [
        (Operation::Read, read(0, 1, 1), Fault::Io, 0x281),
        (Operation::WritePages, write(0, 1, 1), Fault::Io, 0x280),
        (Operation::WritePages, write(0, 1, 1), Fault::NoSpace, 0x81),
        (Operation::Sync, flush(), Fault::Io, 0x06),
        (Operation::Zero, command(8).namespace(1).blocks(1, 1), Fault::Io, 0x280),
    ] {
        let faults = FaultPlan::none().with(Rule::new(fault).on(&[operation]).nth(0));
        ready(NvmePlan::none(), faults, |host, ring, _| {
            let memory = host.memory(4096);
            assert_eq!(host.status(ring, words.pages(memory, 0)), FINAL | status);
            assert_eq!(host.status(ring, words.pages(memory, 0)), 0);
        });
    }
}

#[test]
fn memory_that_is_not_mapped_is_not_reached() {
    for hides in [false, true] {
        let config = NvmeConfig { hides_dma_faults: hides, ..NvmeConfig::default() };
        ready_as(1, config, NvmePlan::none(), FaultPlan::none(), |host, ring, device| {
            device.set_contents(0, &[5; 4096]);
            let memory = host.memory(4096);
            // Behind a mapping, over its end, and where one was.
            assert_eq!(host.status(ring, read(memory + PAGE, 0, 1)), if hides { 0 } else { 4 });
            assert_eq!(host.model.faults().len(), 1);
            let over = descriptor(0, memory + 8, 4096);
            assert_eq!(host.status(ring, read(0, 0, 1).list(over)), if hides { 0 } else { 4 });
            assert!(host.get(memory, 4096).iter().all(|byte| *byte == 0), "not in part");
            host.unmap(memory);
            assert_eq!(host.status(ring, write(memory, 0, 1)), if hides { 0 } else { 4 });
            let faults = host.model.faults();
            assert_eq!((faults[0].address, faults[0].bytes, faults[0].is_write), (memory + PAGE, 4096, true));
            assert_eq!((faults[2].address, faults[2].is_write, faults.len()), (memory, false, 3));
            assert_eq!(device.contents(0..PAGE)[0], if hides { 0 } else { 5 });
            host.map_at(memory, 4096);
            assert_eq!(host.status(ring, read(memory, 0, 1)), 0);
        });
    }
}

#[test]
fn mappings_do_not_overlap_and_adjacent_ones_are_one_memory() {
    sound(|host, ring, device| {
        device.set_contents(0, &pattern(8192, 1));
        let memory = host.next_address;
        host.next_address += 1 << 20;
        host.map_at(memory, 4096);
        host.map_at(memory + PAGE, 4096);
        assert!(host.try_map(memory).is_err() && host.try_map(memory + PAGE).is_err());
        assert!(host.try_map(memory + 64).is_err() && host.try_map(0).is_err() && host.try_map(1 << 40).is_err());
        assert_eq!(host.status(ring, read(0, 0, 1).list(descriptor(0, memory + 2048, 4096))), 0);
        let found = [host.get(memory + 2048, 2048), host.get(memory + PAGE, 2048)].concat();
        assert!(found == pattern(8192, 1)[..4096]);
        let before = host.model.counts().mapped_bytes;
        host.unmap(memory);
        assert_eq!(host.model.counts().mapped_bytes, before - PAGE);
        host.model.unmap(memory, 4096);
        assert_eq!(host.model.violations().len(), 1);
    });
}

#[test]
fn a_ring_that_is_not_mapped_is_fatal() {
    for which in 0..2 {
        sound(|host, ring, _| {
            host.unmap([ring.submission, ring.completion][which]);
            if which == 0 {
                host.doorbell(1, false, 1);
            } else {
                host.submit(ring, flush());
                host.model.settle();
                host.env().clock.sleep(MS);
                host.model.settle();
            }
            assert_eq!(host.model.read(0x1c) & 2, 2);
            let faults = host.model.faults();
            assert_eq!((faults.len(), faults[0].is_write), (1, which == 1));
        });
    }
}

#[test]
fn a_stopped_function_reaches_no_memory() {
    sound(|host, ring, _| {
        let (memory, address) = (host.memory(4096), host.next_address);
        host.enqueue(ring, read(memory, 0, 1));
        host.model.stop();
        host.ring(ring);
        assert_eq!(host.peek(ring), None);
        assert_eq!((host.model.read(0x1c) & 2, host.model.faults().len()), (2, 1));
        assert!(host.try_map(address).is_err());
    });
}
