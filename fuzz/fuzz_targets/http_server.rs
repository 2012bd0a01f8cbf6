#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quoit_serve::fuzzing::http_server(bytes));
