#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| situ_node::fuzzing::message(data));
