//! Situ: the value log for large values.

#![forbid(unsafe_code)]
