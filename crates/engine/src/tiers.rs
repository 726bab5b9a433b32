//! The fast disk of a store, a guest: which tables go there, and how it is taken away.
//!
//! The store asks [`Volumes`](crate::places::Volumes) and [`Places`](crate::places::Places), and knows no more of it.

pub(crate) mod drain;
pub(crate) mod placement;
pub(crate) mod promotion;
pub(crate) mod promotion_rules;
pub(crate) mod rules;
pub(crate) mod volumes;
