//! Connections that are lost, nodes that die, hosts that close.

use super::*;
use crate::message::{Open, Read};
use situ_compaction::Compactor;

/// A store whose files the node has, and a host that is connected to it.
struct World {
    _at: tempfile::TempDir,
    store: Arc<Store>,
    files: Arc<Files>,
    node: Node,
    host: Host,
}

fn world(patience: Patience) -> World {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (files, own, token) = owned(&store);
    let node = Node::new(Some(own));
    let host = Host::new(&store, VolumePlace::Here, Link::new(1, token), patience).connected(&node);
    World { _at: at, store, files, node, host }
}

impl World {
    /// Gives the node a task, which has written a part and is held back.
    fn hold_a_task(&self) {
        self.store.holds.store(true, Ordering::SeqCst);
        self.host.submit(1, self.store.task(1, 12 << 20));
        until("output", || self.store.paced.load(Ordering::SeqCst) > 0);
    }

    fn let_go(&self) {
        self.store.holds.store(false, Ordering::SeqCst);
    }

    fn finish(&self) -> Vec<TaskOutput> {
        let outputs = self.host.finish().result.unwrap();
        self.store.clear(&outputs);
        outputs
    }

    /// Nothing lies there but inputs and outputs.
    fn assert_clear(&self, outputs: &[TaskOutput]) {
        until("all else is gone", || self.store.numbers().len() == 3 + outputs[0].tables.len());
    }
}

#[test]
fn a_lost_connection_loses_no_task() {
    let world = world(Patience::default());
    world.hold_a_task();
    world.host.link.cut();
    std::thread::sleep(Duration::from_millis(100));
    world.host.link.connect(&world.node, &world.host.unit);
    world.let_go();
    let outputs = world.finish();
    let report = world.host.report();
    assert_eq!((report.attempts, report.succeeded), (1, 1), "{report:?}");
    world.assert_clear(&outputs);
}

#[test]
fn a_result_that_came_while_the_host_was_away_is_fetched_later() {
    let world = world(Patience::default());
    // A short one: the first answer has all its places. Once a file is there, the answer has arrived, and the
    // connection can go.
    world.store.holds.store(true, Ordering::SeqCst);
    let task = world.store.task(1, 1_200_000);
    world.host.submit(1, task);
    until("the node has its places", || world.store.numbers().len() > 3);
    world.host.link.cut();
    world.let_go();
    until("the task has ended on the node", || world.node.executor().load().tasks == 0);
    assert!(world.host.scheduler.take_finished(None).is_none());
    world.host.link.connect(&world.node, &world.host.unit);
    let outputs = world.finish();
    let report = world.host.report();
    assert_eq!((report.attempts, report.succeeded), (1, 1), "{report:?}");
    world.assert_clear(&outputs);
}

#[test]
fn a_node_that_dies_in_a_task_and_comes_back_costs_time_only() {
    let world = world(Patience::default());
    world.hold_a_task();
    world.host.link.cut();
    world.let_go();
    world.node.restart();
    world.host.link.connect(&world.node, &world.host.unit);
    let outputs = world.finish();
    let report = world.host.report();
    assert_eq!((report.attempts, report.succeeded), (1, 0), "{report:?}");
    assert!(report.last_trouble.unwrap().contains("does not know the task"));
    world.assert_clear(&outputs);
}

#[test]
fn a_node_that_dies_and_stays_away_is_waited_for_no_longer_than_agreed() {
    let world = world(Patience::default());
    world.hold_a_task();
    let began = Instant::now();
    world.host.link.cut();
    world.let_go();
    world.node.executor().close();
    let outputs = world.finish();
    assert!(began.elapsed() > Duration::from_millis(1500), "{:?}", began.elapsed());
    let report = world.host.report();
    assert_eq!((report.attempts, report.succeeded), (1, 0), "{report:?}");
    assert!(report.last_trouble.unwrap().contains("cannot be reached"));
    world.assert_clear(&outputs);
    // Further tasks do not go there.
    world.host.run(world.store.task(2, 1 << 20));
    assert_eq!(world.host.report().attempts, 1);
}

