use super::*;
use crate::distribution::Inserted;
use crate::graph::{LINK_BYTES, MIX, NODE_BYTES};
use crate::memory::MemoryStore;
use crate::options::BenchOptions;
use crate::random::Random;
use crate::workload::{Dataset, LiveKeys};
use crate::workloads::Workload;

fn loaded(nodes: u64) -> (BenchOptions, Dataset, MemoryStore) {
    let options = BenchOptions { keys: nodes, ..BenchOptions::default() };
    let dataset = Dataset { live: LiveKeys::new(nodes), inserted: Inserted::new(0) };
    let store = MemoryStore::default();
    let mut worker = Worker::new(Workload::LinkLoad, &options, &dataset, None, 1);
    for _ in 0..nodes {
        let request = worker.plan();
        worker.perform(&store, request).unwrap();
    }
    (options, dataset, store)
}

/// Nodes, links, and links as the counts have it.
fn census(store: &MemoryStore) -> (u64, u64, u64) {
    let (mut nodes, mut links, mut counted) = (0, 0, 0);
    store
        .scan(&[], u64::MAX, &mut |key, value| {
            match key[0] {
                b'n' => {
                    assert_eq!((key.len(), value.len()), (9, NODE_BYTES));
                    nodes += 1;
                }
                b'l' => {
                    assert_eq!((key.len(), value.len()), (18, LINK_BYTES));
                    links += 1;
                }
                _ => counted += u64::from_be_bytes(value.try_into().unwrap()),
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (nodes, links, counted)
}

#[test]
fn a_loaded_graph_has_four_links_a_node_and_counts_them() {
    let (_, _, store) = loaded(20_000);
    let (nodes, links, counted) = census(&store);
    assert_eq!(nodes, 20_000);
    assert_eq!(links, counted);
    let mean = links as f64 / nodes as f64;
    assert!((3.4..4.6).contains(&mean), "{mean} links a node");
}

#[test]
fn counts_follow_the_links_that_one_thread_adds_and_deletes() {
    let (options, dataset, store) = loaded(500);
    let before = census(&store);
    let chooser = Workload::LinkBench.chooser(&options, dataset.inserted.count());
    let mut worker = Worker::new(Workload::LinkBench, &options, &dataset, chooser, 2);
    for _ in 0..20_000 {
        let request = worker.plan();
        assert_eq!(worker.perform(&store, request).unwrap(), 1);
    }
    let (nodes, links, counted) = census(&store);
    assert_eq!(links, counted);
    assert!(links > before.1 && nodes > before.0 / 2, "{nodes} nodes, {links} links, {before:?} before");
    assert!(worker.tally.found > 10_000, "lists are not empty: {}", worker.tally.found);
}

#[test]
fn the_mix_is_that_of_the_paper() {
    assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 100_000);
    let mut random = Random::new(3);
    let drawn: Vec<Op> = (0..100_000).map(|_| Op::draw(&mut random)).collect();
    for (operation, share) in MIX {
        let count = drawn.iter().filter(|other| **other == operation).count() as f64;
        assert!((count / share as f64 - 1.0).abs() < 0.2, "{operation:?}: {count} of {share}");
    }
}
