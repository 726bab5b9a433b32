//! Situ: the memcached protocol over any engine; metrics.
