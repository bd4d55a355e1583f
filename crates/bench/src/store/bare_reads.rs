//! The baseline of reads: one thread that reads the same lengths from a file of the same size.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::values::Values;
use crate::process;

/// A file of values, one after the other.
pub(super) struct BareReads {
    file: File,
    /// Offset and length of each value.
    places: Vec<(u64, usize)>,
    buffer: Vec<u8>,
}

/// Reads, their time and the CPU time of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTimes {
    pub(super) reads: u64,
    pub(super) took: Duration,
    pub(super) cpu_s: f64,
}

impl ReadTimes {
    pub(super) fn rate_per_s(&self) -> f64 {
        self.reads as f64 / self.took.as_secs_f64()
    }

    pub(super) fn per_cpu_s(&self) -> f64 {
        self.reads as f64 / self.cpu_s.max(f64::MIN_POSITIVE)
    }
}

impl BareReads {
    /// Writes the values of the numbers below `count` to a file.
    pub(super) fn in_dir(dir: &Path, values: &Values, count: u64) -> anyhow::Result<Self> {
        let path = dir.join("bare-values");
        let write = || {
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
            let mut writer = std::io::BufWriter::new(&file);
            let (mut places, mut at) = (Vec::new(), 0);
            for number in 0..count {
                let value = values.get(number);
                writer.write_all(value)?;
                places.push((at, value.len()));
                at += value.len() as u64;
            }
            writer.flush()?;
            drop(writer);
            let longest = places.iter().map(|(_, length)| *length).max().unwrap_or_default();
            Ok::<_, std::io::Error>(Self { file, places, buffer: vec![0; longest] })
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads values at random for `time`.
    pub(super) fn read_for(&mut self, time: Duration) -> anyhow::Result<ReadTimes> {
        let mut random = fastrand::Rng::with_seed(2);
        let (started, cpu_s) = (Instant::now(), process::cpu_s(std::process::id())?);
        let mut reads = 0;
        while started.elapsed() < time {
            let (at, length) = self.places[random.usize(..self.places.len())];
            let into = &mut self.buffer[..length];
            self.file.read_exact_at(into, at).context("cannot read the bare file")?;
            std::hint::black_box(&into[0]);
            reads += 1;
        }
        Ok(ReadTimes { reads, took: started.elapsed(), cpu_s: process::cpu_s(std::process::id())? - cpu_s })
    }
}
