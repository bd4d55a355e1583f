//! Figures by group: all groups up to the nominal number, then a uniform sample of them whose figures stay exact.

use std::cell::Cell;
use std::sync::Arc;

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::common::NumStdDev;
use datasketches::error::Error;
use datasketches::tuple::{
    CompactTupleSketch, SummaryCombinePolicy, SummaryPolicy, SummaryUpdatePolicy, TupleSketch, TupleSketchBuilder,
    TupleSummaryValue, TupleUnionBuilder,
};

use super::allocation::{ALLOCATION_BYTES, allocated, table_places};
use super::figure::{Figure, FigureKind, FigureOf};
use super::key::{Nested, cut, order_tuples, owned, read_bytes, read_tuple, write_tuple};
use super::quantile::Quantile;
use super::shape::SketchSizes;
use super::sketch::{Bounds, SketchMeta};
use crate::Value;

/// The size of a group's place in a table: its hash and its figures.
const ENTRY_BYTES: usize = size_of::<u64>() + size_of::<GroupFigures>();

/// So many groups, the first, have quantiles as precise as those of all records; the others have smaller sketches, so that many groups
/// have room.
const PRECISE_GROUPS_MAX: u32 = 256;

/// A tuple sketch of the groups seen here, and one of the groups that were merged or read.
#[derive(Debug)]
pub(crate) struct Groups {
    lg_groups: u8,
    figures: Figures,
    live: TupleSketch<Figures>,
    merged: Option<CompactTupleSketch<GroupFigures>>,
    key: Vec<u8>,
}

/// The figures of one group.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupFigures {
    key: Vec<u8>,
    figures: Vec<Figure>,
}

/// The figures that each group has.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    of: Arc<[FigureOf]>,
    lg_distinct: u8,
    quantile_k: u16,
    group_quantile_k: u16,
    /// The number of groups that may still be made with `quantile_k`.
    precise_groups_left: Cell<u32>,
}

impl Figures {
    pub(crate) fn new(of: Arc<[FigureOf]>, sizes: SketchSizes) -> Self {
        let SketchSizes { lg_distinct, quantile_k, group_quantile_k, .. } = sizes;
        Self { of, lg_distinct, quantile_k, group_quantile_k, precise_groups_left: Cell::new(PRECISE_GROUPS_MAX) }
    }

    /// The figures of a group that is new.
    pub(crate) fn fresh(&self) -> Vec<Figure> {
        let left = self.precise_groups_left.get();
        let quantile_k = if left > 0 { self.quantile_k } else { self.group_quantile_k };
        self.precise_groups_left.set(left.saturating_sub(1));
        self.of.iter().map(|of| Figure::new(of.kind, self.lg_distinct, quantile_k)).collect()
    }

