//! The commands of clients, run against the engine, and their answers in order.

pub(crate) mod batcher;
pub(crate) mod classic;
pub(crate) mod execute;
pub(crate) mod meta;
pub(crate) mod meta_flags;
pub(crate) mod output;
pub(crate) mod read_side;
pub(crate) mod trace;
pub(crate) mod turn;
