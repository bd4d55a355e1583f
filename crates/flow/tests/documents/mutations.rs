//! Mutated documents: each is read or refused, nothing panics, and each ends soon. Valid mutants seed further ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use crate::take_apart::{context, take_apart};

/// Mutations of an ordinary run, and the part of `MILLSTREAM_MUTATIONS` that falls to documents, which take longer to
/// read than a frame.
const MUTATIONS: u64 = 2_000;
const SHARE: u64 = 100;
/// Valid texts that are kept as seeds.
const KEPT_MAX: usize = 500;
const TEXT_MAX_BYTES: usize = 16 << 10;
/// Far more of a core than reading such a text takes.
const CPU_TIME_MAX: Duration = Duration::from_secs(20);
const SEED: u64 = 1;

/// Words that begin or end something.
const WORDS: [&str; 24] = [
    " ",
    "\n",
    "\n  ",
    "{",
    "}",
    "[",
    "]",
    ": ",
    ", ",
    "- ",
    "'",
    "\"",
    "# ",
    "|\n",
    "&a ",
    "*a",
    "!b ",
    "---\n",
    "all",
    "none",
    "null",
    "1e400",
    ":name",
    "use: { a: { bundle: cleaning, inputs: [in] } }\n",
];

fn mutations() -> u64 {
    std::env::var("MILLSTREAM_MUTATIONS").map_or(MUTATIONS, |mutations| mutations.parse::<u64>().unwrap() / SHARE)
}

/// A small generator with a printed seed, so that every run does the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.roll(bytes.len());
        match self.roll(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.roll(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..(at + self.roll(40)).min(bytes.len()))),
            3 => {
                // A part of another document.
                let from = self.roll(other.len());
                let part = other[from..(from + self.roll(200)).min(other.len())].to_vec();
                drop(bytes.splice(at..at, part));
            }
            4 => {
                let from = self.roll(bytes.len());
                let part = bytes[from..(from + self.roll(80)).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, part.repeat(1 + self.roll(4))));
            }
            _ => drop(bytes.splice(at..at, WORDS[self.roll(WORDS.len())].bytes())),
        }
        bytes.truncate(TEXT_MAX_BYTES);
    }
}

/// Returns the time for which this thread has had a core: other work on the machine does not count.
fn cpu_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
}

/// All examples, and all documents that are refused.
fn seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("../../examples/jobs"), root.join("tests/documents/refused")];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn mutated_documents_are_read_or_refused_and_end_soon() {
    let context = context();
    let (mut texts, mut dice) = (seeds(), Dice(SEED));
    let most = texts.len() + KEPT_MAX;
    for round in 0..mutations() {
        let mut bytes = texts[dice.roll(texts.len())].clone();
        for _ in 0..=dice.roll(6) {
            let other = dice.roll(texts.len());
            dice.mutate(&mut bytes, &texts[other]);
        }
        let begun = cpu_time();
        let outcome = catch_unwind(AssertUnwindSafe(|| take_apart(&bytes, &context)));
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        let took = cpu_time() - begun;
        assert!(took < CPU_TIME_MAX, "seed {SEED}, round {round} took {took:?}:\n{}", text());
        match outcome {
            Ok(true) if texts.len() < most => texts.push(bytes),
            Ok(_) => {}
            Err(_) => panic!("seed {SEED}, round {round}:\n{}", text()),
        }
    }
}
