//! The published job and its shapes, as documents.

use serde_json::{Value, json};

use super::functions::{AMPLIFY, CHECKSUM, COPIES, INCREMENT, MAKE};

/// Remainders of the filters along the line. A filter passes numbers whose remainder by 10 is not below; each stage adds 1,
/// so one record in ten passes all five.
const REMAINDERS: [u32; 5] = [2, 3, 5, 7, 9];
/// Records in flight, as in the published run.
const MAX_IN_FLIGHT: u64 = 50_000;
/// The four nodes between the source and the sink.
const NODES: [&str; 4] = ["node1", "node2", "node3", "node4"];

/// The graph of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// The published one: source, four functions, sink.
    Line,
    /// Source, four functions beside each other, sink.
    FanOut,
    /// The line with a filter on each of its five edges.
    Filters,
    /// The line whose functions give each record five times.
    Amplifying,
}

impl Shape {
    /// Records that a source record brings to the sink; `None` if filters decide.
    pub(super) fn copies(self) -> Option<u64> {
        match self {
            Self::Line => Some(1),
            Self::FanOut => Some(NODES.len() as u64),
            Self::Amplifying => Some(COPIES.pow(NODES.len() as u32)),
            Self::Filters => None,
        }
    }
}

/// A job on generated records.
#[derive(Debug, Clone, Copy)]
pub(super) struct GeneratedJob {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// Mode B: a queue on every edge. Mode A: records cross edges by calls.
    pub(super) has_queues: bool,
    /// Most records of a batch.
    pub(super) batch: u32,
    /// Sources wait for acknowledgements inside the process.
    pub(super) is_tracked: bool,
    pub(super) instances: usize,
    /// A loop without the engine runs in turn with it.
    pub(super) has_loop: bool,
    /// It is measured again at half the rate that it reached.
    pub(super) is_paced: bool,
}

impl GeneratedJob {
    /// The document, for the sink with this number; at `rate` records a second, or as fast as they are taken.
    pub(super) fn document(&self, sink: u64, rate: Option<u64>) -> Value {
        let function = if self.shape == Shape::Amplifying { AMPLIFY } else { INCREMENT };
        let node = |at: usize| {
            let input = if at == 0 || self.shape == Shape::FanOut { "in" } else { NODES[at - 1] };
            let node = json!({
                "type": "function", "inputs": [input], "fn": function, "params": { "field": "n" },
                "parallelism": self.instances,
            });
            (NODES[at].to_owned(), node)
        };
        let last = if self.shape == Shape::FanOut { &NODES[..] } else { &NODES[3..] };
        let mut job = json!({
            "version": 1, "kind": "Job", "name": "bench", "restart": { "policy": "never" },
            "delivery": if self.is_tracked { "at_least_once" } else { "at_most_once" },
            "exchange": if self.has_queues { "queue" } else { "fused" },
            "sources": { "in": {
                "type": "generator", "config": { "record": {}, "rate": rate.map_or(json!("unlimited"), Value::from) },
                "fn": MAKE, "batch": { "size": self.batch }, "max_in_flight": MAX_IN_FLIGHT,
                "parallelism": self.instances,
            } },
            "transforms": (0..NODES.len()).map(node).collect::<serde_json::Map<_, _>>(),
            "sinks": { "out": {
                "type": "blackhole", "inputs": last, "fn": CHECKSUM, "params": { "sink": sink },
                "parallelism": self.instances,
            } },
        });
        if self.shape == Shape::Filters {
            let nodes: Vec<&str> = ["in"].into_iter().chain(NODES).chain(["out"]).collect();
            let routes = nodes
                .windows(2)
                .zip(REMAINDERS)
                .map(|(edge, least)| json!({ "from": edge[0], "to": [edge[1]], "when": format!("n % 10 >= {least}") }));
            job["routes"] = routes.collect();
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::engine::FlowEngine;
    use crate::flow::function_loop::FunctionLoop;
    use crate::flow::functions::SinkCounters;

    const RECORDS: u32 = 1_000;

    fn job(shape: Shape, has_queues: bool, batch: u32) -> GeneratedJob {
        GeneratedJob {
            name: "test",
            shape,
            has_queues,
            batch,
            is_tracked: true,
            instances: 1,
            has_loop: true,
            is_paced: false,
        }
    }

    /// Runs a job over a number of records whose contents are always the same; records, bytes and checksum at its sink.
    fn sent(engine: &FlowEngine, job: &GeneratedJob, records: u32) -> (u64, u64, u64) {
        let (number, sink) = SinkCounters::register();
        let mut document = job.document(number, None);
        document["mode"] = "batch".into();
        document["sources"]["in"]["config"]["count"] = records.into();
        document["sources"]["in"]["params"] = json!({ "fixed": true });
        engine.complete(&engine.start(&document).unwrap()).unwrap();
        (sink.records(), sink.bytes(), sink.checksum())
    }

    #[test]
    fn a_job_of_either_mode_and_the_loop_bring_the_same_bytes_to_the_sink() {
        let engine = FlowEngine::open().unwrap();
        let (number, sink) = SinkCounters::register();
        let fixed = [("fixed".to_owned(), json!(true))].into();
        let bare = FunctionLoop::new(RECORDS, number, &fixed).unwrap();
        assert_eq!(bare.send_batch().unwrap(), u64::from(RECORDS));
        let expected = (sink.records(), sink.bytes(), sink.checksum());
        assert_eq!(expected.0, u64::from(RECORDS));
        assert!(expected.1 > 100 * expected.0 && expected.2 > 0, "{expected:?}");
        for (has_queues, batch) in [(false, RECORDS), (true, RECORDS), (false, 20), (true, 7)] {
            let job = job(Shape::Line, has_queues, batch);
            assert_eq!(sent(&engine, &job, RECORDS), expected, "queues: {has_queues}, batch: {batch}");
        }
    }

    #[test]
    fn shapes_bring_as_many_records_to_the_sink_as_they_say() {
        let engine = FlowEngine::open().unwrap();
        let records = |shape, records| sent(&engine, &job(shape, false, 20), records).0;
        assert_eq!(records(Shape::FanOut, RECORDS), 4 * u64::from(RECORDS));
        assert_eq!(records(Shape::Amplifying, 2), 2 * 625);
        let passed = records(Shape::Filters, 10 * RECORDS);
        assert!((800..1_200).contains(&passed), "one in ten of 10,000: {passed}");
    }
}
