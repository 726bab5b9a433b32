//! Situ: workloads, measurement, reports.
//!
//! ```text
//!   BenchOptions ──► run ──► driver ──► Worker::plan ──► Store ──► Recorder ──► BenchResult ──► table, JSON, report
//!                     │                 keys, values,    yours    histograms,
//!                     └─► sampler       distributions             series, stalls
//! ```
//!
//! The workloads are db_bench's and YCSB's, with their keys, values and distributions, so that results can be compared
//! with published ones. Two more workloads load and use a social graph in the manner of LinkBench. Any store that
//! implements [`Store`] can be driven. A result is JSON with the machine and all settings; [`report`] makes one page of
//! HTML from one or many.
//!
//! The meaning of the figures:
//! - *Latency* without a rate is from the end of a thread's previous request to the end of this one, as in db_bench; it
//!   includes making the key and one reading of the clock. With a rate it is from the moment the request was due.
//! - *Write amplification* is bytes this process gave to be written, background work that the workload caused included,
//!   per key and value byte written. *Space amplification* is bytes on disk per byte of entries that exist.
//! - *Work* is what the store did behind the requests: log, flushes, compactions by unit. It is reported twice: as the
//!   requests ended, and when the store had settled.
//! - *Stall* is the longest time in which no thread completed anything, to the millisecond.
//! - *Memory* is anonymous memory: what the process allocated, without page cache. A few megabytes are the harness's
//!   own.
//!
//! **Threads.** Real threads and the real clock: this crate measures, and is not run in the simulator.

#![forbid(unsafe_code)]

mod calibrate;
pub mod content;
pub mod distribution;
mod driver;
mod error;
mod graph;
mod hash_store;
mod measure;
mod memory;
mod options;
mod process;
pub mod random;
mod replay;
pub mod report;
mod result;
mod run;
mod sampler;
mod schedule;
mod served_store;
mod situ_store;
mod stop;
mod store;
pub mod table;
mod work;
mod workload;
mod workloads;

pub use calibrate::{CalibrateOptions, Calibration, calibrate};
pub use error::{Error, Result};
pub use hash_store::{HashFactory, HashSettings};
pub use measure::{Kind, Latency};
pub use memory::{MemoryFactory, MemoryStore};
pub use options::{BenchOptions, Distribution, InsertOrder, Transport, UpdateMapping};
pub use process::{Machine, date_now, directory_bytes};
pub use replay::Pace;
pub use result::{BenchResult, PhaseResult, RESULT_FORMAT, Sample, Series};
pub use run::{run, run_observed, run_until};
pub use schedule::ValueSchedule;
pub use served_store::ServedFactory;
pub use situ_settings::{CompactionSettings, PolicyName, Rules, RulesFile, SideName, parse_bytes, parse_count};
pub use situ_store::{BlockCompression, Figures, OpenedStore, SituFactory, SituSettings, SituStore, StoreHome};
pub use stop::Stop;
pub use store::{
    AsyncStore, Change, Completions, EachEntry, Setting, Settings, Store, StoreFactory, StoreFailure, StoreStats,
};
pub use work::{StageWork, StagesWork, UnitSample, UnitWork, Work};
pub use workloads::Workload;
