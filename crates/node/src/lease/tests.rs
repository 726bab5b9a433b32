use super::*;
use situ_sim::SimExecutor;
use situ_storage::DirectoryVolume;
use std::sync::atomic::{AtomicBool, Ordering};

const TERM: Duration = Duration::from_secs(10);

/// A node in a simulated world whose clients are all connected, or none.
#[derive(Default)]
struct World {
    connected: AtomicBool,
}

impl Clients for World {
    fn is_connected(&self, _id: u128) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

impl Lease {
    /// A change of the owner.
    fn change(&self, token: u64) -> Result<Pass, CallError> {
        let client = self.holder_id().unwrap_or_default();
        self.enter(token, client)
    }

    fn try_change(&self, token: u64) -> Result<(), CallError> {
        self.change(token).map(drop)
    }
}

fn owner(id: u128) -> Owner {
    Owner { id, name: format!("client {id}") }
}

fn lease(env: &Env, directory: &std::path::Path) -> Lease {
    let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::create(directory).unwrap());
    Lease::open(env, "shop", TERM, Note::Beside(directory.to_owned()), &volume).unwrap()
}

/// Runs `test` in a simulated world with a directory for the note.
fn in_a_world(test: impl FnOnce(&Env, &std::path::Path, &World) + Send + 'static) {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(move || {
        let directory = tempfile::tempdir().unwrap();
        test(&env, directory.path(), &World::default());
    });
}

fn why(error: &Error) -> String {
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    error.to_string()
}

fn fenced(error: &CallError) -> String {
    assert!(matches!(error, CallError::Fenced(_)), "{error}");
    error.to_string()
}

#[test]
fn a_second_client_is_refused_while_the_first_is_alive_and_is_told_who_has_the_store() {
    in_a_world(|env, at, world| {
        world.connected.store(true, Ordering::Relaxed);
        let lease = lease(env, at);
        let token = lease.take(&owner(1), TERM, world).unwrap();
        let before = env.clock.now();
        let refused = why(&lease.take(&owner(2), TERM, world).unwrap_err());
        assert!(refused.contains("client 1 has had it open since 19") || refused.contains("since 20"), "{refused}");
        assert_eq!(env.clock.now(), before, "a client that is alive is not waited for");
        lease.try_change(token).unwrap();
        assert_eq!(lease.take(&owner(1), TERM, world).unwrap(), token, "a repeat of a request is the same request");
    });
}

#[test]
fn a_silent_owner_keeps_the_lease_until_somebody_asks() {
    in_a_world(|env, at, world| {
        let lease = lease(env, at);
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        env.clock.sleep(TERM * 20);
        lease.try_change(token).unwrap();
        env.clock.sleep(TERM * 20);
        let next = lease.take(&owner(2), Duration::ZERO, world).unwrap();
        assert!(next > token);
        let late = fenced(&lease.try_change(token).unwrap_err());
        assert!(late.contains("client 2 has had the lease since"), "{late}");
        lease.try_change(next).unwrap();
        lease.give_back(token);
        lease.try_change(next).unwrap();
    });
}

#[test]
fn the_lease_of_a_dead_owner_is_waited_for_until_its_term_is_over_and_no_longer() {
    in_a_world(|env, at, world| {
        let lease = lease(env, at);
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        let began = env.clock.now();
        assert!(lease.take(&owner(2), TERM / 4, world).is_err(), "its patience is over first");
        assert!(env.clock.now() - began >= TERM / 4);
        let next = lease.take(&owner(2), TERM * 2, world).unwrap();
        let waited = env.clock.now() - began;
        assert!(waited >= TERM && waited < TERM + Duration::from_secs(1), "{waited:?}");
        assert!(next > token && lease.try_change(token).is_err());
    });
}

#[test]
fn an_owner_that_comes_back_within_its_term_keeps_the_lease_from_the_one_that_waits() {
    in_a_world(|env, at, world| {
        let lease = Arc::new(lease(env, at));
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        let (back, clock) = (Arc::clone(&lease), Arc::clone(&env.clock));
        let comes_back = move || {
            for _ in 0..10 {
                clock.sleep(TERM / 2);
                back.try_change(token).unwrap();
            }
        };
        let job = env.executor.spawn("owner", Box::new(comes_back)).unwrap();
        assert!(lease.take(&owner(2), TERM * 4, world).is_err());
        job.join().unwrap();
        lease.try_change(token).unwrap();
    });
}

