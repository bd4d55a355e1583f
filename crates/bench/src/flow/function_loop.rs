//! The baseline of the six stages: one thread that calls the same functions over batches of the same size, without the
//! engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use millstream_flow::{Batch, FunctionOutput, NativeFunction, Params};
use millstream_log::run_in_background;
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record};
use serde_json::{Value, json};

use super::functions::{self, CHECKSUM, INCREMENT, MAKE, SinkCounters};
use super::job_run::{JobRun, RecordCounts};
use crate::process;

/// The functions of the line, in order, with their parameters.
pub(super) struct FunctionLoop {
    stages: Vec<(NativeFunction, Params)>,
    /// Records without contents, of which the first function makes others.
    input: Batch,
}

/// Calls the functions until the loop is warm, and then measures it for `time`.
pub(super) fn run(batch_records: u32, warm_up: Duration, time: Duration) -> anyhow::Result<JobRun> {
    let (number, sink) = SinkCounters::register();
    let stages = FunctionLoop::new(batch_records, number, &Params::new())?;
    let thread = std::thread::Builder::new().name("bare-loop".to_owned());
    let thread = thread.spawn(move || {
        // Workers of jobs have this priority, too.
        run_in_background();
        stages.run_for(warm_up)?;
        let pid = std::process::id();
        process::forget_peak(pid)?;
        sink.take_latencies();
        let bytes = sink.bytes();
        let cpu_before = process::cpu_s(pid)?;
        let (records, took) = stages.run_for(time)?;
        let cpu_s = process::cpu_s(pid)? - cpu_before;
        let tasks = records * stages.stages.len() as u64;
        let counts = RecordCounts { source: records, sink: records, tasks, sink_bytes: sink.bytes() - bytes };
        let latency = sink.take_latencies().summary();
        anyhow::Ok(JobRun { took, cpu_s, records, counts, latency, rss_mib: process::rss_peak_mib(pid)? })
    });
    thread.context("cannot start a thread")?.join().map_err(|_| anyhow!("the bare loop panicked"))?
}

impl FunctionLoop {
    pub(super) fn new(batch_records: u32, sink: u64, make_params: &Params) -> anyhow::Result<Self> {
        let known = functions::registered();
        let stage = |name: &str, params: &Params| {
            let function = known.get(name).with_context(|| format!("function '{name}' is not registered"))?;
            anyhow::Ok((function, params.clone()))
        };
        let of = |name: &str, value: Value| Params::from([(name.to_owned(), value)]);
        let increment = of("field", json!("n"));
        let mut stages = vec![stage(MAKE, make_params)?];
        for _ in 0..4 {
            stages.push(stage(INCREMENT, &increment)?);
        }
        stages.push(stage(CHECKSUM, &of("sink", json!(sink)))?);
        let mut builder = BatchBuilder::default();
        (0..batch_records).for_each(|_| builder.push(&Record { value: Some(b"{}"), ..Record::default() }));
        let stored = builder.seal(Offset(0), Epoch(1), Compression::None);
        let input = Batch::of_log(&Arc::from("bench"), PartitionId(0), &[stored], Offset(0))?;
        Ok(Self { stages, input })
    }

    /// Sends batches through all functions; the records, and the time that they took.
    fn run_for(&self, time: Duration) -> anyhow::Result<(u64, Duration)> {
        let (begin, mut records) = (Instant::now(), 0);
        loop {
            records += self.send_batch()?;
            let took = begin.elapsed();
            if took >= time {
                return Ok((records, took));
            }
        }
    }

    pub(super) fn send_batch(&self) -> anyhow::Result<u64> {
        let mut batch = self.input.clone();
        for (function, params) in &self.stages {
            let FunctionOutput { batch: made, failed, .. } = std::hint::black_box((function.call)(&batch, params));
            ensure!(failed.is_empty(), "'{}' failed: {failed:?}", function.name);
            batch = made;
        }
        Ok(batch.len() as u64)
    }
}
