//! The functions of the suite, which jobs find by name: they make, copy and check records.
//!
//! A record is `{"n": NUMBER, "data": TEXT}`: a random number and 100 bytes. The first 16 of these are the time at which the
//! record was made, in hexadecimal nanoseconds; the others are random letters.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fastrand::Rng;
use millstream_flow::{Batch, FunctionOutput, Functions, NativeFunction, Params};
use millstream_load::Latencies;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub(super) const MAKE: &str = "bench.make";
pub(super) const INCREMENT: &str = "bench.inc";
pub(super) const AMPLIFY: &str = "bench.amplify";
pub(super) const CHECKSUM: &str = "bench.checksum";

/// Copies that `bench.amplify` makes of a record.
pub(super) const COPIES: u64 = 5;
/// Characters of the time stamp, and random letters after it.
const STAMP_BYTES: usize = 16;
const LETTERS: usize = 84;
/// The text before the time stamp.
const BEFORE_STAMP: &[u8] = b"\"data\":\"";

/// Time stamps count from here.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The counters of all sinks, by number.
static SINKS: RwLock<Vec<Arc<SinkCounters>>> = RwLock::new(Vec::new());

/// The functions of this program and those of the suite.
pub(super) fn registered() -> Functions {
    let function = |name, doc, call| NativeFunction { name, doc, call };
    Functions::default()
        .with(function(MAKE, "Replaces each record by a random number and 100 bytes.", make))
        .with(function(AMPLIFY, "Gives each record five times.", amplify))
        .with(function(CHECKSUM, "Checksums every byte and counts for the sink with the number `sink`.", checksum))
}

/// Everything that has reached one sink.
#[derive(Debug, Default)]
pub(super) struct SinkCounters {
    records: AtomicU64,
    bytes: AtomicU64,
    /// Sum of the checksums of all records, whatever their order.
    checksum: AtomicU64,
    latencies: Mutex<Latencies>,
}

impl SinkCounters {
    /// New counters, and their number for the parameter `sink`.
    pub(super) fn register() -> (u64, Arc<Self>) {
        let counters = Arc::new(Self::default());
        let mut sinks = SINKS.write();
        sinks.push(Arc::clone(&counters));
        (sinks.len() as u64 - 1, counters)
    }

    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn checksum(&self) -> u64 {
        self.checksum.load(Ordering::Relaxed)
    }

    /// Takes the latencies since the last call.
    pub(super) fn take_latencies(&self) -> Latencies {
        std::mem::take(&mut self.latencies.lock())
    }
}

/// Makes the records. With `fixed: true` their contents depend on their offsets alone, and their time is 0.
fn make(input: &Batch, params: &Params) -> FunctionOutput {
    let is_fixed = params.get("fixed") == Some(&Value::Bool(true));
    let (seed, now_ns) = if is_fixed { (0, 0) } else { (fastrand::u64(..), BEGIN.elapsed().as_nanos() as u64) };
    let stamp = format!("{now_ns:016x}");
    let mut writer = input.rewrite();
    for row in 0..input.len() {
        let mut random = Rng::with_seed(seed.wrapping_add(input.offset(row).0));
        let Ok(()) = writer.push(row, |out| {
            // Writing to memory does not fail.
            drop(write!(out, "{{\"n\":{},", random.u32(..)));
            out.extend_from_slice(BEFORE_STAMP);
            out.extend_from_slice(stamp.as_bytes());
            push_letters(&mut random, out);
            out.extend_from_slice(b"\"}");
            Ok::<(), Infallible>(())
        });
    }
    whole(writer.finish())
}

/// Appends the random letters, eight of each random number.
fn push_letters(random: &mut Rng, out: &mut Vec<u8>) {
    let mut left = LETTERS;
    while left > 0 {
        let letters = (random.u64(..) & 0x0f0f_0f0f_0f0f_0f0f) + 0x6161_6161_6161_6161;
        let part = left.min(size_of::<u64>());
        out.extend_from_slice(&letters.to_le_bytes()[..part]);
        left -= part;
    }
}

fn amplify(input: &Batch, _: &Params) -> FunctionOutput {
    let mut writer = input.rewrite();
    let mut inputs = Vec::with_capacity(input.len() * COPIES as usize);
    for row in 0..input.len() {
        let payload = input.payload(row).unwrap_or_default();
        for _ in 0..COPIES {
            let Ok(()) = writer.push(row, |out| {
                out.extend_from_slice(payload);
                Ok::<(), Infallible>(())
            });
            inputs.push(row as u32);
        }
    }
    FunctionOutput { batch: writer.finish(), inputs, failed: Vec::new() }
}

fn checksum(input: &Batch, params: &Params) -> FunctionOutput {
    let (mut bytes, mut checksum) = (0, 0_u64);
    for row in 0..input.len() {
        let payload = input.payload(row).unwrap_or_default();
        bytes += payload.len() as u64;
        checksum = checksum.wrapping_add(u64::from(crc32c::crc32c(payload)));
    }
    let number = params.get("sink").and_then(Value::as_u64).unwrap_or_default() as usize;
    if let Some(sink) = SINKS.read().get(number) {
        sink.records.fetch_add(input.len() as u64, Ordering::Relaxed);
        sink.bytes.fetch_add(bytes, Ordering::Relaxed);
        sink.checksum.fetch_add(checksum, Ordering::Relaxed);
        if let Some(made_ns) = input.payload(0).and_then(stamp_of).filter(|made_ns| *made_ns > 0) {
            sink.latencies.lock().record(BEGIN.elapsed().saturating_sub(Duration::from_nanos(made_ns)));
        }
    }
    whole(input.clone())
}

/// The time at which a record was made.
fn stamp_of(payload: &[u8]) -> Option<u64> {
    let at = payload.windows(BEFORE_STAMP.len()).position(|part| part == BEFORE_STAMP)? + BEFORE_STAMP.len();
    let stamp = std::str::from_utf8(payload.get(at..at + STAMP_BYTES)?).ok()?;
    u64::from_str_radix(stamp, 16).ok()
}

/// The output of a function that gives one record for each.
fn whole(batch: Batch) -> FunctionOutput {
    let inputs = (0..batch.len() as u32).collect();
    FunctionOutput { batch, inputs, failed: Vec::new() }
}
