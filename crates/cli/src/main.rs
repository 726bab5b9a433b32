//! The program `situ`. All of it is in the library next to this file, where tests and fuzzers reach it.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    situ_cli::main()
}
