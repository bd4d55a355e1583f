//! Any bytes at all, read as a record batch: an error, or a batch that makes sense and builds again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/batch/take_apart.rs"]
mod take_apart;

fuzz_target!(|data: &[u8]| take_apart::take_apart(data));
