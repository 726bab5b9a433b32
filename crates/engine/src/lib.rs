//! Situ: the LSM engine.
