//! A new job takes over the state of an earlier one, before its first run.
//!
//! All of it becomes the first epoch of the new job in one commit of its writer: the values by key, event times, watermarks, places
//! and, in the groups of its own, the positions of `stream` sources. From then on it needs the earlier job no more.
//!
//! Invariant: nothing of the earlier job takes effect once its state is read, as its writer is fenced before.

use std::collections::BTreeMap;

use millstream_log::{AckLevel, AtomicAppend, PositionCommit, reply};
use millstream_types::{PartitionId, TenantId, TopicPartition};

use super::epoch_keeper::{EpochKeeper, patient, state_topic, writer_name};
use super::restored_state::RestoredState;
use crate::Error;
use crate::connector::{Services, group_of, position_commit, topic_name};
use crate::delivery::SourcePosition;
use crate::document::{Document, EarlierJob, Node, NodeForm, Role};
use crate::plan::StateLayout;
use crate::state::EpochRecord;

/// The two jobs.
pub(crate) struct Takeover {
    pub(crate) services: Services,
    pub(crate) tenant: TenantId,
    /// The id of the new job.
    pub(crate) id: String,
    pub(crate) document: Document,
    /// The new job has epochs.
    pub(crate) has_epochs: bool,
    pub(crate) earlier: EarlierJob,
    /// That of the earlier job, which has ended before it had its own state.
    pub(crate) before: Option<Box<Takeover>>,
    /// The places that stand in the earlier job's record.
    pub(crate) earlier_places: BTreeMap<String, u64>,
}

impl Takeover {
    /// Takes over; the places for the new job's record. Does nothing a second time. Blocks on the disk.
    ///
    /// # Errors
    /// The state cannot be read or stored.
    pub(crate) fn run(&self) -> Result<BTreeMap<String, u64>, Error> {
        let log = &self.services.log;
        let layout = StateLayout(self.document.nodes.iter().map(|node| (self.earlier_name(node), 1)).collect());
        let keeper = self.has_epochs.then(|| EpochKeeper::open(log, &self.tenant, &self.id)).transpose()?;
        if let Some(keeper) = &keeper
            && RestoredState::read(&**log, keeper.topic(), &layout, &[])?.epoch.is_some()
        {
            return Ok(self.places(&BTreeMap::new(), &self.earlier_places));
        }
        // Its writer fences that of an attempt that is still on its way.
        let earlier_places = self.before.as_ref().map(|before| before.run()).transpose()?;
        let earlier_places = earlier_places.as_ref().unwrap_or(&self.earlier_places);
        let mut restored = self.read(&layout)?;
        let epoch = restored.epoch.take();
        let mut positions = Vec::new();
        for node in self.document.nodes.iter().filter(|node| node.role == Role::Source && node.kind == "stream") {
            positions.extend(self.positions(node, epoch.as_ref())?);
        }
        let places = epoch.as_ref().map(|epoch| epoch.places.clone()).unwrap_or_default();
        let places = self.places(&places, earlier_places);
        match keeper {
            Some(keeper) => {
                let record = self.first_epoch(epoch.as_ref(), &places, &positions);
                let nodes = self.document.nodes.iter().enumerate();
                let values = nodes.flat_map(|(number, node)| {
                    let values = restored.take(crate::document::NodeId(number), 0);
                    values.into_iter().map(move |(key, value)| (node.name.as_str(), key, value))
                });
                let commits = positions.into_iter().map(|(_, _, commit)| commit).collect();
                keeper.take_over(&record, values, commits)?;
            }
            None => {
                let commits = positions.into_iter().map(|(_, _, commit)| commit).collect();
                self.store(commits)?;
            }
        }
        Ok(places)
    }

    /// The state of the earlier job; none if it keeps no state.
    fn read(&self, layout: &StateLayout) -> Result<RestoredState, Error> {
        let log = &self.services.log;
        let topic = TopicPartition { topic: state_topic(&self.tenant, &self.earlier.id), partition: PartitionId(0) };
        if log.topic(&topic.topic).is_none() {
            return Ok(RestoredState::default());
        }
        drop(log.writer(&writer_name(&self.tenant, &self.earlier.id))?);
        let sources = self.document.nodes.iter().filter(|node| node.role == Role::Source && node.kind == "stream");
        let group = |node: &Node| {
            let old = self.earlier_name(node);
            let group = self.earlier.node(&old)?.group.as_deref();
            Some(group_of(&self.tenant, &self.earlier.name, &old, group))
        };
        let groups: Vec<String> = sources.filter_map(group).collect();
        RestoredState::read(&**log, &topic, layout, &groups)
    }

