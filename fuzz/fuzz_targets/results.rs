#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quoit_report::fuzzing::results(bytes));
