#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cotenant_fuzz::WIRE.run(bytes));
