//! Situ: the parallel write-ahead log.
