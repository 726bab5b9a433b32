//! The bytes of commands against the layouts of `linux/nvme_ioctl.h` and of the NVM Express specifications (base,
//! "Common Command Format"; NVM command set, "Read", "Write", "Write Zeroes", "Dataset Management"; base, "Flush").

use super::*;
use crate::buffer::zeros;
use crate::nvme::commands::{DISCARD_BYTES_MAX, RETRIES, ZEROES_BLOCKS_MAX};
use crate::{Buffer, Op, PAGE_BYTES, Ticket};

const NAMESPACE: u32 = 0x0102_0304;
const BLOCK: u64 = 512;
/// Not in the first four billion blocks: both words of an address count.
const OFFSET: u64 = (0x12_3456_789a) * BLOCK;

fn namespace() -> Namespace {
    let geometry = Geometry {
        block_bytes: BLOCK as u32,
        atomic_write_bytes: BLOCK as u32,
        max_transfer_bytes: 128 << 10,
        volatile_write_cache: true,
        discard_bytes: BLOCK as u32,
        discard_zeroes: false,
    };
    Namespace { id: NAMESPACE, bytes: 1 << 60, geometry, writes_zeroes: true }
}

fn commands(namespace: Namespace) -> NvmeCommands {
    NvmeCommands::new(Arc::new(tempfile::tempfile().unwrap()), namespace)
}

fn operation(op: Op, pages: usize) -> InFlight {
    InFlight::new(Ticket(0), op, Buffer::new(pages * PAGE_BYTES))
}

fn write(durable: bool) -> InFlight {
    operation(Op::Write { offset: OFFSET, durable }, 2)
}

/// A command, taken apart at the offsets that the kernel has for it.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    opcode: u8,
    namespace: u32,
    address: u64,
    data_bytes: u32,
    word_10: u32,
    word_11: u32,
    word_12: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn fields(command: &Command) -> Fields {
    // Flags and a reserved half word; words 2 and 3, and where metadata lies; its length; words 13 to 15, the timeout,
    // a reserved word and what is behind the 72 bytes.
    for unused in [1..4, 8..24, 32..36, 52..80] {
        assert!(command[unused.clone()].iter().all(|byte| *byte == 0), "{unused:?} of {command:?}");
    }
    Fields {
        opcode: command[0],
        namespace: word(command, 4),
        address: long(command, 24),
        data_bytes: word(command, 36),
        word_10: word(command, 40),
        word_11: word(command, 44),
        word_12: word(command, 48),
    }
}

fn planned(commands: &NvmeCommands, operation: &mut InFlight) -> Fields {
    match commands.plan_command(operation) {
        Plan::Entry(command) => fields(&command),
        Plan::Done(result) => panic!("done without a command: {result:?}"),
    }
}

/// The command under way succeeds; it was the last one of the operation, or was not.
fn succeeds(commands: &NvmeCommands, operation: &mut InFlight, was_last: bool) {
    match commands.step(operation, 0) {
        Step::Done(result) => assert!(was_last && result.is_ok(), "{result:?} after {} bytes", operation.done),
        Step::Continue => assert!(!was_last, "more after {} bytes", operation.done),
        Step::Retry => panic!("a success is not tried again"),
    }
}

fn is_done(commands: &NvmeCommands, operation: &mut InFlight) -> io::Result<()> {
    match commands.plan_command(operation) {
        Plan::Entry(command) => panic!("{:?} for {:?}", fields(&command), operation.op),
        Plan::Done(result) => result,
    }
}

/// What a command on blocks looks like that moves the operation's buffer.
fn transfer(operation: &InFlight, opcode: u8, word_12: u32) -> Fields {
    Fields {
        opcode,
        namespace: NAMESPACE,
        address: operation.buffer.address() as u64,
        data_bytes: operation.buffer.len() as u32,
        word_10: 0x3456_789a,
        word_11: 0x12,
        word_12,
    }
}

#[test]
fn the_number_of_the_ring_command_is_the_kernels() {
    let command = rustix::ioctl::opcode::read_write::<[u64; 9]>(b'N', 0x80);
    // Of another width under Miri, where rustix goes through libc.
    assert_eq!(u64::from(NVME_URING_CMD_IO), u64::from(command));
}

#[test]
fn a_read_names_its_blocks_from_zero_and_its_buffer() {
    let mut read = operation(Op::Read { offset: OFFSET }, 2);
    // Sixteen blocks: the number in the twelfth word is one less.
    assert_eq!(planned(&commands(namespace()), &mut read), transfer(&read, 0x02, 15));
    let mut namespace = namespace();
    namespace.geometry.block_bytes = 4096;
    let mut read = operation(Op::Read { offset: 5 * 4096 }, 1);
    let fields = planned(&commands(namespace), &mut read);
    assert_eq!((fields.word_10, fields.word_11, fields.word_12), (5, 0, 0));
}

