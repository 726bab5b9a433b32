use super::*;
use std::sync::mpsc::{Sender, channel};
use std::task::Wake;
use std::time::Duration;

struct Tell(Mutex<Sender<()>>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        let _ = lock(&self.0).send(());
    }
}

/// The outcome of a read; a test that would wait for ever fails.
fn outcome<T: Clone>(mut future: ReadFuture<T>) -> Result<T> {
    let (sender, woken) = channel();
    let waker = Waker::from(Arc::new(Tell(Mutex::new(sender))));
    loop {
        if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        woken.recv_timeout(Duration::from_secs(20)).expect("the future is woken");
    }
}

#[test]
fn promise_7_a_read_that_panics_is_answered_and_the_threads_go_on() {
    // The panic used to end the thread and leave the future pending; when all threads were gone, so were all others.
    let env = Env::system();
    let readers = Readers::new(StoreId::new(), &env);
    for _ in 0..2 * READ_THREADS_MAX {
        let error = outcome(readers.submit(|| -> Result<u8> { panic!("damaged beyond words") }).unwrap());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("the read panicked: damaged beyond words"), "{text}");
    }
    assert_eq!(outcome(readers.submit(|| Ok(7)).unwrap()).unwrap(), 7);
    readers.close();
}

#[test]
fn promise_7_a_read_that_panics_on_its_callers_thread_is_answered() {
    // With all threads busy and the queue full the caller reads, and must not be unwound through the store's code.
    let env = Env::system();
    let readers = Readers::new(StoreId::new(), &env);
    let (hold, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let mut waiting = Vec::new();
    for _ in 0..READ_THREADS_MAX {
        let held = Arc::clone(&held);
        let read = move || lock(&held).recv().map_or(Ok(0), |()| Ok(1));
        waiting.push(readers.submit(read).unwrap());
    }
    // Beyond the threads and the queue, reads run here.
    for _ in 0..READ_THREADS_MAX + WAITING_READS_MAX {
        _ = readers.workers.run(Box::new(|| {}));
    }
    let error = outcome(readers.submit(|| -> Result<u8> { panic!("here") }).unwrap());
    assert!(error.unwrap_err().to_string().contains("the read panicked: here"));
    drop(hold);
    readers.close();
    waiting.into_iter().for_each(|future| assert_eq!(outcome(future).unwrap(), 0));
}
