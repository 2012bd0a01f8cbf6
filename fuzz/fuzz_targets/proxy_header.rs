#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quoit::fuzzing::proxy_header(bytes));