#[test]
fn a_durable_write_has_force_unit_access_and_another_has_not() {
    let commands = commands(namespace());
    let mut durable = write(true);
    assert_eq!(planned(&commands, &mut durable), transfer(&durable, 0x01, 1 << 30 | 15));
    let mut plain = write(false);
    assert_eq!(planned(&commands, &mut plain), transfer(&plain, 0x01, 15));
}

#[test]
fn a_flush_is_for_the_namespace_and_has_nothing_else() {
    let expected =
        Fields { opcode: 0, namespace: NAMESPACE, address: 0, data_bytes: 0, word_10: 0, word_11: 0, word_12: 0 };
    assert_eq!(planned(&commands(namespace()), &mut operation(Op::Flush, 1)), expected);
}

#[test]
fn a_drive_without_a_volatile_cache_gets_neither_flush_nor_force_unit_access() {
    let mut namespace = namespace();
    namespace.geometry.volatile_write_cache = false;
    let commands = commands(namespace);
    is_done(&commands, &mut operation(Op::Flush, 1)).unwrap();
    let mut durable = write(true);
    assert_eq!(planned(&commands, &mut durable), transfer(&durable, 0x01, 15));
}

#[test]
fn what_is_given_back_is_described_in_a_range_and_goes_by_parts() {
    let commands = commands(namespace());
    let bytes = DISCARD_BYTES_MAX + 8 * BLOCK;
    let mut discard = operation(Op::Discard { offset: OFFSET, bytes }, 1);
    for (first, blocks) in
        [(OFFSET / BLOCK, (DISCARD_BYTES_MAX / BLOCK) as u32), ((OFFSET + DISCARD_BYTES_MAX) / BLOCK, 8)]
    {
        let fields = planned(&commands, &mut discard);
        let range = discard.aside.as_ref().unwrap();
        let expected = Fields {
            opcode: 0x09,
            namespace: NAMESPACE,
            address: range.address() as u64,
            data_bytes: 16,
            // One range, counted from zero; deallocate.
            word_10: 0,
            word_11: 1 << 2,
            word_12: 0,
        };
        assert_eq!(fields, expected);
        // Context attributes, length in blocks, first block.
        assert_eq!((word(range, 0), word(range, 4), long(range, 8)), (0, blocks, first));
        succeeds(&commands, &mut discard, first + u64::from(blocks) == (OFFSET + bytes) / BLOCK);
    }
}

#[test]
fn a_drive_that_cannot_give_back_room_is_not_asked_to() {
    let mut namespace = namespace();
    namespace.geometry.discard_bytes = 0;
    let refused = is_done(&commands(namespace), &mut operation(Op::Discard { offset: 0, bytes: BLOCK }, 1));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::Unsupported);
}

#[test]
fn zeroing_is_a_command_without_data_of_at_most_as_many_blocks_as_its_field_can_say() {
    let commands = commands(namespace());
    let bytes = ZEROES_BLOCKS_MAX * BLOCK + 3 * BLOCK;
    let mut zero = operation(Op::Zero { offset: OFFSET, bytes }, 1);
    let most = Fields {
        opcode: 0x08,
        namespace: NAMESPACE,
        address: 0,
        data_bytes: 0,
        word_10: 0x3456_789a,
        word_11: 0x12,
        word_12: 0xffff,
    };
    assert_eq!(planned(&commands, &mut zero), most);
    succeeds(&commands, &mut zero, false);
    assert_eq!(planned(&commands, &mut zero), Fields { word_10: 0x3457_789a, word_12: 2, ..most });
    succeeds(&commands, &mut zero, true);
}

#[test]
fn without_the_command_zeros_are_written_in_transfers_that_the_drive_takes() {
    let mut namespace = namespace();
    namespace.writes_zeroes = false;
    let most = u64::from(namespace.geometry.max_transfer_bytes);
    let commands = commands(namespace);
    let mut zero = operation(Op::Zero { offset: 0, bytes: most + BLOCK }, 1);
    for (first, bytes) in [(0, most), (most / BLOCK, BLOCK)] {
        let expected = Fields {
            opcode: 0x01,
            namespace: NAMESPACE,
            address: zeros().address() as u64,
            data_bytes: bytes as u32,
            word_10: first as u32,
            word_11: 0,
            word_12: (bytes / BLOCK) as u32 - 1,
        };
        assert_eq!(planned(&commands, &mut zero), expected);
        succeeds(&commands, &mut zero, bytes == BLOCK);
    }
}

#[test]
fn a_status_is_an_error_once_the_drive_says_so_or_said_it_often() {
    let commands = commands(namespace());
    let (write_fault, do_not_retry) = (0x280, 0x4000);
    let mut operation = write(true);
    assert!(matches!(commands.step(&mut operation, write_fault), Step::Retry));
    assert!(matches!(commands.step(&mut operation, write_fault | do_not_retry), Step::Done(Err(_))));
    operation.retries = RETRIES;
    assert!(matches!(commands.step(&mut operation, write_fault), Step::Done(Err(_))));
}
