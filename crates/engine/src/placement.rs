//! The choice of a disk for each table: the rules, and their application while the store runs.

pub(crate) mod promotion;
pub(crate) mod rules;
pub(crate) mod run;
