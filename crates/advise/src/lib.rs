//! Situ: advice for databases on drives that compress.

#![forbid(unsafe_code)]
