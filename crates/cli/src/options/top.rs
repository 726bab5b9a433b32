//! Options of `top`.

use clap::Args;

/// Show a running server live: commands, latencies, memory, disks, levels, compactions, debts.
///
/// The figures are those of the live page at the same address. Rates and latencies are of the time since the report
/// before, and everything else is of now. Ctrl-C ends the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ top\n  situ top 10.0.0.5:11212 --interval 5\n  situ top /var/lib/situ\n  \
                        situ top --once\n  situ top --once --json")]
pub(crate) struct TopOptions {
    /// Address that `situ serve` calls metrics, or the directory of a store, whose server has written its address there
    #[arg(value_name = "ADDRESS|DIR", default_value = "127.0.0.1:11212")]
    pub(crate) server: String,
    /// Seconds from one report to the next
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) interval: u32,
    /// Write one report and end. As JSON it has the counters of this moment; in words it takes one interval
    #[arg(long)]
    pub(crate) once: bool,
}
