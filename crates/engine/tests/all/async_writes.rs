//! Asynchronous writes: every future is woken, whoever publishes its request.

use situ_engine::{Durability, Store};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

struct Signal(mpsc::SyncSender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        // A second wake-up before the first is heard says nothing new.
        let _ = self.0.try_send(());
    }
}

/// Polls only when woken; `None` if no wake-up comes.
fn wait<F: Future>(future: F) -> Option<F::Output> {
    let (sender, woken) = mpsc::sync_channel(1);
    let waker = Arc::new(Signal(sender)).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        woken.recv_timeout(Duration::from_secs(20)).ok()?;
    }
}

/// A buffered write was applied by its caller's thread, found a synced write before it that was not durable yet, and
/// was published by the log worker, which woke only the futures of writes that it had carried itself.
#[test]
fn a_buffered_write_behind_a_synced_one_is_woken() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for round in 0..20u8 {
        let synced = store.put_with_async([round, 0], b"synced", Durability::Synced);
        let buffered = store.put_with_async([round, 1], b"buffered", Durability::Buffered);
        wait(buffered).expect("nobody woke the buffered write").unwrap();
        wait(synced).expect("nobody woke the synced write").unwrap();
    }
    store.close().unwrap();
}
