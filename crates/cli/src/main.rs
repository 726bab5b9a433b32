//! Situ: the situ program.
fn main() {}
