//! The host's end, against nodes that do not keep to the protocol.

use super::*;
use crate::frame::Side;
use crate::message::{Call, Challenge, Close, Hello, Message, Operation, Prove};
use crate::peer::Reply;
use crate::testing::{Asked, SOON, begin, eventually};
use crate::transport::Listener;
use crate::{NodeAddress, Place};
use std::sync::atomic::AtomicUsize;

/// An impostor that knows no secret: it asks its host as soon as the host says hello, and again when the host has
/// proven itself.
fn impostor(refused: Arc<AtomicUsize>) -> Arc<dyn Handler> {
    let challenge = Challenge { version: 1, secret: true, nonce: [3; 32], payload_bytes_max: 0 };
    Arc::new(Asked(move |peer: &Peer, operation, _: Vec<u8>, reply: Reply| {
        let refused = Arc::clone(&refused);
        let close = Close { handle: 1 }.encode();
        peer.call_later(Close::OPERATION as u16, close, Some(SOON), move |answer| {
            if matches!(answer, Err(CallError::Refused(_))) {
                refused.fetch_add(1, Ordering::SeqCst);
            }
        });
        match Operation::of(operation) {
            Some(Hello::OPERATION) => reply.tell(&challenge),
            // The impostor cannot answer the proof, and keeps the host waiting.
            Some(Prove::OPERATION) => std::mem::forget(reply),
            _ => drop(reply),
        }
    }))
}

/// The host once served whoever had accepted its connection, before the proof of the node had come.
#[test]
fn a_node_that_has_not_proven_itself_is_answered_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::Unix(directory.path().join("socket"));
    let listener = Listener::bind(&place).unwrap();
    let (served, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&served);
    let handler = Asked(move |_: &Peer, _, _: Vec<u8>, reply: Reply| {
        counter.fetch_add(1, Ordering::SeqCst);
        drop(reply);
    });
    let options = NodeOptions {
        secret: Some(Secret::new(b"a secret of enough bytes").unwrap()),
        connect_timeout: SOON,
        read_patience: Duration::ZERO,
        ..NodeOptions::default()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().unwrap().open(None, SOON).unwrap();
            let node = begin(Side::Device, stream, &PeerOptions::default(), impostor(Arc::clone(&refused)));
            eventually("both requests are answered", || refused.load(Ordering::SeqCst) == 2);
            drop(node);
        });
        let address = NodeAddress { place: place.clone(), store: "shop".to_owned() };
        assert!(NodeClient::connect_with(address, options, Arc::new(handler)).is_err());
    });
    assert_eq!(served.load(Ordering::SeqCst), 0);
}
