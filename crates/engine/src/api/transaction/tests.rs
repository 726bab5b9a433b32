//! What cannot be tested from outside: isolation by histories (`history.rs` says how), which needs the sequence numbers
//! of writes outside of transactions.

mod bad_histories;
mod check;
mod history;
mod measure;
mod random;
