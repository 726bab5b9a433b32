//! The tests of `situ_node` through its public interface: one program, so that one is linked. A module is a subject.

mod failures; // stores whose node dies, loses files, stalls, or answers wrongly
mod proxy; // what lies between a host and a node, and changes frames
mod store; // stores whose home is on a node that is started anew, again and again
mod tasks; // stores whose compactions run on nodes
