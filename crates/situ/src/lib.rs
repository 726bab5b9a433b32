//! Situ: a key-value store that does each piece of storage work on the hardware that does it best.
