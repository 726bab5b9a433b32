//! Reading everything: verification, and repair of what is damaged.

pub(crate) mod repair;
pub(crate) mod values;
pub(crate) mod verify;