#[test]
fn a_late_answer_is_nobodys_and_the_late_task_ends_on_the_node() {
    let patience = Patience { least: Duration::from_millis(300), bytes_per_s_min: 1 << 40, ..Patience::default() };
    let world = world(patience);
    world.hold_a_task();
    until("the task is late", || {
        world.host.scheduler.turn();
        world.host.report().late == 1
    });
    world.let_go();
    let outputs = world.finish();
    until("the node has let go", || world.node.executor().load().tasks == 0);
    assert_eq!(world.host.report().succeeded, 0);
    world.assert_clear(&outputs);
}

#[test]
fn a_job_that_is_called_off_ends_on_the_node_and_leaves_no_table() {
    let world = world(Patience::default());
    world.hold_a_task();
    world.store.is_cancelled.store(true, Ordering::SeqCst);
    assert!(world.host.finish().result.is_err());
    until("the node has let go", || world.node.executor().load().tasks == 0);
    // The node has removed what it had made: nobody has cleared the places.
    until("all tables are gone", || world.store.numbers().len() == 3);
}

#[test]
fn a_host_closes_in_the_middle_of_a_task_and_leaves_no_table_and_no_task() {
    let world = world(Patience::default());
    world.hold_a_task();
    // As a store does that is being closed.
    world.store.is_cancelled.store(true, Ordering::SeqCst);
    let began = Instant::now();
    world.host.scheduler.close();
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    until("the node has let go", || world.node.executor().load().tasks == 0);
    until("all tables are gone", || world.store.numbers().len() == 3);
    let assignment = Assignment {
        attempt: 77,
        task: Arc::new(world.store.task(2, 10_000)),
        host: Arc::clone(&world.store) as Arc<dyn TaskHost>,
        mode: situ_offload::ModeRule::default(),
        done: Arc::clone(&world.host.event),
    };
    assert!(matches!(world.host.unit.submit(assignment), Err(Refused::Gone(_))));
    assert!(world.host.finish().result.is_err());
    // Nothing but the test holds the store: neither the unit, nor the node's threads.
    until("all hosts are let go of", || Arc::strong_count(&world.store) == 2);
}

#[test]
fn a_host_that_vanishes_has_no_tasks_after_a_while() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (_files, own, token) = owned(&store);
    let options = ExecutorOptions { linger: Duration::from_millis(300), ..Node::new(None).options.clone() };
    let node = Node::with(options, Some(own));
    let host = Host::new(&store, VolumePlace::Here, Link::new(1, token), Patience::default()).connected(&node);
    // Without places, the task cannot go on.
    store.holds.store(true, Ordering::SeqCst);
    host.submit(1, store.task(1, 12 << 20));
    until("output", || store.paced.load(Ordering::SeqCst) > 0);
    host.link.cut();
    until("the node has let go", || node.executor().load().tasks == 0);
    until("all tables are gone", || store.numbers().len() == 3);
    assert_eq!((node.executor().sessions(), node.executor().sweep(), node.executor().sessions()), (1, 1, 0));
    store.holds.store(false, Ordering::SeqCst);
    store.is_cancelled.store(true, Ordering::SeqCst);
}

/// The node's `Close` of an input was lost with the connection. The host had the table open until the unit was closed,
/// and refused all further inputs after 4096 of them.
#[test]
fn inputs_of_a_lost_connection_are_closed_when_their_attempt_has_ended() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let node = Node::new(None);
    let host = Host::new(&store, VolumePlace::Host, Link::new(1, 0), Patience::default()).connected(&node);
    store.holds.store(true, Ordering::SeqCst);
    host.submit(1, store.task(1, 12 << 20));
    until("output", || store.paced.load(Ordering::SeqCst) > 0);
    assert!(host.unit.shared.callbacks.inputs_open() > 0);
    host.link.cut();
    store.holds.store(false, Ordering::SeqCst);
    host.finish().result.unwrap();
    assert_eq!(host.report().succeeded, 0);
    assert_eq!(host.unit.shared.callbacks.inputs_open(), 0);
}