#[test]
fn only_one_client_waits() {
    in_a_world(|env, at, world| {
        let lease = Arc::new(lease(env, at));
        lease.take(&owner(1), Duration::ZERO, world).unwrap();
        let second = Arc::clone(&lease);
        let waits = move || {
            second.take(&owner(2), TERM * 2, &World::default()).unwrap();
        };
        let job = env.executor.spawn("second", Box::new(waits)).unwrap();
        env.clock.sleep(TERM / 4);
        let before = env.clock.now();
        assert!(lease.take(&owner(3), TERM * 2, world).is_err());
        assert_eq!(env.clock.now(), before);
        job.join().unwrap();
    });
}

#[test]
fn after_a_restart_the_owner_goes_on_and_its_successors_token_is_larger() {
    in_a_world(|env, at, world| {
        let token = lease(env, at).take(&owner(1), Duration::ZERO, world).unwrap();
        let restarted = lease(env, at);
        restarted.try_change(token).unwrap();
        assert!(restarted.take(&owner(2), Duration::ZERO, world).is_err(), "the owner has a term to come back");
        env.clock.sleep(TERM);
        let next = restarted.take(&owner(2), Duration::ZERO, world).unwrap();
        assert!(next > token);
        drop(restarted);
        let again = lease(env, at);
        assert!(again.try_change(token).is_err(), "a token that was overtaken is refused after a restart, too");
        again.try_change(next).unwrap();
        again.give_back(next);
        drop(again);
        let free = lease(env, at);
        assert!(free.holder_id().is_none());
        assert!(free.take(&owner(3), Duration::ZERO, world).unwrap() > next);
    });
}

#[test]
fn a_change_that_the_disk_keeps_is_waited_for_and_keeps_the_lease() {
    in_a_world(|env, at, world| {
        let lease = lease(env, at);
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        let pass = lease.change(token).unwrap();
        env.clock.sleep(TERM);
        for _ in 0..2 {
            let refused = why(&lease.take(&owner(2), Duration::ZERO, world).unwrap_err());
            assert!(refused.contains("does not finish"), "{refused}");
            assert!(lease.try_change(token).is_err());
        }
        drop(pass);
        assert!(lease.take(&owner(2), Duration::ZERO, world).unwrap() > token);
    });
}

#[test]
fn a_change_is_never_under_way_when_the_next_owner_has_its_token() {
    in_a_world(|env, at, world| {
        let lease = Arc::new(lease(env, at));
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        let pass = lease.change(token).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let (clock, noted) = (Arc::clone(&env.clock), Arc::clone(&done));
        env.clock.sleep(TERM);
        let slow = move || {
            clock.sleep(TERM);
            noted.store(true, Ordering::SeqCst);
            drop(pass);
        };
        let job = env.executor.spawn("slow change", Box::new(slow)).unwrap();
        lease.take(&owner(2), Duration::ZERO, world).unwrap();
        assert!(done.load(Ordering::SeqCst));
        job.join().unwrap();
    });
}

/// A server is closed and started again, and the node's disk has not finished what the first one had begun.
#[test]
fn a_lease_that_is_given_back_is_waited_for_and_a_refusal_says_what_takes_long() {
    in_a_world(|env, at, world| {
        let lease = Arc::new(lease(env, at));
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        let pass = lease.change(token).unwrap();
        let began = env.clock.now();
        let closing = Arc::clone(&lease);
        let close = env.executor.spawn("close", Box::new(move || closing.give_back(token))).unwrap();
        env.clock.sleep(TERM / 10);
        let refused = why(&lease.take(&owner(2), TERM / 10, world).unwrap_err());
        assert!(refused.contains("client 1 is just closing it") && refused.contains("disk"), "{refused}");
        let late = fenced(&lease.try_change(token).unwrap_err());
        assert!(late.contains("was given back"), "{late}");
        let clock = Arc::clone(&env.clock);
        let slow = move || {
            clock.sleep(TERM / 2);
            drop(pass);
        };
        let change = env.executor.spawn("slow change", Box::new(slow)).unwrap();
        let next = lease.take(&owner(2), TERM, world).unwrap();
        let waited = env.clock.now() - began;
        assert!(next > token && waited >= TERM / 2 && waited < TERM, "{waited:?}");
        close.join().unwrap();
        change.join().unwrap();
    });
}

