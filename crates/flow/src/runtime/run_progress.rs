//! How far a run has come: the records in flight, the ends of its topics, and event time.
//!
//! Instances add what they know; anyone may read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use super::neighbours::InstanceId;
use crate::batch::NO_TIME;
use crate::connector::{ReadUpTo, SourceProgress};
use crate::delivery::Tracker;
use crate::document::NodeId;
use crate::plan::Plan;

pub(crate) struct RunProgress {
    trackers: Mutex<Vec<Arc<Tracker>>>,
    /// The progress of the sources with a log, an entry for each instance.
    sources: Mutex<Vec<(NodeId, Arc<dyn SourceProgress>)>>,
    /// The watermark of each instance, by chain and number.
    watermarks: Vec<Vec<AtomicI64>>,
}

impl RunProgress {
    /// The progress of a run that begins.
    pub(super) fn new(plan: &Plan) -> Self {
        let unknown = |instances: u32| (0..instances).map(|_| AtomicI64::new(NO_TIME)).collect();
        Self {
            trackers: Mutex::default(),
            sources: Mutex::default(),
            watermarks: plan.chains.iter().map(|chain| unknown(chain.instances)).collect(),
        }
    }

    pub(super) fn add_tracker(&self, tracker: &Arc<Tracker>) {
        self.trackers.lock().push(Arc::clone(tracker));
    }

    pub(super) fn remove_tracker(&self, tracker: &Arc<Tracker>) {
        self.trackers.lock().retain(|known| !Arc::ptr_eq(known, tracker));
    }

    /// Closes all trackers: what is dropped from now on does not count as finished.
    pub(super) fn close_trackers(&self) {
        self.trackers.lock().iter().for_each(|tracker| tracker.close());
    }

    /// `true` if the run has read records and finished none.
    pub(crate) fn is_stuck(&self) -> bool {
        let trackers = self.trackers.lock();
        let holds_records = trackers.iter().any(|tracker| tracker.in_flight_records() > 0);
        holds_records && !trackers.iter().any(|tracker| tracker.has_moved())
    }

    /// Adds an instance of a source with a log.
    pub(super) fn add_source(&self, node: NodeId, source: Arc<dyn SourceProgress>) {
        self.sources.lock().push((node, source));
    }

    /// The progress of a source with a log; `None` for other nodes.
    pub(crate) fn read_up_to(&self, node: NodeId) -> Option<ReadUpTo> {
        let sources = self.sources.lock();
        let of_node = sources.iter().filter(|(id, _)| *id == node).map(|(_, source)| source.read_up_to());
        of_node.reduce(ReadUpTo::plus)
    }

    /// The records behind the ends of all topics that the job reads; `None` if it reads none.
    pub(super) fn lag(&self) -> Option<u64> {
        self.sources.lock().iter().map(|(_, source)| source.read_up_to().lag).reduce(|one, other| one + other)
    }

    /// Keeps the watermark of an instance.
    pub(super) fn set_watermark(&self, of: InstanceId, watermark_ms: i64) {
        self.watermarks[of.chain][of.number as usize].store(watermark_ms, Ordering::Relaxed);
    }

    /// The watermark of a chain: the least of its instances. `None` before their first record.
    pub(super) fn watermark(&self, chain: usize) -> Option<i64> {
        let least = self.watermarks[chain].iter().map(|watermark| watermark.load(Ordering::Relaxed)).min();
        least.filter(|watermark_ms| *watermark_ms != NO_TIME)
    }
}
