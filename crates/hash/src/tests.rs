//! Tests of the live store: on simulated disks, and on real ones.

mod crash;
mod debts;
mod full_disk;
mod live;
mod model;
mod repair;
mod space;
