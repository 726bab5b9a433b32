//! The tests of `situ_compaction` through its public interface: one program, so that one is linked. A module is a subject.

mod simulated; // any schedule, failing disks, rot
