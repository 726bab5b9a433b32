//! The tests of `situ_sim` through its public interface: one program, so that one is linked. A module is a subject.

mod mini_wal;
mod nvme_driver; // the driver of device over a controller in software // logs with a classic bug must fail for some seed