#[test]
fn a_node_reads_inputs_of_tasks_only_that_the_host_waits_for() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let node = Node::new(None);
    let host = Host::new(&store, VolumePlace::Host, Link::new(1, 0), Patience::default()).connected(&node);
    let peer = lock(&host.link.connections).as_ref().unwrap().1.peer().clone();
    let handle = 1 << 40;
    let open = |number: u64| peer.ask(&Open { volume: 0, handle, name: FileName::Table(number) }, SOON);
    let read = || peer.ask(&Read { handle, ranges: vec![(0, 8)] }, SOON);
    let task = store.task(1, 12 << 20);
    let input = task.tables().next().unwrap().number;
    let other = store.write(0..10, 1, 10).number;
    assert!(matches!(open(input), Err(CallError::Unknown(_))), "nobody has a task");
    store.holds.store(true, Ordering::SeqCst);
    host.submit(1, task);
    until("output", || store.paced.load(Ordering::SeqCst) > 0);
    assert!(matches!(open(other), Err(CallError::Unknown(_))), "no input");
    open(input).unwrap();
    assert_eq!(read().unwrap().data.0.len(), 8);
    store.holds.store(false, Ordering::SeqCst);
    host.finish().result.unwrap();
    assert!(matches!(read(), Err(CallError::Unknown(_))), "the task has ended");
}

/// The owner of the lease is cut off with a task under way on the node. The successor's files are its own.
#[test]
fn a_task_of_a_former_owner_writes_nothing_after_the_successors_lease_has_begun() {
    let world = world(Patience::default());
    world.hold_a_task();
    std::thread::sleep(TERM);
    let successor = Owner { id: 2, name: "the second".to_owned() };
    let (attached, _) = world.files.attach(&successor).unwrap();
    attached.lock(SOON).unwrap();
    let sizes = || -> Vec<(FileName, u64)> {
        let files = world.store.volume.list().unwrap();
        files.iter().map(|file| (file.name, file.bytes)).collect()
    };
    let before = sizes();
    world.let_go();
    until("the task has ended", || world.node.executor().load().tasks == 0);
    // The former owner's processor must not write either; here, the test stands in for its store.
    world.store.is_cancelled.store(true, Ordering::SeqCst);
    let written: Vec<_> = sizes().into_iter().filter(|file| before.iter().all(|old| old != file)).collect();
    assert_eq!(written, [], "and nothing was removed: {before:?}");
    assert!(before.iter().all(|old| sizes().contains(old)));
    until("the unit knows", || {
        world.host.scheduler.turn();
        world.host.scheduler.take_finished(None).is_some()
    });
}

/// Takes requests and answers none.
#[derive(Default)]
struct Mute(Mutex<Vec<Reply>>);

impl Handler for Mute {
    fn request(&self, _: &Peer, _: u16, _: Vec<u8>, reply: Reply) {
        lock(&self.0).push(reply);
    }
}

/// The host is connected and answers nothing. The task asked again for ever, and kept its thread after it was
/// cancelled.
#[test]
fn a_task_that_waits_for_a_silent_host_ends_soon_after_it_is_cancelled() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (node, link, host) = (Node::new(None), Link::new(1, 0), Arc::new(Mute::default()));
    link.connect_to(&node, Arc::clone(&host) as Arc<dyn Handler>);
    let peer = link.peer().unwrap();
    peer.ask(&PlaceVolumes { volumes: vec![(0, VolumePlace::Host)] }, SOON).unwrap();
    let (mode, task) = (situ_offload::ModeRule::default(), Bytes(encode_task(&store.task(1, 10_000))));
    let run = RunTask { attempt: 7, token: 0, mode, task };
    peer.call_later(RunTask::OPERATION as u16, run.encode(), None, drop);
    until("the task asks for an input", || !lock(&host.0).is_empty());
    let began = Instant::now();
    peer.ask(&CancelTask { attempt: 7 }, SOON).unwrap();
    until("the task has ended", || node.executor().load().tasks == 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
