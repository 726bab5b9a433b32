//! Moving tables to the fast disk because they are read often: the rules, and their application.

pub(crate) mod rules;
pub(crate) mod run;
