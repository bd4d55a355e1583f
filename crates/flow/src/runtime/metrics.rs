//! The nodes and edges of a job with their figures and taps. They outlive the runs of the job, so a restart after an error
//! neither resets a counter nor ends a tap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_types::MonotonicClock;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, TryAcquireError};

use super::counters::{Meter, NodeCounters, Rates};
use super::tap::{EdgeTaps, TapReader};
use crate::batch::Batch;
use crate::document::{NodeId, Role};
use crate::plan::{Plan, PlanNode};

/// Taps that may be open on the edges of one job.
pub(crate) const TAPS_PER_JOB_MAX: usize = 8;

pub(crate) struct JobMetrics {
    pub(crate) nodes: Vec<NodeMetrics>,
    pub(crate) taps: Arc<Semaphore>,
    clock: Arc<dyn MonotonicClock>,
}

pub(crate) struct NodeMetrics {
    pub(crate) name: String,
    pub(crate) counters: Arc<NodeCounters>,
    pub(crate) role: Role,
    kind: String,
    doc: Option<String>,
    instances: u32,
    /// The chain whose inbox feeds the node.
    pub(crate) chain: usize,
    /// Records reach the node through a queue, on one of its edges at least.
    pub(crate) has_queue: bool,
    edges: Vec<EdgeMetrics>,
}

struct EdgeMetrics {
    to: NodeId,
    is_fused: bool,
    figures: Arc<EdgeFigures>,
}

struct EdgeFigures {
    records: Meter,
    batches: AtomicU64,
    taps: Arc<EdgeTaps>,
}

/// The reason why a tap is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TapRefusal {
    UnknownEdge,
    TooMany,
    Ended,
}

impl JobMetrics {
    pub(crate) fn new(plan: &Plan, clock: Arc<dyn MonotonicClock>) -> Arc<Self> {
        Self::of(plan, clock, None)
    }

    /// The figures of a further run of the same nodes and edges, which goes on counting; instances and queues may be others.
    pub(crate) fn go_on(&self, plan: &Plan) -> Arc<Self> {
        Self::of(plan, Arc::clone(&self.clock), Some(self))
    }

    fn of(plan: &Plan, clock: Arc<dyn MonotonicClock>, earlier: Option<&Self>) -> Arc<Self> {
        let born = clock.now().as_secs();
        let is_fused = |from: usize, to: NodeId| plan.nodes[from].chain == plan.nodes[to.0].chain;
        let targets: Vec<Vec<NodeId>> = plan.nodes.iter().map(|planned| planned.router.targets()).collect();
        let has_queue = |id: usize| {
            let mut inputs = targets.iter().enumerate().filter(|(_, targets)| targets.contains(&NodeId(id)));
            inputs.any(|(from, _)| !is_fused(from, NodeId(id)))
        };
        let counters = |id: usize| match earlier {
            Some(earlier) => Arc::clone(&earlier.nodes[id].counters),
            None => Arc::new(NodeCounters::new(Arc::clone(&clock))),
        };
        let figures = |id: usize, edge: usize| match earlier {
            Some(earlier) => Arc::clone(&earlier.nodes[id].edges[edge].figures),
            None => {
                Arc::new(EdgeFigures { records: Meter::new(born), batches: AtomicU64::new(0), taps: Arc::default() })
            }
        };
        let node = |(id, planned): (usize, &PlanNode)| NodeMetrics {
            name: planned.node.name.clone(),
            counters: counters(id),
            role: planned.node.role,
            kind: planned.node.kind.clone(),
            doc: planned.node.doc.clone(),
            instances: plan.chains[planned.chain].instances,
            chain: planned.chain,
            has_queue: has_queue(id),
            edges: targets[id]
                .iter()
                .enumerate()
                .map(|(edge, to)| EdgeMetrics { to: *to, is_fused: is_fused(id, *to), figures: figures(id, edge) })
                .collect(),
        };
        let nodes = plan.nodes.iter().enumerate().map(node).collect();
        let taps =
            earlier.map_or_else(|| Arc::new(Semaphore::new(TAPS_PER_JOB_MAX)), |earlier| Arc::clone(&earlier.taps));
        Arc::new(Self { nodes, taps, clock })
    }

    pub(crate) fn counters(&self, node: NodeId) -> &NodeCounters {
        &self.nodes[node.0].counters
    }

    /// Counts a batch that passes an edge, and offers it to the edge's taps.
    pub(crate) fn passes(&self, from: NodeId, to: NodeId, batch: &Batch) {
        if let Some(edge) = self.nodes[from.0].edges.iter().find(|edge| edge.to == to) {
            let (now, figures) = (self.clock.now(), &edge.figures);
            figures.records.add(now.as_secs(), batch.len() as u64);
            figures.batches.fetch_add(1, Ordering::Relaxed);
            figures.taps.offer(batch, now);
        }
    }

