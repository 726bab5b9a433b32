use super::*;
use crate::PAGE_BYTES;

fn device(pages: u64) -> (tempfile::NamedTempFile, FileDevice) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(pages * PAGE_BYTES as u64).unwrap();
    let device = FileDevice::open(file.path()).unwrap();
    (file, device)
}

fn filled(bytes: usize, with: u8) -> Buffer {
    let mut buffer = Buffer::new(bytes);
    buffer.fill(with);
    buffer
}

/// One operation, waited for.
fn run(device: &dyn Device, op: Op, buffer: Buffer) -> io::Result<Buffer> {
    let mut queue = device.queue(1).unwrap();
    queue.submit(op, buffer).unwrap();
    let mut done = Vec::new();
    assert_eq!(queue.wait(&mut done, Duration::ZERO), 1);
    let done = done.pop().unwrap();
    done.result.map(|()| done.buffer)
}

#[test]
fn reads_back_what_was_written() {
    let (_file, device) = device(4);
    let mut queue = device.queue(2).unwrap();
    let mut done = Vec::new();
    queue.submit(Op::Write { offset: 4096, durable: true }, filled(PAGE_BYTES, 9)).unwrap();
    queue.submit(Op::Read { offset: 4096 }, Buffer::new(PAGE_BYTES)).unwrap();
    assert_eq!(queue.wait(&mut done, Duration::ZERO), 2);
    assert!(done.iter().all(|c| c.result.is_ok()));
    assert!(done[1].buffer.iter().all(|b| *b == 9));
}

#[test]
fn a_full_queue_hands_the_buffer_back() {
    let (_file, device) = device(1);
    let mut queue = device.queue(1).unwrap();
    queue.submit(Op::Flush, Buffer::new(1)).unwrap();
    let (buffer, error) = queue.submit(Op::Flush, Buffer::new(1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(buffer.len(), PAGE_BYTES);
}

#[test]
fn bad_addresses_are_refused_with_the_reason() {
    let (_file, device) = device(1024);
    let mut queue = device.queue(1).unwrap();
    let mut refused = |op, buffer| queue.submit(op, buffer).unwrap_err().1.to_string();
    let behind = refused(Op::Read { offset: 4 << 20 }, Buffer::new(1));
    assert!(behind.contains("ends behind the device"), "{behind}");
    let odd = refused(Op::Read { offset: 1 }, Buffer::new(1));
    assert!(odd.contains("whole blocks"), "{odd}");
    let long = refused(Op::Read { offset: 0 }, Buffer::new((1 << 20) + 1));
    assert!(long.contains("longer than one transfer"), "{long}");
    let wrapped = refused(Op::Discard { offset: 4096, bytes: u64::MAX - 4095 }, Buffer::new(1));
    assert!(wrapped.contains("ends behind the device"), "{wrapped}");
}

#[test]
fn zeroed_and_discarded_bytes_of_a_file_read_as_zero() {
    let (_file, device) = device(1024);
    assert!(device.geometry().discard_zeroes);
    for page in 0..3 {
        run(&device, Op::Write { offset: page * 4096, durable: false }, filled(1, 7)).unwrap();
    }
    run(&device, Op::Zero { offset: 0, bytes: 4096 }, Buffer::new(1)).unwrap();
    run(&device, Op::Discard { offset: 4096, bytes: 4096 }, Buffer::new(1)).unwrap();
    for (page, value) in [(0, 0), (1, 0), (2, 7)] {
        let read = run(&device, Op::Read { offset: page * 4096 }, Buffer::new(1)).unwrap();
        assert!(read.iter().all(|b| *b == value), "page {page}");
    }
    run(&device, Op::Zero { offset: 4096, bytes: 1023 * 4096 }, Buffer::new(1)).unwrap();
    assert!(run(&device, Op::Read { offset: 8192 }, Buffer::new(1)).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn a_file_zeroed_once_is_written_in_place_from_then_on() {
    let (file, device) = device(1024);
    let used = device.space().logical_used;
    run(&device, Op::Zero { offset: 0, bytes: 1024 * 4096 }, Buffer::new(1)).unwrap();
    run(&device, Op::Flush, Buffer::new(1)).unwrap();
    assert!(used < 1024 * 4096);
    assert_eq!(device.space().logical_used, 1024 * 4096);
    assert_eq!(FileDevice::open(file.path()).unwrap().geometry().discard_bytes, 0);
}

#[test]
fn room_that_is_reserved_is_not_given_back() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![1; 8192]).unwrap();
    file.as_file().sync_all().unwrap();
    let device = FileDevice::open(file.path()).unwrap();
    let error = run(&device, Op::Discard { offset: 0, bytes: 4096 }, Buffer::new(1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn a_file_that_has_shrunk_is_an_error_not_a_short_read() {
    let (file, device) = device(4);
    file.as_file().set_len(4096 + 512).unwrap();
    for (offset, bytes) in [(0, 8192), (8192, 4096)] {
        let error = run(&device, Op::Read { offset }, Buffer::new(bytes)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("shorter than when it was opened"), "{error}");
    }
}

#[test]
fn one_opener_has_the_right_to_write() {
    let (file, device) = device(1);
    let other = crate::open(file.path(), crate::OpenOptions { read_only: true, ..Default::default() }).unwrap();
    let lock = device.lock().unwrap();
    for second in [device.lock(), other.lock()] {
        let error = second.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().contains("this process has"), "{error}");
    }
    drop(lock);
    other.lock().unwrap();
}

#[test]
fn a_device_describes_itself() {
    let (file, device) = device(1);
    let text = device.describe();
    assert!(text.contains("regular file") && text.contains("pread"), "{text}");
    assert!(text.contains(&file.path().display().to_string()), "{text}");
}
