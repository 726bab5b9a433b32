#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| situ_trace::fuzzing::trace(data));
