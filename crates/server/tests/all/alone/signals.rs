//! SIGHUP is passed on and survived, SIGTERM ends the wait. In a process of its own, as signals belong to all of it.

use super::own_process::in_own_process;
use crate::memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::raise;
use situ_server::{Server, ServerOptions, StopSignal};

#[test]
fn a_hangup_is_survived_and_a_termination_ends_the_wait() {
    in_own_process(|| {
        // Until the server waits, the signals must not have their deadly default.
        for signal in [SIGHUP, SIGTERM] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
        }
        let options = ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ServerOptions::default() };
        let server = Server::start(&options, memory::MemoryEngine::start(None)).unwrap();
        assert!(server.addresses()[0].ip().is_loopback());
        let hangups = AtomicUsize::new(0);
        let ended = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let signal = server.wait_for_signal(|| {
                    hangups.fetch_add(1, Ordering::SeqCst);
                });
                ended.store(true, Ordering::SeqCst);
                signal
            });
            while hangups.load(Ordering::SeqCst) == 0 && Instant::now() < deadline {
                raise(SIGHUP).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!ended.load(Ordering::SeqCst), "a hangup ended the wait");
            raise(SIGTERM).unwrap();
            assert_eq!(waiting.join().unwrap().unwrap(), StopSignal::Terminate);
        });
        assert!(hangups.load(Ordering::SeqCst) > 0);
        server.stop(Duration::from_secs(5));
    });
}
