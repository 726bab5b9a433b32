//! The tests of stores with a fast disk, through the public interface: one program, so that one is linked. A module is a
//! subject.

#[path = "../../../device/tests/common/mod.rs"]
#[allow(dead_code, reason = "not all of them are used here")]
mod block_devices;
#[path = "../../../engine/tests/all/common/mod.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod common;

mod change_of_disks_crash; // power failures while a store gets, changes or loses its fast disk
mod copied_home; // a home that was copied, and names the fast disk of the original
mod draining; // drains that fail
mod fast_disk_troubles; // a fast disk that is there and cannot be used as it is
mod full_home; // a full home beside a fast disk that is not
mod home_elsewhere; // a store whose home is no directory here
mod killed_on_disk; // promise 1: processes that are killed, on disks without a file system
mod log_area; // the log on a fast disk without a file system
mod lost_disks; // a home that has lost DISKS
mod placement; // placement on simulated disks, and the recorder of its traces
mod promotion; // data that is often read finds its way to the fast disk
mod raw_disk; // promises 1, 3, 4: a fast disk without a file system that crashes
mod two_crash; // promises 1 to 4: two disks that crash together
mod two_disks; // which disks belong together, and what lies where
mod two_disks_random_faults; // promises 1, 3, 6, 7: seeded faults on two disks

use block_devices::skipped;