    fn map(&self) -> Option<&BTreeMap<String, String>> {
        self.document.resume_from.as_ref().map(|resume| &resume.map)
    }

    /// The name of the node from which one goes on; empty if it begins anew.
    fn earlier_name(&self, node: &Node) -> String {
        let none = BTreeMap::new();
        let found = self.earlier.node_of(&NodeForm::of(node), self.map().unwrap_or(&none));
        found.map(|(name, _)| name.to_owned()).unwrap_or_default()
    }

    /// The positions of a `stream` source, with its name: those of the last epoch, or of the group where there is none.
    fn positions(
        &self,
        node: &Node,
        epoch: Option<&EpochRecord>,
    ) -> Result<Vec<(String, SourcePosition, PositionCommit)>, Error> {
        let (log, old) = (&self.services.log, self.earlier_name(node));
        let name = topic_name(node, &self.tenant)?;
        let (Some(earlier), Some(topic)) = (self.earlier.node(&old), log.topic(&name)) else { return Ok(Vec::new()) };
        let of_epoch = epoch.and_then(|epoch| epoch.positions.get(&old));
        let old_group = group_of(&self.tenant, &self.earlier.name, &old, earlier.group.as_deref());
        let group = node.config.get("group").and_then(serde_json::Value::as_str);
        let group = group_of(&self.tenant, &self.document.name, &node.name, group);
        let mut found = Vec::new();
        for partition in 0..topic.config.partitions {
            let at = match of_epoch.and_then(|positions| positions.get(topic.id, partition)) {
                Some(at) => Some(at),
                None => {
                    let stored = log.committed(&old_group, &TopicPartition::new(name.clone(), partition))?;
                    let of_topic = stored.filter(|stored| stored.topic == topic.id);
                    of_topic.map(|stored| SourcePosition {
                        topic: stored.topic,
                        partition,
                        offset: stored.offset.0,
                        epoch: stored.epoch.0,
                    })
                }
            };
            // A job without epochs has stored the positions of its groups itself.
            let is_stored = of_epoch.is_none() && group == old_group && !self.has_epochs;
            found.extend(
                at.filter(|_| !is_stored).map(|at| (node.name.clone(), at, position_commit(&group, &name, &at))),
            );
        }
        Ok(found)
    }

    /// The places of the new job's sources without a log, and of its sinks.
    fn places(
        &self,
        of_epoch: &BTreeMap<String, Vec<u64>>,
        of_record: &BTreeMap<String, u64>,
    ) -> BTreeMap<String, u64> {
        let place = |node: &Node| {
            let old = self.earlier_name(node);
            let at = of_epoch.get(&old).and_then(|places| places.first()).or_else(|| of_record.get(&old))?;
            Some((node.name.clone(), *at))
        };
        self.document.nodes.iter().filter_map(place).collect()
    }

    /// The last epoch of the earlier job as the first of the new one.
    fn first_epoch(
        &self,
        last: Option<&EpochRecord>,
        places: &BTreeMap<String, u64>,
        positions: &[(String, SourcePosition, PositionCommit)],
    ) -> EpochRecord {
        let mut first = EpochRecord {
            epoch: 1,
            at_ms: last.map_or_else(|| self.services.wall.now_ms(), |last| last.at_ms),
            places: BTreeMap::new(),
            positions: BTreeMap::new(),
            times: BTreeMap::new(),
            watermarks: BTreeMap::new(),
            digests: BTreeMap::new(),
        };
        for node in &self.document.nodes {
            let (name, old) = (&node.name, self.earlier_name(node));
            if let Some(place) = places.get(name).filter(|_| node.role == Role::Source) {
                first.places.insert(name.clone(), vec![*place]);
            }
            let Some(last) = last else { continue };
            first.times.extend(last.times.get(&old).map(|times| (name.clone(), times.clone())));
            first.watermarks.extend(last.watermarks.get(&old).map(|watermark_ms| (name.clone(), *watermark_ms)));
        }
        for (name, at, _) in positions {
            first.positions.entry(name.clone()).or_default().set(at);
        }
        first
    }

    /// Stores positions of a job without epochs.
    fn store(&self, positions: Vec<PositionCommit>) -> Result<(), Error> {
        if positions.is_empty() {
            return Ok(());
        }
        let append = AtomicAppend { records: Vec::new(), positions };
        patient(&mut || {
            let (done, stored) = reply();
            self.services.writer.commit(&append, AckLevel::Synced, done)?;
            stored.wait().map(drop)
        })?;
        Ok(())
    }
}