    pub(crate) fn add(&self, figures: &mut [Figure], inputs: &[Value<'_>]) -> Result<(), Nested> {
        let each = figures.iter_mut().zip(&*self.of);
        each.map(|(figure, of)| figure.add(&inputs[of.inputs.clone()])).fold(Ok(()), Result::and)
    }

    pub(crate) fn merge(mine: &mut [Figure], other: &[Figure]) {
        mine.iter_mut().zip(other).for_each(|(mine, other)| mine.merge(other));
    }

    pub(crate) fn write(figures: &[Figure], out: &mut SketchBytes) {
        out.write_u32_le(figures.len() as u32);
        figures.iter().for_each(|figure| figure.write(out));
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Vec<Figure>, Error> {
        let count = input.read_u32_le().map_err(cut)?;
        (0..count).map(|_| Figure::read(input)).collect()
    }

    /// The meta of the sketches among the figures of some groups.
    pub(crate) fn sketches(&self, groups: &[&[Figure]]) -> Vec<SketchMeta> {
        let told = self.of.iter().enumerate().filter_map(|(i, of)| {
            if matches!(of.kind, FigureKind::Quantile(_)) {
                return quantiles(&of.name, groups.iter().filter_map(|group| group[i].quantile()));
            }
            let mut distincts = groups.iter().filter_map(|group| group[i].distinct());
            let mut meta = distincts.next()?.meta(&of.name);
            for distinct in distincts {
                meta.size_bytes += distinct.size_bytes() as u64;
            }
            if groups.len() > 1 {
                // Each group has its own estimate; of all there is only the worst error.
                let errors = groups.iter().filter_map(|group| group[i].distinct()?.relative_error());
                meta.relative_error = errors.reduce(f64::max);
                meta.was_estimated = meta.relative_error.is_some();
                (meta.theta, meta.uniques_estimate, meta.standard_deviations) = (None, None, None);
            }
            Some(meta)
        });
        told.collect()
    }
}

/// The meta of the quantiles of groups: the worst error of all.
fn quantiles<'q>(name: &str, mut groups: impl Iterator<Item = &'q Quantile>) -> Option<SketchMeta> {
    let mut meta = groups.next()?.meta(name);
    for quantile in groups {
        meta.size_bytes += quantile.size_bytes() as u64;
        meta.items_seen = meta.items_seen.map(|seen| seen + quantile.items_seen());
        meta.rank_error = meta.rank_error.map(|error| error.max(quantile.rank_error().unwrap_or(0.0)));
    }
    meta.was_estimated = meta.rank_error > Some(0.0);
    Some(meta)
}

/// A record, as its group sees it.
pub(crate) struct GroupRecord<'k, 'v> {
    key: &'k [u8],
    inputs: &'k [Value<'v>],
}

impl SummaryPolicy for Figures {
    type Summary = GroupFigures;

    fn create(&self) -> GroupFigures {
        GroupFigures { key: Vec::new(), figures: self.fresh() }
    }
}

impl SummaryUpdatePolicy<GroupRecord<'_, '_>> for Figures {
    fn update(&self, group: &mut GroupFigures, seen: GroupRecord<'_, '_>) {
        if group.key.is_empty() {
            group.key = seen.key.to_vec();
        }
        // Nested values have been refused before.
        let _ = self.add(&mut group.figures, seen.inputs);
    }
}

impl SummaryCombinePolicy for Figures {
    fn combine(&self, group: &mut GroupFigures, other: &GroupFigures) {
        Self::merge(&mut group.figures, &other.figures);
    }
}

impl TupleSummaryValue for GroupFigures {
    fn serialize_size(&self) -> usize {
        size_of::<Self>() + self.contents_bytes()
    }

    fn serialize_value(&self, out: &mut SketchBytes) {
        out.write_u64_le(self.key.len() as u64);
        out.write(&self.key);
        Figures::write(&self.figures, out);
    }

    fn deserialize_value(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let length = input.read_u64_le().map_err(cut)?;
        let key = read_bytes(input, length)?;
        read_tuple(&key)?;
        Ok(Self { key, figures: Figures::read(input)? })
    }
}

impl GroupFigures {
    /// The size of what it refers to; it stands in the table of its sketch.
    fn contents_bytes(&self) -> usize {
        2 * ALLOCATION_BYTES + self.key.len() + self.figures.iter().map(Figure::size_bytes).sum::<usize>()
    }
}

impl Groups {
    pub(crate) fn new(figures: Figures, sizes: SketchSizes) -> Self {
        let live = TupleSketchBuilder::new(figures.clone()).lg_k(sizes.lg_groups).build();
        let live = live.expect("the size of a sketch is within its family's bounds");
        Self { lg_groups: sizes.lg_groups, figures, live, merged: None, key: Vec::new() }
    }

