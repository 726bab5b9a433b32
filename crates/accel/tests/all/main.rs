//! Integration tests of the crate, in one program.

mod emulated;
#[cfg(feature = "cuda")]
mod gpu;
mod model_equals_merge;
mod on_device;
#[cfg(feature = "opencl")]
mod opencl;
mod page;
mod skipped;
mod tasks;
mod unit;

/// The tests of the module `gpu` are not built in.
#[cfg(not(feature = "cuda"))]
#[test]
fn tests_on_a_gpu_need_the_feature_cuda() {
    skipped::skipped("gpu::", "the feature `cuda` is not built in");
}

/// The tests of the module `opencl` are not built in.
#[cfg(not(feature = "opencl"))]
#[test]
fn tests_on_an_opencl_device_need_the_feature_opencl() {
    skipped::skipped("opencl::", "the feature `opencl` is not built in");
}
