//! Advice for other databases: `advise`.
//!
//! ```text
//!   fetch.rs   what a PostgreSQL server says of its tables, in one transaction that reads only
//!   place.rs   which drive lies below a tablespace, if the server runs on this machine
//!   run.rs     the command: asks both, lets `situ_advise` advise, and prints
//! ```
//!
//! The client of PostgreSQL is compiled in with the feature `postgres`, which is off by default. Without it, the
//! command says how to get a program with it.

#[cfg(feature = "postgres")]
mod fetch;
#[cfg(feature = "postgres")]
mod place;
#[cfg(feature = "postgres")]
mod run;

use crate::failure::Outcome;
use crate::options::AdviseCommand;
use crate::output::Output;

pub(crate) fn advise(command: &AdviseCommand, out: &mut Output) -> Outcome {
    match command {
        #[cfg(feature = "postgres")]
        AdviseCommand::Postgres(options) => run::postgres(options, out),
        #[cfg(not(feature = "postgres"))]
        AdviseCommand::Postgres(_) => {
            let _ = out;
            Err(crate::failure::Failure::new(
                "cannot ask a PostgreSQL server",
                "this program was built without the feature `postgres`",
            )
            .cure("build one with it: `cargo build --release --locked -p situ-cli --features postgres`"))
        }
    }
}
