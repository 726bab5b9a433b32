//! Databases of other stores into a store: `import`.
//!
//! RocksDB is read through its own library, which only programs that are built with the feature `rocksdb` contain: its
//! C++ takes a quarter of an hour to compile. Without it, the command says how to get such a program.
//!
//! ```text
//!   run.rs        the command: the parts below, one after the other, and its report
//!   settings.rs   what the database's OPTIONS file says that a reader has to know
//!   source.rs     opens the database, refuses what would be misread, reads a column family in key order
//!   plan.rs       which column family goes into which keyspace, and from which key on
//!   copy.rs       puts the entries there, and the place that they go up to
//!   compare.rs    reads both again and says whether they are the same
//! ```

#[cfg(feature = "rocksdb")]
mod compare;
#[cfg(feature = "rocksdb")]
mod copy;
#[cfg(feature = "rocksdb")]
mod plan;
#[cfg(feature = "rocksdb")]
mod run;
#[cfg(feature = "rocksdb")]
mod settings;
#[cfg(feature = "rocksdb")]
mod source;

use crate::failure::Outcome;
use crate::options::ImportCommand;
use crate::output::Output;

pub(crate) fn import(command: &ImportCommand, out: &mut Output) -> Outcome {
    match command {
        #[cfg(feature = "rocksdb")]
        ImportCommand::Rocksdb(options) => run::import(options, out),
        #[cfg(not(feature = "rocksdb"))]
        ImportCommand::Rocksdb(_) => {
            let _ = out;
            Err(crate::failure::Failure::new(
                "cannot import a RocksDB database",
                "this program was built without RocksDB's library",
            )
            .cure(
                "build one with it, which takes a C++ compiler, libclang and a quarter of an hour: `cargo build --release \
                 --locked -p situ-cli --features rocksdb`; with `rocksdb-compressions` in place of `rocksdb` it also reads \
                 Snappy, zlib and bzip2, and Snappy is what RocksDB uses unless told otherwise",
            ))
        }
    }
}
