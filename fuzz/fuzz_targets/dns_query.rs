#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quoit_cli::untrusted::dns_query(bytes));
