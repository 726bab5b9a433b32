//! What comes back is right, wherever the tables lie; and what is not right does no harm.

use super::*;
use situ_accel::{DeviceLanes, OpenModel};
use situ_compaction::{
    CompactionFilter, Decision, FilterContext, FrozenFilter, Measure, ReadTail, RunMode, RunReport, encode_measures,
    run,
};
use situ_offload::{DecisionRules, ModeRule, TaskRunner};
use std::sync::atomic::AtomicU64;

/// The bytes that the processor gives for the task.
fn expected(store: &Arc<Store>, task: &Task) -> Vec<Vec<u8>> {
    let output = run(task, &**store).unwrap();
    let contents = store.contents(&output);
    store.clear(&[]);
    contents
}

fn gives_the_same_bytes(place: VolumePlace, node: &Node, host: Host, store: &Arc<Store>) -> Host {
    let task = store.task(1, 6 << 20);
    let expected = expected(store, &task);
    assert!(expected.len() > 2, "{} tables", expected.len());
    let host = host.connected(node);
    let outputs = host.run(task);
    assert!(store.contents(&outputs[0]) == expected, "other bytes than the processor's, {place:?}");
    let report = host.report();
    assert_eq!((report.attempts, report.succeeded), (1, 1), "{report:?}");
    store.clear(&outputs);
    let inputs_and_outputs = 3 + outputs[0].tables.len();
    assert_eq!(store.numbers().len(), inputs_and_outputs);
    host
}

#[test]
fn a_task_on_the_node_that_has_the_files_gives_the_processors_bytes_and_needs_few_on_the_wire() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (_files, own, token) = owned(&store);
    let node = Node::new(Some(own));
    let host = Host::new(&store, VolumePlace::Here, Link::new(1, token), Patience::default());
    let host = gives_the_same_bytes(VolumePlace::Here, &node, host, &store);
    let traffic = Arc::clone(&host.link.traffic);
    let wire = || traffic.sent_bytes() + traffic.received_bytes();
    let before = wire();
    let task = store.task(2, 32 << 20);
    let bytes = task.input_bytes();
    let outputs = host.run(task);
    let ratio = (wire() - before) as f64 / bytes as f64;
    let paced = store.paced.load(Ordering::SeqCst);
    println!("{} bytes on the wire for {bytes} bytes compacted: {ratio:.6}", wire() - before);
    assert!(ratio < 0.02, "{ratio}");
    // The task of before was accounted for, too.
    assert!(paced >= outputs[0].stats.bytes_written, "{paced}");
    assert_eq!(traffic.sent(Class::Read) + traffic.received(Class::Write), 0, "no byte of a file");
    assert!(traffic.sent(Class::Compute) > 0);
}

#[test]
fn a_task_in_a_shared_directory_gives_the_processors_bytes() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(&at.path().join("store"));
    let options = ExecutorOptions { shared: vec![at.path().to_owned()], ..Node::new(None).options.clone() };
    let place = VolumePlace::SharedDirectory(store.path.display().to_string());
    let host = Host::new(&store, place.clone(), Link::new(1, 0), Patience::default());
    gives_the_same_bytes(place, &Node::with(options, None), host, &store);
}

#[test]
fn a_task_on_files_that_the_host_serves_gives_the_processors_bytes() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let host = Host::new(&store, VolumePlace::Host, Link::new(1, 0), Patience::default());
    let host = gives_the_same_bytes(VolumePlace::Host, &Node::new(None), host, &store);
    let traffic = &host.link.traffic;
    assert!(traffic.sent(Class::Read) > 4 << 20, "the host sends inputs");
    assert!(traffic.received(Class::Write) > 3 << 20, "and gets outputs");
}

/// Counts the tasks that an accelerator runs.
struct Counted {
    lanes: DeviceLanes,
    tasks: AtomicU64,
}

impl TaskRunner for Counted {
    fn admit(&self, task: &Task, host: &dyn TaskHost) -> Result<(), String> {
        self.lanes.admit(task, host)
    }

    fn run(&self, task: &Task, host: &dyn TaskHost) -> (Result<TaskOutput, TaskError>, RunReport) {
        self.tasks.fetch_add(1, Ordering::SeqCst);
        self.lanes.run(task, host)
    }
}

#[test]
fn a_node_with_an_accelerator_gives_the_processors_bytes() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let lanes = DeviceLanes::new(Env::system(), Arc::new(OpenModel::default()));
    let counted = Arc::new(Counted { lanes, tasks: AtomicU64::new(0) });
    let accelerator = Some(Arc::clone(&counted) as Arc<dyn TaskRunner>);
    let node = Node::with(ExecutorOptions { accelerator, ..Node::new(None).options.clone() }, None);
    let host = Host::new(&store, VolumePlace::Host, Link::new(1, 0), Patience::default());
    gives_the_same_bytes(VolumePlace::Host, &node, host, &store);
    assert_eq!(counted.tasks.load(Ordering::SeqCst), 1);
}

