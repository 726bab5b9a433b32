//! Checks a GPU's answers against the model, and measures the GPU against one core of the same machine.
//!
//! `cargo run --release -p situ-accel --features cuda --example accel -- check=SEEDS transfers
//! measure=100/none/64,...`, with `--ptx FILE` for kernels that were compiled elsewhere. `-- source` prints the
//! kernels. Figures go to standard output as lines of JSON.

#[cfg(not(feature = "cuda"))]
fn main() {
    if std::env::args().nth(1).as_deref() == Some("source") {
        print!("{}", situ_accel::kernel_source());
        return;
    }
    eprintln!("left out: the feature `cuda` is not built in");
}

#[cfg(feature = "cuda")]
fn main() {
    if let Err(error) = gpu::run_command() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

#[cfg(feature = "cuda")]
#[path = "../tests/all/tasks.rs"]
mod tasks;

#[cfg(feature = "cuda")]
#[path = "accel/bed.rs"]
mod bed;

#[cfg(feature = "cuda")]
#[path = "accel/gpu.rs"]
mod gpu;
