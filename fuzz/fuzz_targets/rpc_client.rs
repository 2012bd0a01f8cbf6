#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quoit_load::fuzzing::rpc_client(bytes));
