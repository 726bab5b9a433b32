//! The parts of a store on its disks: buckets, images of buckets, the overflow, large values.

pub(crate) mod images;
pub(crate) mod io;
pub(crate) mod large;
pub(crate) mod options;
pub(crate) mod overflow;
