use super::*;
use std::os::unix::ffi::OsStrExt;

fn request(arguments: &[&[u8]]) -> AdminRequest {
    let arguments = arguments.iter().map(|argument| std::ffi::OsStr::from_bytes(argument).to_owned()).collect();
    AdminRequest { arguments, directory: "/home/ada".into() }
}

/// `docs/formats/admin.md` has these bytes.
#[test]
fn a_request_has_the_bytes_of_its_format() {
    let golden = br#"{"version":1,"arguments":["put","k",[255,0,10]],"directory":"/home/ada"}"#;
    let request = request(&[b"put", b"k", &[255, 0, 10]]);
    assert_eq!(String::from_utf8(request.encode()).unwrap(), String::from_utf8_lossy(golden));
    assert_eq!(AdminRequest::decode(golden), Ok(request));
}

#[test]
fn a_request_of_another_version_is_refused_with_a_cure() {
    // Of a later version, no other part is known.
    let refused = AdminRequest::decode(br#"{"version":2,"line":"compact"}"#).unwrap_err();
    assert!(refused.contains("version 2") && refused.contains("takes version 1"), "{refused}");
    assert!(refused.contains(env!("CARGO_PKG_VERSION")), "{refused}");
}

#[test]
fn a_malformed_request_is_refused() {
    let bodies: [&[u8]; 7] = [
        b"",
        b"compact",
        b"[]",
        br#"{"version":"one"}"#,
        br#"{"version":1}"#,
        br#"{"version":1,"arguments":[[256]],"directory":"/"}"#,
        br#"{"version":1,"arguments":"compact","directory":"/"}"#,
    ];
    for body in bodies {
        let refused = AdminRequest::decode(body).unwrap_err();
        assert!(refused.starts_with("the request is malformed: "), "{refused}");
    }
}

#[test]
fn a_request_is_bounded_before_it_is_read() {
    let mut sent = &[&(REQUEST_BYTES_MAX as u32 + 1).to_le_bytes()[..], b"{"].concat()[..];
    let refused = read_request(&mut sent).unwrap().unwrap_err();
    assert!(refused.contains("at most 4194304"), "{refused}");
    let mut client = AdminClient(UnixStream::pair().unwrap().0);
    let long = client.send(&request(&[&vec![b'a'; REQUEST_BYTES_MAX]])).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_client_that_goes_before_the_end_of_its_request_gets_no_answer() {
    let whole = request(&[b"flush"]).encode();
    let sent = [&(whole.len() as u32).to_le_bytes()[..], &whole].concat();
    for cut in 0..sent.len() {
        assert!(read_request(&mut &sent[..cut]).is_none(), "{cut} bytes");
    }
    assert_eq!(read_request(&mut &sent[..]), Some(Ok(request(&[b"flush"]))));
}

#[test]
fn frames_arrive_as_they_were_sent() {
    let (here, there) = UnixStream::pair().unwrap();
    let answer = AdminAnswer::new(here.into(), false);
    let long: Vec<u8> = (0..=255).cycle().take(FRAME_BYTES_MAX + 1).collect();
    let sender = std::thread::spawn(move || {
        answer.stdout(&long).unwrap();
        answer.stderr(b"situ: well\n").unwrap();
        answer.stdout(b"").unwrap();
        answer.exit(4).unwrap();
        answer.refuse("no").unwrap();
        long
    });
    let mut client = AdminClient(there);
    let frames: Vec<AdminFrame> = std::iter::from_fn(|| client.next_frame().ok()).collect();
    let long = sender.join().unwrap();
    let expected = [
        AdminFrame::Stdout(long[..FRAME_BYTES_MAX].to_vec()),
        AdminFrame::Stdout(long[FRAME_BYTES_MAX..].to_vec()),
        AdminFrame::Stderr(b"situ: well\n".to_vec()),
        AdminFrame::Exit(4),
        AdminFrame::Refused("no".to_owned()),
    ];
    assert!(frames == expected, "{} frames", frames.len());
}

#[test]
fn what_is_no_frame_is_an_error() {
    let too_long = [&[STDOUT][..], &(FRAME_BYTES_MAX as u32 + 1).to_le_bytes()].concat();
    for bytes in [&[9, 0, 0, 0, 0][..], &[EXIT, 0, 0, 0, 0], &[EXIT, 2, 0, 0, 0, 1, 2], &too_long] {
        assert_eq!(AdminFrame::read(&mut &bytes[..]).unwrap_err().kind(), ErrorKind::InvalidData, "{bytes:?}");
    }
    let cut = AdminFrame::read(&mut &[STDOUT, 2, 0, 0, 0, 1][..]).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_client_that_has_gone_is_a_broken_pipe() {
    let (here, there) = UnixStream::pair().unwrap();
    let answer = AdminAnswer::new(here.into(), false);
    assert!(!answer.is_gone());
    drop(there);
    assert!(answer.is_gone());
    assert_eq!(answer.stdout(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}
