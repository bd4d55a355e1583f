//! Any bytes at all, read as a job's document: findings that make sense, or a document that reads the same again.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use millstream_flow::DocumentContext;

#[path = "../../tests/documents/take_apart.rs"]
mod take_apart;

static CONTEXT: LazyLock<DocumentContext> = LazyLock::new(take_apart::context);

fuzz_target!(|data: &[u8]| drop(take_apart::take_apart(data, &CONTEXT)));
