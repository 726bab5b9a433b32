use super::*;
use proptest::prelude::*;

/// The error that arrives when `error` was sent.
fn sent(error: &CallError) -> CallError {
    CallError::decode(&error.encode())
}

#[test]
fn every_error_of_a_volume_arrives_as_what_it_was() {
    let denied = io::Error::from(ErrorKind::PermissionDenied);
    let errors = [
        Error::io("write", "a/000001.table", denied),
        Error::io("write", "a/000001.table", io::Error::from_raw_os_error(28)),
        Error::corruption("000007.table", 4096, "data block", "checksum 1", "checksum 2"),
        Error::Locked { path: "LOCK".to_owned(), why: Some("here".to_owned()) },
        Error::Locked { path: "LOCK".to_owned(), why: None },
        Error::io("open", "CURRENT", io::Error::from(ErrorKind::NotFound)),
        Error::NotInMemory,
        Error::Invalid("no".to_owned()),
    ];
    for error in errors {
        let CallError::Storage(arrived) = sent(&CallError::Storage(error.clone())) else { panic!("{error}") };
        assert_eq!(std::mem::discriminant(&arrived), std::mem::discriminant(&error));
        assert_eq!(arrived.to_string(), error.to_string());
        assert_eq!(arrived.is_permission_denied(), error.is_permission_denied());
        assert_eq!(arrived.is_no_space(), error.is_no_space());
    }
}

#[test]
fn kinds_of_io_errors_have_codes_of_their_own() {
    for (code, kind) in IO_KINDS {
        assert_eq!((kind_code(kind), kind_of(code)), (code, kind));
    }
    assert_eq!((kind_code(ErrorKind::BrokenPipe), kind_of(255)), (0, ErrorKind::Other));
}

#[test]
fn a_verb_from_elsewhere_is_kept_in_the_words() {
    let error = Error::io("defragment", "x", io::Error::other("why not"));
    let arrived = sent(&CallError::Storage(error)).to_string();
    assert_eq!(arrived, "cannot use x: defragment: why not");
}

#[test]
fn what_only_the_protocol_knows_arrives_too() {
    let text = || "words".to_owned();
    assert!(matches!(sent(&CallError::Unknown(text())), CallError::Unknown(words) if words == "words"));
    assert!(matches!(sent(&CallError::Fenced(text())), CallError::Fenced(_)));
    assert!(matches!(sent(&CallError::Unsupported(text())), CallError::Unsupported(_)));
    assert!(matches!(sent(&CallError::Busy(text())), CallError::Busy(_)));
    assert!(matches!(sent(&CallError::Refused(text())), CallError::Refused(_)));
    let fenced = CallError::Fenced(text()).into_storage("write", "000001.log");
    assert!(matches!(fenced, Error::Locked { why: Some(why), .. } if why == "words"));
}

#[test]
fn a_lost_node_is_named_by_the_error_of_the_file() {
    let lost = CallError::Lost { node: "node 10.0.0.2:7070".to_owned(), why: "it is gone".to_owned() };
    let text = lost.into_storage("read", "000001.table").to_string();
    assert!(text.contains("000001.table") && text.contains("node 10.0.0.2:7070"), "{text}");
}

proptest! {
    #[test]
    fn any_bytes_are_an_error(payload in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = CallError::decode(&payload).to_string();
    }
}
