//! Situ: the hash store without a table, for drives that compress.

#![forbid(unsafe_code)]