/// A directory that the node was not started with: no host makes a node read the machine's files.
#[test]
fn a_directory_that_the_node_does_not_share_suits_no_task_and_the_processor_does_it() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(&at.path().join("store"));
    std::fs::create_dir(at.path().join("shared")).unwrap();
    let options = ExecutorOptions { shared: vec![at.path().join("shared")], ..Node::new(None).options.clone() };
    let node = Node::with(options, None);
    let around = at.path().join("shared/../store").display().to_string();
    let host = Host::new(&store, VolumePlace::SharedDirectory(around), Link::new(1, 0), Patience::default());
    host.link.connect(&node, &host.unit);
    host.unit.link(Arc::clone(&host.link) as Arc<dyn NodeLink>, Vec::new()).unwrap();
    until("the node's refusal", || {
        let offer = host.unit.offer(&store.task(1, 10_000));
        matches!(offer, Offer::Unsuited(why) if why.contains("was not started with the shared directory"))
    });
    host.run(store.task(2, 1 << 20));
    assert_eq!(host.report().attempts, 0);
}

/// How an attempt ran whose mode this rule gives.
fn ran_in(host: &Host, attempt: u64, mode: ModeRule) -> Ran {
    let assignment = Assignment {
        attempt,
        task: Arc::new(host.store.task(1, 2 << 20)),
        host: Arc::clone(&host.store) as Arc<dyn TaskHost>,
        mode,
        done: Arc::clone(&host.event),
    };
    host.unit.submit(assignment).unwrap();
    let (mut finished, end) = (Vec::new(), Instant::now() + SOON);
    while finished.is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
        host.unit.poll(&mut finished);
    }
    finished.remove(0).ran
}

/// One collector served all hosts: the reads of one store decided for the tasks of another.
#[test]
fn the_reads_of_one_host_do_not_decide_for_another() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (_files, own, token) = owned(&store);
    let node = Node::new(Some(own));
    let host = Host::new(&store, VolumePlace::Here, Link::new(1, token), Patience::default()).connected(&node);
    let other = Link::new(2, 0);
    other.connect(&node, &NodeUnit::new(&Env::system(), NodeUnitOptions::new("other", Vec::new())));
    let tail = ReadTail { samples: 300, ..ReadTail::default() };
    let rules = DecisionRules { read_p99_factor_max: Some(1.5), ..DecisionRules::copro_plus(500) };
    for (link, is_told) in [(&other, false), (&host.link, true)] {
        let message = Bytes(encode_measures(&[Measure::ReadsWithPipelines(tail)]));
        let peer = link.peer().unwrap();
        peer.notify(Operation::TellMeasures, TellMeasures { message }.encode(), SOON).unwrap();
        // It comes behind the message.
        peer.ask(&PollTasks {}, SOON).unwrap();
        let decision = ran_in(&host, u64::from(is_told), ModeRule::Decided(rules.clone())).decision.unwrap();
        assert_eq!(decision.reads.as_ref().unwrap().with_pipelines.is_some(), is_told, "{decision:?}");
    }
}

#[test]
fn the_node_runs_in_the_mode_that_it_is_told_and_decides_by_itself_where_it_is_to() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (_files, own, token) = owned(&store);
    let node = Node::new(Some(own));
    let host = Host::new(&store, VolumePlace::Here, Link::new(1, token), Patience::default()).connected(&node);
    let rules = DecisionRules::copro_plus(500);
    for (attempt, mode) in [ModeRule::Fixed(RunMode::PIPELINED), ModeRule::Decided(rules)].into_iter().enumerate() {
        let ran = ran_in(&host, attempt as u64, mode);
        // The values are large by these rules, and so the second run is linear.
        assert_eq!((ran.mode.is_pipelined(), ran.decision.is_none()), (attempt == 0, attempt == 0), "{ran:?}");
        assert!(ran.stages.merge.bytes > 0, "{ran:?}");
    }
    let decisions = host.unit.decisions().unwrap();
    assert_eq!((decisions.made, decisions.linear), (1, 1));
}

/// A node whose answers are not right: garbage, another store's places, a table that is not there.
#[test]
fn a_wrong_answer_is_not_believed_and_the_processor_does_the_task() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (_files, own, token) = owned(&store);
    for wrong in 0..3 {
        let mut node = Node::new(Some(Arc::clone(&own)));
        let elsewhere = Store::new(&at.path().join(format!("elsewhere {wrong}")));
        let output = run(&elsewhere.task(1, 1 << 20), &*elsewhere).unwrap();
        let twist = move |operation: Operation, payload: Vec<u8>, reply: Reply, tasks: &HostTasks| {
            if operation != Operation::RunTask {
                return tasks.request(operation, &payload, reply);
            }
            let outcome = match wrong {
                0 => crate::message::TaskOutcome::Output(b"no output".to_vec()),
                1 => crate::message::TaskOutcome::Output(situ_offload::encode_output(&output)),
                _ => crate::message::TaskOutcome::Cancelled,
            };
            let decision = Bytes::default();
            reply.tell(&TaskDone { outcome, elapsed: Duration::ZERO, ran: Ran::default(), decision });
        };
        node.twist = Some(Arc::new(twist));
        let host = Host::new(&store, VolumePlace::Here, Link::new(1, token), Patience::default()).connected(&node);
        let task = store.task(1, 1 << 20);
        let expected = expected(&store, &task);
        let outputs = host.run(task);
        assert!(store.contents(&outputs[0]) == expected);
        let report = host.report();
        assert_eq!((report.attempts, report.succeeded), (1, 0), "{report:?}");
    }
}

