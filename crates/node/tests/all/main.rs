//! The tests of `situ_node` through its public interface: one program, so that one is linked. A module is a subject.

mod store; // stores whose home is on a node that is started anew, again and again
mod tasks; // stores whose compactions run on nodes