/// The client's connection is lost while its first request waits for the former owner's change, and it sends the
/// request again.
#[test]
fn a_client_that_asks_again_while_it_is_given_the_lease_gets_the_same_token() {
    in_a_world(|env, at, world| {
        let lease = Arc::new(lease(env, at));
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        let pass = lease.change(token).unwrap();
        env.clock.sleep(TERM / 2);
        let ask = |name| {
            let (lease, given) = (Arc::clone(&lease), Arc::new(Mutex::new(None)));
            let noted = Arc::clone(&given);
            let take = move || *lock(&noted) = Some(lease.take(&owner(2), TERM * 2, &World::default()));
            (env.executor.spawn(name, Box::new(take)).unwrap(), given)
        };
        // The first two wait for the term to end, the last one for the disk.
        let mut asked = vec![ask("first"), ask("second")];
        env.clock.sleep(TERM);
        asked.push(ask("third"));
        let refused = why(&lease.take(&owner(3), TERM * 2, world).unwrap_err());
        assert!(refused.contains("client 2 is just being given it"), "{refused}");
        env.clock.sleep(TERM / 2);
        drop(pass);
        for (job, given) in asked {
            job.join().unwrap();
            assert_eq!(lock(&given).take().unwrap().unwrap(), token + 1);
        }
        assert!(lock(&lease.state).waiting.is_none());
    });
}

#[test]
fn a_token_whose_note_was_not_written_is_never_let_through() {
    in_a_world(|env, at, world| {
        let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(at).unwrap());
        let gone = at.join("gone");
        let lease = Lease::open(env, "shop", TERM, Note::Beside(gone.clone()), &volume).unwrap();
        assert!(lease.take(&owner(1), Duration::ZERO, world).is_err());
        assert!((0..4).all(|token| lease.try_change(token).is_err()));
        std::fs::create_dir(&gone).unwrap();
        assert_eq!(lease.take(&owner(1), Duration::ZERO, world).unwrap(), 2);
    });
}

#[test]
fn a_process_on_the_node_and_a_client_do_not_have_a_store_at_once() {
    in_a_world(|env, at, world| {
        let lease = lease(env, at);
        let volume = DirectoryVolume::open(at).unwrap();
        let local = volume.lock().unwrap();
        assert!(lease.take(&owner(1), Duration::ZERO, world).is_err());
        drop(local);
        let token = lease.take(&owner(1), Duration::ZERO, world).unwrap();
        assert!(volume.lock().is_err());
        env.clock.sleep(TERM);
        let next = lease.take(&owner(2), Duration::ZERO, world).unwrap();
        assert!(volume.lock().is_err());
        lease.give_back(next);
        let local = volume.lock().unwrap();
        drop(lease);
        let noted = self::lease(env, at);
        assert!(noted.try_change(token).is_err());
        drop(local);
        let last = noted.take(&owner(1), Duration::ZERO, world).unwrap();
        drop(noted);
        let local = volume.lock().unwrap();
        // While the node was away, a process on it has taken the store.
        let taken = self::lease(env, at);
        let told = fenced(&taken.try_change(last).unwrap_err());
        let cause = volume.lock().err().unwrap().to_string();
        assert!(told.contains("could not keep the store for client 1") && told.contains(&cause), "{told}");
        drop(local);
        let next = taken.take(&owner(2), Duration::ZERO, world).unwrap();
        taken.give_back(next);
        let told = fenced(&taken.try_change(last).unwrap_err());
        assert!(told.contains("was given back"), "{told}");
    });
}

#[test]
fn a_damaged_note_is_no_new_beginning() {
    in_a_world(|env, at, world| {
        lease(env, at).take(&owner(1), Duration::ZERO, world).unwrap();
        let path = at.join("LEASE");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[15] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(at).unwrap());
        let error = Lease::open(env, "shop", TERM, Note::Beside(at.to_owned()), &volume).err().unwrap();
        assert!(error.is_corruption(), "{error}");
    });
}

#[test]
fn a_disk_with_one_store_keeps_the_note_among_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let volume: Arc<dyn situ_storage::Volume> = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
    let env = Env::system();
    let open = || Lease::open(&env, "shop", TERM, Note::Among(Arc::clone(&volume)), &volume).unwrap();
    let token = open().take(&owner(1), Duration::ZERO, &World::default()).unwrap();
    open().try_change(token).unwrap();
}
