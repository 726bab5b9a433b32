#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| situ_server::fuzzing::admin(data));
