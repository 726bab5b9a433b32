//! Operations on the social graph, as a worker plans and performs them.

use super::{Action, Request, Worker};
use crate::graph::{
    GraphRequest, LINK_PAYLOAD_BYTES, LINK_TYPES, LIST_MAX, NODE_PAYLOAD_BYTES, Op, degree, link_key, link_value,
    links_key, node_key, node_value,
};
use crate::measure::Kind;
use crate::store::{Change, Store, StoreFailure};
use std::ops::ControlFlow;

impl Worker<'_> {
    pub(crate) fn plan_graph_load(&mut self) -> Request {
        let id = self.dataset.inserted.take();
        self.graph = GraphRequest { id, other: 0, link_type: 0, time: id };
        Request { kind: Kind::Insert, action: Action::Graph(Op::LoadNode), inserts: Some(id) }
    }

    pub(crate) fn plan_graph(&mut self) -> Request {
        let operation = Op::draw(&mut self.random);
        let id = match operation {
            Op::AddNode => self.dataset.inserted.take(),
            _ => self.choose_record(),
        };
        let nodes = self.dataset.inserted.count().max(1);
        let other = self.random.below(nodes);
        let link_type = self.random.below(LINK_TYPES);
        self.graph = GraphRequest { id, other, link_type, time: self.issued() };
        let inserts = (operation == Op::AddNode).then_some(id);
        Request { kind: operation.kind(), action: Action::Graph(operation), inserts }
    }

    pub(crate) fn perform_graph(&mut self, store: &dyn Store, operation: Op) -> Result<u64, StoreFailure> {
        let GraphRequest { id, other, link_type, time } = self.graph;
        match operation {
            Op::LoadNode => self.load_node(store)?,
            Op::GetNode => {
                node_key(&mut self.key, id);
                self.get_counted(store)?;
            }
            Op::AddNode | Op::UpdateNode => {
                node_key(&mut self.key, id);
                let payload = self.values.next(NODE_PAYLOAD_BYTES);
                let value = node_value(time, payload);
                store.put(&self.key, &value, self.sync())?;
                self.tally.user_bytes_written += (self.key.len() + value.len()) as u64;
            }
            Op::DeleteNode => {
                node_key(&mut self.key, id);
                store.delete(&self.key, self.sync())?;
                self.tally.user_bytes_written += self.key.len() as u64;
            }
            Op::GetLink => {
                link_key(&mut self.key, id, link_type, other);
                self.get_counted(store)?;
            }
            Op::CountLinks => {
                links_key(&mut self.key, b'c', id, link_type);
                self.get_counted(store)?;
            }
            Op::AddLink | Op::UpdateLink | Op::DeleteLink => self.change_link(store, operation == Op::DeleteLink)?,
            Op::ListLinks => {
                links_key(&mut self.key, b'l', id, link_type);
                let prefix = &self.key;
                let (mut bytes, mut count) = (0, 0);
                store.scan(prefix, LIST_MAX, &mut |key, value| {
                    if !key.starts_with(prefix) {
                        return ControlFlow::Break(());
                    }
                    bytes += (key.len() + value.len()) as u64;
                    count += 1;
                    ControlFlow::Continue(())
                })?;
                self.tally.user_bytes_read += bytes;
                self.tally.found += count;
            }
        }
        Ok(1)
    }

    fn get_counted(&mut self, store: &dyn Store) -> Result<bool, StoreFailure> {
        let found = store.get(&self.key, &mut self.found)?;
        self.count_read(found.then_some(self.found.len()));
        Ok(found)
    }

    fn load_node(&mut self, store: &dyn Store) -> Result<(), StoreFailure> {
        let GraphRequest { id, time, .. } = self.graph;
        let payload = self.values.next(NODE_PAYLOAD_BYTES);
        let mut entries = Vec::new();
        node_key(&mut self.key, id);
        entries.push((self.key.clone(), node_value(time, payload)));
        let nodes = self.nodes_loaded();
        let degree = degree(&mut self.random);
        for link_type in 0..LINK_TYPES {
            // Shared out among the types, the first of which gets what is over.
            let links = (degree + LINK_TYPES - 1 - link_type) / LINK_TYPES;
            let mut others: Vec<u64> = (0..links).map(|_| self.random.below(nodes)).collect();
            others.sort_unstable();
            others.dedup();
            if others.is_empty() {
                continue;
            }
            for other in &others {
                link_key(&mut self.key, id, link_type, *other);
                let payload = self.values.next(LINK_PAYLOAD_BYTES);
                entries.push((self.key.clone(), link_value(time, payload)));
            }
            links_key(&mut self.key, b'c', id, link_type);
            entries.push((self.key.clone(), (others.len() as u64).to_be_bytes().to_vec()));
        }
        let changes: Vec<Change<'_>> = entries.iter().map(|(key, value)| Change::Put(key, value)).collect();
        store.batch(&changes, self.sync())?;
        let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.tally.user_bytes_written += bytes as u64;
        self.tally.inserted_bytes += bytes as u64;
        Ok(())
    }

    fn change_link(&mut self, store: &dyn Store, delete: bool) -> Result<(), StoreFailure> {
        let GraphRequest { id, other, link_type, time } = self.graph;
        link_key(&mut self.key, id, link_type, other);
        let exists = self.get_counted(store)?;
        if delete && !exists {
            return Ok(());
        }
        let link = self.key.clone();
        let value = link_value(time, self.values.next(LINK_PAYLOAD_BYTES));
        let mut count = None;
        if delete || !exists {
            links_key(&mut self.key, b'c', id, link_type);
            let had = self.get_counted(store)?;
            let before = if had { self.found[..].try_into().map_or(0, u64::from_be_bytes) } else { 0 };
            let after = if delete { before.saturating_sub(1) } else { before + 1 };
            count = Some(after.to_be_bytes());
        }
        let mut changes = vec![if delete { Change::Delete(&link) } else { Change::Put(&link, &value) }];
        if let Some(count) = &count {
            changes.push(Change::Put(&self.key, count));
        }
        store.batch(&changes, self.sync())?;
        let bytes = changes.iter().map(|change| match change {
            Change::Put(key, value) => key.len() + value.len(),
            Change::Delete(key) => key.len(),
        });
        self.tally.user_bytes_written += bytes.sum::<usize>() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
