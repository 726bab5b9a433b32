//! The volumes of a store: one, or two with roles; what belongs to which, who has locked it, what each does.

pub(crate) mod decision;
pub(crate) mod locks;
pub(crate) mod members;
pub(crate) mod meter;
pub(crate) mod path_text;
pub(crate) mod set;