#[test]
fn two_hosts_share_a_node_and_do_not_meet() {
    let at = tempfile::tempdir().unwrap();
    let options = Node::new(None).options.clone();
    // Two tasks at most, for both.
    let node = Node::with(ExecutorOptions { shared: vec![at.path().to_owned()], ..options }, None);
    let stores: Vec<_> = ["a", "b"].map(|name| Store::new(&at.path().join(name))).into();
    std::thread::scope(|scope| {
        for (session, store) in stores.iter().enumerate() {
            let node = &node;
            scope.spawn(move || {
                let place = VolumePlace::SharedDirectory(store.path.display().to_string());
                let link = Link::new(session as u128, 0);
                let host = Host::new(store, place, link, Patience::default()).connected(node);
                for job in 0..6 {
                    let task = store.task(job, 1 << 20);
                    let expected = expected(store, &task);
                    let outputs = host.run(task);
                    assert!(store.contents(&outputs[0]) == expected, "store {session}, job {job}");
                    store.clear(&outputs);
                }
                let report = host.report();
                assert!(report.succeeded > 0 && report.failed + report.suspicious == 0, "{report:?}");
            });
        }
    });
    until("the node has no task", || node.executor().load().tasks == 0);
}

/// A filter whose name cannot be told: the node panics in the middle of a request.
struct Panics;

impl CompactionFilter for Panics {
    fn name(&self) -> &str {
        panic!("a filter without a name")
    }

    fn decide(&self, _: &FilterContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        Decision::Keep
    }
}

struct Named;

impl CompactionFilter for Named {
    fn name(&self) -> &str {
        "named"
    }

    fn decide(&self, _: &FilterContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        Decision::Keep
    }
}

/// Its attempt waited for ever, and a second request for it got no answer.
#[test]
fn an_attempt_whose_request_panics_is_refused_and_forgotten() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let options = ExecutorOptions { filters: vec![Arc::new(Panics)], ..Node::new(None).options.clone() };
    let node = Node::with(options, None);
    let link = Link::new(1, 0);
    let unit = NodeUnit::new(&Env::system(), NodeUnitOptions::new("node", Vec::new()));
    link.connect(&node, &unit);
    let peer = link.peer().unwrap();
    let mut task = store.task(1, 10_000);
    task.rules.filter = Some(FrozenFilter { code: Arc::new(Named), parameters: Vec::new().into() });
    let run = RunTask { attempt: 7, token: 0, mode: ModeRule::default(), task: Bytes(encode_task(&task)) };
    for _ in 0..2 {
        let refused = peer.ask(&run, SOON).unwrap_err();
        assert!(matches!(&refused, CallError::Storage(Error::Invalid(why)) if why.contains("panicked")), "{refused}");
        assert_eq!(peer.ask(&PollTasks {}, SOON).unwrap().tasks, []);
    }
}

/// The node told nothing of its pipelined runs. Reads meanwhile counted as reads without pipelines.
#[test]
fn attempts_that_may_run_pipelined_on_the_node_are_counted_while_they_are_held() {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (_files, own, token) = owned(&store);
    let options = ExecutorOptions { waiting_max: 4, ..Node::new(None).options.clone() };
    let node = Node::with(options, Some(own));
    let host = Host::new(&store, VolumePlace::Here, Link::new(1, token), Patience::default()).connected(&node);
    let pipelines = host.unit.pipelines().unwrap();
    let held = Held::new(&store);
    let decided = ModeRule::Decided(DecisionRules::copro_plus(500));
    for (attempt, (mode, running)) in
        [(ModeRule::Fixed(RunMode::Linear), 0), (ModeRule::Fixed(RunMode::PIPELINED), 1), (decided, 2)]
            .into_iter()
            .enumerate()
    {
        let assignment = Assignment {
            attempt: attempt as u64,
            // The node is held up only with more than 2 MiB that the host has not answered.
            task: Arc::new(store.task(1, 8 << 20)),
            host: Arc::clone(&store) as Arc<dyn TaskHost>,
            mode,
            done: Arc::clone(&host.event),
        };
        host.unit.submit(assignment).unwrap();
        assert_eq!(pipelines.running(), running);
    }
    host.unit.cancel(2);
    assert_eq!(pipelines.running(), 1);
    drop(held);
    until("the pipelined attempt has ended", || pipelines.running() == 0);
}

/// Tasks of a store do not come forward while this is there: a test that fails lets them go, too.
struct Held<'a>(&'a Store);

impl<'a> Held<'a> {
    fn new(store: &'a Store) -> Held<'a> {
        store.holds.store(true, Ordering::SeqCst);
        Held(store)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.holds.store(false, Ordering::SeqCst);
    }
}
