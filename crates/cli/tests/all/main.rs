//! The program `situ`, run as a user runs it: one program of tests, so that one is linked. A module is a subject.

#[path = "../../../device/tests/common/mod.rs"]
#[allow(dead_code, reason = "not all of them are used here")]
mod block_devices;
mod common;

mod administration; // commands on a store that a server has open
#[cfg(feature = "postgres")]
mod advise; // `advise postgres` against a real server
mod backup; // `backup`: incremental backups
mod cache; // a cache instead of a store
mod calibrate; // `bench calibrate`, and the rules that it writes
mod damage; // stores that are damaged: `verify`, `repair`, `load`
mod damage_served; // damage that `serve` meets is in its log, once
mod disk; // `disk format`, `disk show`, `disk check`
mod entries; // `get`, `put`, `delete`, `scan`, `compact`, and how the program fails
mod follow; // `changes` and `follow`: a copy that is kept up to date
mod golden; // stores of releases open; those of later formats are refused
mod hash; // hash stores
mod import; // `import` in a program without RocksDB
mod import_rocksdb; // `import rocksdb`: runs in `make test-import`
mod inspect; // `inspect` of sound and of damaged stores; `bench`
mod little_memory; // large values, and a server with little memory
mod live; // `top`, and the live page in a real browser
mod many_keyspaces; // many keyspaces, and little memory
mod measure; // `serve` beside memcached, measured; ignored
mod measure_flash; // a cache on flash beside extstore, measured; ignored
mod measure_hits; // hit ratios of a cache beside memcached; ignored
mod measure_load; // a full cache under ten thousand connections; ignored
mod node; // stores whose home is on a node: kills, stops, full disks
mod node_failures; // stores whose node is lost, is stopped, is late, or has lost its files
mod one_writer; // one writer, even if files are removed or renamed
mod placement; // decisions of placement as a user meets them
mod readme; // the session in the README is one that happened
mod serve; // promise 1 for `serve`; signals and conflicts
mod testbed; // the two disks that `scripts/testbed.sh` makes
mod trace; // `trace`, and `bench --replay`
mod transfer; // `load` and `dump`

use block_devices::skipped;