    /// Opens a tap on an edge that takes `rate` records a second.
    ///
    /// # Errors
    /// [`TapRefusal`] if there is no such edge, too many taps are open, or the run has ended.
    pub(crate) fn tap(&self, from: &str, to: &str, rate: f64) -> Result<TapReader, TapRefusal> {
        let node = self.nodes.iter().find(|node| node.name == from);
        let edge = node.and_then(|node| node.edges.iter().find(|edge| self.nodes[edge.to.0].name == to));
        let edge = edge.ok_or(TapRefusal::UnknownEdge)?;
        let place = Arc::clone(&self.taps).try_acquire_owned().map_err(|refusal| match refusal {
            TryAcquireError::NoPermits => TapRefusal::TooMany,
            TryAcquireError::Closed => TapRefusal::Ended,
        })?;
        EdgeTaps::open(&edge.figures.taps, rate, self.clock.now(), place).ok_or(TapRefusal::Ended)
    }

    /// Ends all taps, and opens no more.
    pub(crate) fn close_taps(&self) {
        self.taps.close();
        self.nodes.iter().flat_map(|node| &node.edges).for_each(|edge| edge.figures.taps.close());
    }

    /// All edges, as names of two nodes.
    pub(crate) fn edges(&self) -> Vec<String> {
        let of_node = |node: &NodeMetrics| {
            let name = node.name.clone();
            node.edges.iter().map(|edge| format!("{name},{}", self.nodes[edge.to.0].name)).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// Adds the records and rates of the whole job.
    pub(crate) fn describe_totals(&self, job: &mut Value) {
        let (mut read, mut written, mut errors) = (Total::default(), Total::default(), 0);
        for node in &self.nodes {
            let counts = node.counters.counts();
            match node.role {
                Role::Source => read.add(counts.records_in, counts.rates_in),
                Role::Sink => written.add(counts.records_out, counts.rates_out),
                Role::Transform => {}
            }
            errors += counts.errors();
        }
        for (total, word) in [(read, "in"), (written, "out")] {
            job[format!("records_{word}")] = total.records.into();
            job[format!("rate_{word}")] = total.rates.short.into();
            job[format!("rate_{word}_1m")] = total.rates.long.into();
        }
        job["errors"] = errors.into();
    }

    /// The nodes, in the order of the document; without figures only what the document says.
    pub(crate) fn describe_nodes(&self, has_figures: bool) -> Vec<Value> {
        let describe = |node: &NodeMetrics| {
            let mut told = json!({
                "name": node.name,
                "type": node.kind,
                "role": role_name(node.role),
                "instances": node.instances,
            });
            if let Some(doc) = &node.doc {
                told["doc"] = doc.as_str().into();
            }
            if has_figures {
                node.describe_figures(&mut told);
            }
            told
        };
        self.nodes.iter().map(describe).collect()
    }

    /// The edges, in the order of their nodes.
    pub(crate) fn describe_edges(&self, has_figures: bool) -> Vec<Value> {
        let second = self.clock.now().as_secs();
        let of_node = |node: &NodeMetrics| {
            let describe = |edge: &EdgeMetrics| {
                let exchange = if edge.is_fused { "fused" } else { "queue" };
                let mut told = json!({"from": node.name, "to": self.nodes[edge.to.0].name, "exchange": exchange});
                if has_figures {
                    told["records"] = edge.figures.records.total().into();
                    told["batches"] = edge.figures.batches.load(Ordering::Relaxed).into();
                    told["rate"] = edge.figures.records.rates(second).long.into();
                }
                told
            };
            node.edges.iter().map(describe).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }
}

impl NodeMetrics {
    fn describe_figures(&self, told: &mut Value) {
        let counts = self.counters.counts();
        told["records_in"] = counts.records_in.into();
        told["records_out"] = counts.records_out.into();
        told["batches"] = counts.batches_in.into();
        told["batches_out"] = counts.batches_out.into();
        told["rate_in"] = counts.rates_in.short.into();
        told["rate_out"] = counts.rates_out.short.into();
        told["rate_in_1m"] = counts.rates_in.long.into();
        told["rate_out_1m"] = counts.rates_out.long.into();
        told["errors"] = counts.errors().into();
        told["errors_by_code"] = json!(counts.errors_by_code);
        told["unrouted"] = counts.unrouted.into();
        if counts.late > 0 {
            told["late"] = counts.late.into();
        }
        told["latency_ms"] = json!({"p50": counts.latency_p50_ms, "p99": counts.latency_p99_ms});
    }
}

/// Records and rates of several nodes.
#[derive(Default)]
struct Total {
    records: u64,
    rates: Rates,
}

impl Total {
    fn add(&mut self, records: u64, rates: Rates) {
        self.records += records;
        self.rates.short += rates.short;
        self.rates.long += rates.long;
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Source => "source",
        Role::Transform => "transform",
        Role::Sink => "sink",
    }
}