    /// Adds a record; its first `keys` inputs are its group.
    pub(crate) fn add(&mut self, keys: usize, inputs: &[Value<'_>]) -> Result<(), Nested> {
        write_tuple(&mut self.key, &inputs[..keys])?;
        let counted = self.figures.of.iter().filter(|of| of.kind == FigureKind::CountDistinct);
        if counted
            .flat_map(|of| &inputs[of.inputs.clone()])
            .any(|value| matches!(value, Value::Nested(_) | Value::List(_)))
        {
            return Err(Nested);
        }
        self.live.update(self.key.as_slice(), GroupRecord { key: &self.key, inputs });
        Ok(())
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.merged = Some(self.union([self.merged.as_ref(), other.merged.as_ref()], &other.live));
    }

    fn union(
        &self,
        merged: [Option<&CompactTupleSketch<GroupFigures>>; 2],
        live: &TupleSketch<Figures>,
    ) -> CompactTupleSketch<GroupFigures> {
        let union = TupleUnionBuilder::new(self.figures.clone()).lg_k(self.lg_groups).build();
        let mut union = union.expect("the size of a sketch is within its family's bounds");
        const ONE_SEED: &str = "all sketches are made with the one seed";
        for sketch in merged.into_iter().flatten() {
            union.update(sketch).expect(ONE_SEED);
        }
        union.update(live).expect(ONE_SEED);
        union.to_sketch(true)
    }

    /// All together, never more than the nominal number of groups.
    fn result(&self) -> CompactTupleSketch<GroupFigures> {
        self.union([self.merged.as_ref(), None], &self.live)
    }

    /// Keys and figures of each group, by the order of the keys.
    pub(crate) fn rows(&self) -> Vec<Vec<Value<'static>>> {
        let result = self.result();
        let mut rows: Vec<Vec<Value<'static>>> = Vec::with_capacity(result.num_retained());
        for group in result.iter().map(|entry| entry.summary()) {
            let key = read_tuple(&group.key).expect("a group's key was written here, or checked when it was read");
            let mut row: Vec<Value<'static>> = key.into_iter().map(owned).collect();
            row.extend(group.figures.iter().map(Figure::value));
            rows.push(row);
        }
        rows.sort_by(|a, b| order_tuples(a, b));
        rows
    }

    pub(crate) fn sketches(&self) -> Vec<SketchMeta> {
        let result = self.result();
        let mut told = vec![SketchMeta {
            theta: Some(result.theta()),
            uniques_estimate: Some(result.estimate()),
            standard_deviations: Some(Bounds::by_deviations(|deviations: NumStdDev| {
                (result.lower_bound(deviations), result.upper_bound(deviations))
            })),
            active_items: Some(result.num_retained() as u64),
            ..SketchMeta::new("groups", "tuple", self.size_bytes(), result.is_estimation_mode())
        }];
        let groups: Vec<&[Figure]> = result.iter().map(|entry| entry.summary().figures.as_slice()).collect();
        told.extend(self.figures.sketches(&groups));
        told
    }

    /// The approximate number of groups.
    pub(crate) fn len(&self) -> usize {
        self.live.num_retained().max(self.merged.as_ref().map_or(0, CompactTupleSketch::num_retained))
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let merged = self.merged.as_ref().map_or(0, |merged| allocated(merged.estimated_size()));
        self.live.estimated_size() + merged + self.contents_bytes()
    }

    /// The bytes that a union of all groups and its result take beside the state, or its stored form.
    pub(crate) fn working_bytes(&self) -> usize {
        let entries = self.live.num_retained() + self.merged.as_ref().map_or(0, CompactTupleSketch::num_retained);
        (table_places(self.lg_groups, entries) + 2 * entries) * ENTRY_BYTES + 3 * self.contents_bytes()
    }

    fn contents_bytes(&self) -> usize {
        let live = self.live.iter().map(|entry| entry.summary().contents_bytes());
        let merged = self.merged.iter().flat_map(|merged| merged.iter());
        live.sum::<usize>() + merged.map(|entry| entry.summary().contents_bytes()).sum::<usize>()
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        out.write(&self.result().serialize());
    }

    /// Resumes from the bytes of a stored state.
    pub(crate) fn resume(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let merged = CompactTupleSketch::<GroupFigures>::deserialize(bytes)?;
        if merged.iter().any(|entry| entry.summary().figures.len() != self.figures.of.len()) {
            return Err(super::key::damaged("the figures of another query"));
        }
        self.merged = Some(merged);
        Ok(())
    }
}
