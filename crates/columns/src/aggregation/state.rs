//! The state of a query's aggregates.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::allocation::ALLOCATION_BYTES;
use super::distribution::Distribution;
use super::figure::Figure;
use super::groups::{Figures, Groups};
use super::key::{Nested, damaged, read_bytes, read_tuple};
use super::shape::{AggregateShape, SketchSizes};
use super::sketch::SketchMeta;
use super::sorted_rows::SortedRows;
use super::top::Top;
use crate::{Value, WindowState};

/// The state of an aggregate. All of one shape merge.
#[derive(Debug)]
pub struct AggregateState {
    accumulator: Accumulator,
    records: u64,
}

#[derive(Debug)]
enum Accumulator {
    /// The figures of all records.
    One {
        of: Figures,
        figures: Vec<Figure>,
    },
    Groups {
        keys: usize,
        groups: Box<Groups>,
    },
    Top(Box<Top>),
    Distribution(Box<Distribution>),
    Raw {
        rows: Vec<Box<[u8]>>,
        rows_max: usize,
    },
    Sorted(Box<SortedRows>),
}

impl WindowState for AggregateState {
    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }
}

impl AggregateState {
    /// The state without any records.
    pub fn new(shape: &AggregateShape, sizes: SketchSizes) -> Self {
        let accumulator = match shape {
            AggregateShape::Groups { keys, figures } => {
                if *keys == 0 {
                    let of = Figures::new(figures.clone(), sizes);
                    Accumulator::One { figures: of.fresh(), of }
                } else {
                    let of = Figures::new(figures.clone(), sizes);
                    Accumulator::Groups { keys: *keys, groups: Box::new(Groups::new(of, sizes)) }
                }
            }
            AggregateShape::Raw { rows_max } => Accumulator::Raw { rows: Vec::new(), rows_max: *rows_max },
            AggregateShape::Sorted { rows_max, descending } => {
                Accumulator::Sorted(Box::new(SortedRows::new(*rows_max, descending.clone())))
            }
            AggregateShape::Top { k, threshold } => Accumulator::Top(Box::new(Top::new(*k, *threshold, sizes.lg_top))),
            AggregateShape::Distribution { kind, points } => {
                Accumulator::Distribution(Box::new(Distribution::new(*kind, points.clone(), sizes.quantile_k)))
            }
        };
        Self { accumulator, records: 0 }
    }

    /// Adds a record by its inputs.
    pub fn add(&mut self, inputs: &[Value<'_>]) -> Result<(), Nested> {
        match &mut self.accumulator {
            Accumulator::One { of, figures } => of.add(figures, inputs)?,
            Accumulator::Groups { keys, groups } => groups.add(*keys, inputs)?,
            Accumulator::Top(top) => top.add(inputs)?,
            Accumulator::Distribution(distribution) => inputs.iter().for_each(|value| distribution.add(value)),
            Accumulator::Raw { .. } | Accumulator::Sorted(_) => {}
        }
        self.records += 1;
        Ok(())
    }

    /// Adds a record in the form that a match has written: a row, or the bytes of its inputs.
    pub fn add_written(&mut self, written: &[u8]) -> Result<(), Nested> {
        match &mut self.accumulator {
            Accumulator::Raw { rows, rows_max } if rows.len() < *rows_max => rows.push(written.into()),
            Accumulator::Raw { .. } => {}
            Accumulator::Sorted(rows) => rows.add(written),
            _ => {
                let inputs = read_tuple(written).expect("what a match has written is a tuple");
                return self.add(&inputs);
            }
        }
        self.records += 1;
        Ok(())
    }

    /// The encoded rows in their order, if the state holds rows of records.
    pub fn raw_rows(&self) -> Option<Vec<&[u8]>> {
        match &self.accumulator {
            Accumulator::Raw { rows, .. } => Some(rows.iter().map(|row| &**row).collect()),
            Accumulator::Sorted(rows) => Some(rows.rows()),
            _ => None,
        }
    }

    /// Merges another state of the same shape.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.accumulator, &other.accumulator) {
            (Accumulator::One { figures, .. }, Accumulator::One { figures: others, .. }) => {
                Figures::merge(figures, others)
            }
            (Accumulator::Groups { groups, .. }, Accumulator::Groups { groups: others, .. }) => groups.merge(others),
            (Accumulator::Top(top), Accumulator::Top(other)) => top.merge(other),
            (Accumulator::Distribution(mine), Accumulator::Distribution(other)) => mine.merge(other),
            (Accumulator::Raw { rows, rows_max }, Accumulator::Raw { rows: others, .. }) => {
                let room = rows_max.saturating_sub(rows.len());
                rows.extend(others.iter().take(room).cloned());
            }
            (Accumulator::Sorted(rows), Accumulator::Sorted(others)) => rows.merge(others),
            (mine, other) => debug_assert!(false, "{mine:?} and {other:?} are of one query"),
        }
        self.records += other.records;
    }

    /// The number of groups in the state; 0 if the shape has no groups.
    pub fn groups(&self) -> u64 {
        match &self.accumulator {
            Accumulator::Groups { groups, .. } => groups.len() as u64,
            Accumulator::Top(top) => top.len() as u64,
            _ => 0,
        }
    }

    /// The number of records that were added.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The values of each row: keys and figures, values and count, or what a distribution gives.
    pub fn rows(&self) -> Vec<Vec<Value<'static>>> {
        match &self.accumulator {
            Accumulator::One { figures, .. } => vec![figures.iter().map(Figure::value).collect()],
            Accumulator::Groups { groups, .. } => groups.rows(),
            Accumulator::Top(top) => top.rows(),
            Accumulator::Distribution(distribution) => distribution.rows(),
            Accumulator::Raw { .. } | Accumulator::Sorted(_) => Vec::new(),
        }
    }

    /// The meta of the rows' precision.
    pub fn sketches(&self) -> Vec<SketchMeta> {
        match &self.accumulator {
            Accumulator::One { of, figures } => of.sketches(&[figures]),
            Accumulator::Groups { groups, .. } => groups.sketches(),
            Accumulator::Top(top) => vec![top.meta()],
            Accumulator::Distribution(distribution) => vec![distribution.meta()],
            Accumulator::Raw { .. } | Accumulator::Sorted(_) => Vec::new(),
        }
    }

    /// The approximate size in bytes.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.accumulator {
                Accumulator::One { figures, .. } => figures.iter().map(Figure::size_bytes).sum(),
                Accumulator::Groups { groups, .. } => groups.size_bytes(),
                Accumulator::Top(top) => top.size_bytes(),
                Accumulator::Distribution(distribution) => distribution.size_bytes(),
                Accumulator::Sorted(rows) => rows.size_bytes(),
                Accumulator::Raw { rows, .. } => {
                    rows.iter().map(|row| row.len() + size_of::<Box<[u8]>>() + ALLOCATION_BYTES).sum()
                }
            }
    }

    /// The bytes that rows, metas, the stored form, or a merge take beside the state, for as long as they are made.
    pub fn working_bytes(&self) -> usize {
        match &self.accumulator {
            Accumulator::One { figures, .. } => figures.iter().map(Figure::working_bytes).sum(),
            Accumulator::Groups { groups, .. } => groups.working_bytes(),
            Accumulator::Top(top) => 4 * top.size_bytes(),
            Accumulator::Distribution(distribution) => distribution.working_bytes(),
            Accumulator::Raw { .. } | Accumulator::Sorted(_) => self.size_bytes(),
        }
    }

    /// The stored form, for [`Self::read`].
    pub fn write(&self) -> Vec<u8> {
        let mut out = SketchBytes::with_capacity(64);
        out.write_u8(VERSION);
        out.write_u8(self.accumulator.tag());
        out.write_u64_le(self.records);
        match &self.accumulator {
            Accumulator::One { figures, .. } => Figures::write(figures, &mut out),
            Accumulator::Groups { groups, .. } => groups.write(&mut out),
            Accumulator::Top(top) => top.write(&mut out),
            Accumulator::Distribution(distribution) => distribution.write(&mut out),
            Accumulator::Raw { rows, .. } => rows.iter().for_each(|row| write_row(&mut out, row)),
            Accumulator::Sorted(rows) => rows.written().for_each(|row| write_row(&mut out, row)),
        }
        out.into_bytes()
    }

    /// Reads a stored state of the same shape.
    ///
    /// # Errors
    /// [`Error`] if the bytes do not have this shape.
    pub fn read(shape: &AggregateShape, sizes: SketchSizes, bytes: &[u8]) -> Result<Self, Error> {
        let mut state = Self::new(shape, sizes);
        let mut input = SketchSlice::new(bytes);
        let cut = super::key::cut;
        if input.read_u8().map_err(cut)? != VERSION {
            return Err(damaged("a version that is not known"));
        }
        if input.read_u8().map_err(cut)? != state.accumulator.tag() {
            return Err(damaged("the state of another kind of query"));
        }
        state.records = input.read_u64_le().map_err(cut)?;
        match &mut state.accumulator {
            Accumulator::One { figures, .. } => {
                let read = Figures::read(&mut input)?;
                if read.len() != figures.len() || !figures.iter().zip(&read).all(|(a, b)| a.is_like(b)) {
                    return Err(damaged("the figures of another query"));
                }
                *figures = read;
            }
            Accumulator::Groups { groups, .. } => groups.resume(input.remaining())?,
            Accumulator::Top(top) => top.resume(input.remaining())?,
            Accumulator::Distribution(distribution) => distribution.resume(input.remaining())?,
            Accumulator::Raw { rows, .. } => read_rows(&mut input, |row| rows.push(row.into()))?,
            Accumulator::Sorted(rows) => read_rows(&mut input, |row| rows.add(&row))?,
        }
        Ok(state)
    }
}

fn write_row(out: &mut SketchBytes, row: &[u8]) {
    out.write_u64_le(row.len() as u64);
    out.write(row);
}

/// Reads rows up to the end of the input.
fn read_rows(input: &mut SketchSlice<'_>, mut take: impl FnMut(Vec<u8>)) -> Result<(), Error> {
    while !input.remaining().is_empty() {
        let length = input.read_u64_le().map_err(super::key::cut)?;
        take(read_bytes(input, length)?);
    }
    Ok(())
}

/// The version of stored states.
const VERSION: u8 = 1;

impl Accumulator {
    fn tag(&self) -> u8 {
        match self {
            Self::One { .. } => 0,
            Self::Groups { .. } => 1,
            Self::Top(_) => 2,
            Self::Distribution(_) => 3,
            // Rows are stored alike, sorted or not.
            Self::Raw { .. } | Self::Sorted(_) => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::super::{DistributionKind, FigureKind, FigureOf};
    use super::*;
    use crate::Points;

    fn figures(kinds: &[(FigureKind, std::ops::Range<usize>)]) -> std::sync::Arc<[FigureOf]> {
        let of = |(kind, inputs): &(FigureKind, std::ops::Range<usize>)| FigureOf {
            name: format!("{kind:?}"),
            kind: *kind,
            inputs: inputs.clone(),
        };
        kinds.iter().map(of).collect()
    }

    const ALL: [FigureKind; 7] = [
        FigureKind::Count,
        FigureKind::CountOf,
        FigureKind::Sum,
        FigureKind::Average,
        FigureKind::Min,
        FigureKind::Max,
        FigureKind::CountDistinct,
    ];

    /// All figures of the input after the keys.
    fn groups(keys: usize) -> AggregateShape {
        let of = |kind: &FigureKind| (*kind, if *kind == FigureKind::Count { 0..0 } else { keys..keys + 1 });
        AggregateShape::Groups { keys, figures: figures(&ALL.iter().map(of).collect::<Vec<_>>()) }
    }

    fn state(shape: &AggregateShape, records: &[&[Value<'_>]]) -> AggregateState {
        let mut state = AggregateState::new(shape, SketchSizes::default());
        records.iter().for_each(|inputs| state.add(inputs).unwrap());
        state
    }

    fn text(text: &'static str) -> Value<'static> {
        Value::Text(text.into())
    }

    #[test]
    fn without_records_the_count_is_zero_and_other_aggregates_are_null() {
        use Value::{Integer, Null};
        let row = [Integer(0), Integer(0), Null, Null, Null, Null, Integer(0)];
        assert_eq!(state(&groups(0), &[]).rows(), [row]);
        assert!(state(&groups(1), &[]).rows().is_empty());
    }

    #[test]
    fn aggregates_are_exact_and_skip_values_that_are_not_numbers() {
        use Value::{Boolean, Double, Integer, Null};
        let values = [Integer(3), text("4"), Null, text("x"), Boolean(true), Integer(3), Double(0.5)];
        let records: Vec<&[Value<'_>]> = values.iter().map(std::slice::from_ref).collect();
        let expected = vec![Integer(7), Integer(6), Double(10.5), Double(2.625), Double(0.5), Integer(4), Integer(5)];
        assert_eq!(state(&groups(0), &records).rows(), std::slice::from_ref(&expected));
        let (mut here, there) = (state(&groups(0), &records[..3]), state(&groups(0), &records[3..]));
        here.merge(&there);
        assert_eq!((here.rows(), here.records()), (vec![expected], 7));
    }

    #[test]
    fn groups_keep_the_types_of_their_keys() {
        use Value::{Double, Integer, Null};
        let count = AggregateShape::Groups { keys: 1, figures: figures(&[(FigureKind::Count, 0..0)]) };
        let records: Vec<Vec<Value<'_>>> =
            [Integer(10), text("10"), Double(10.0), Null, Integer(9), text("null")].map(|value| vec![value]).to_vec();
        let records: Vec<&[Value<'_>]> = records.iter().map(Vec::as_slice).collect();
        let expected = [
            vec![Null, Integer(1)],
            vec![Integer(9), Integer(1)],
            vec![Integer(10), Integer(2)],
            vec![text("10"), Integer(1)],
            vec![text("null"), Integer(1)],
        ];
        assert_eq!(state(&count, &records).rows(), expected);
        let nested = AggregateState::new(&count, SketchSizes::default()).add(&[Value::Nested(b"{}".into())]);
        assert_eq!(nested, Err(Nested));
    }

    #[test]
    fn groups_beyond_the_nominal_number_are_a_uniform_sample_with_exact_figures() {
        let shape =
            AggregateShape::Groups { keys: 1, figures: figures(&[(FigureKind::Count, 0..0), (FigureKind::Sum, 1..2)]) };
        let of = |groups: i64, part: i64| {
            let mut state = AggregateState::new(&shape, SketchSizes::default());
            for round in 0..4 {
                for group in (0..groups).filter(|group| (group + round) % 2 == part) {
                    state.add(&[Value::Integer(group), Value::Integer(group * round)]).unwrap();
                }
            }
            state
        };
        for groups in [512, 20_000] {
            let mut all = of(groups, 0);
            all.merge(&of(groups, 1));
            let rows = all.rows();
            assert_eq!(rows.len(), 512);
            for row in &rows {
                let Value::Integer(group) = row[0] else { panic!("{row:?}") };
                assert_eq!(row[1..], [Value::Integer(4), Value::Integer(group * 6)]);
            }
            let meta = &all.sketches()[0];
            assert_eq!((meta.was_estimated, meta.active_items), (groups > 512, Some(512)));
            let three = meta.standard_deviations.unwrap()[2];
            assert!(three.lower <= groups as f64 && groups as f64 <= three.upper, "{meta:?}");
            let estimate = meta.uniques_estimate.unwrap();
            assert!(three.upper - estimate <= 0.145 * estimate, "{meta:?}");
        }
    }

    #[test]
    fn quantiles_of_few_groups_are_as_precise_as_those_of_all_records() {
        let shape = AggregateShape::Groups { keys: 1, figures: figures(&[(FigureKind::Quantile(0.9), 1..2)]) };
        let mut state = AggregateState::new(&shape, SketchSizes::default());
        for n in 0..100_000_i64 {
            state.add(&[Value::Integer(n % 2), Value::Integer(n / 2 * 7919 % 50_000)]).unwrap();
        }
        for row in state.rows() {
            let Value::Double(high) = row[1] else { panic!("{row:?}") };
            assert!((high / 50_000.0 - 0.9).abs() <= 0.00239, "{row:?}");
        }
        let told = |state: &AggregateState| state.sketches()[1].rank_error.unwrap();
        assert!(told(&state) < 0.00239, "{}", told(&state));
        for n in 0..400 {
            for value in 0..500 {
                state.add(&[Value::Integer(10 + n), Value::Integer(value)]).unwrap();
            }
        }
        assert!((0.006..0.008).contains(&told(&state)), "of many groups: {}", told(&state));
    }

    #[test]
    fn different_values_are_counted_for_each_group() {
        let shape = AggregateShape::Groups { keys: 1, figures: figures(&[(FigureKind::CountDistinct, 1..2)]) };
        let mut state = AggregateState::new(&shape, SketchSizes::default());
        for n in 0..60_000 {
            let group = if n < 10 { "few" } else { "many" };
            state.add(&[text(group), Value::Integer(n)]).unwrap();
            state.add(&[text(group), Value::Null]).unwrap();
        }
        let rows = state.rows();
        assert_eq!(rows[0], [text("few"), Value::Integer(10)]);
        let Value::Integer(many) = rows[1][1] else { panic!("{rows:?}") };
        assert!(many.abs_diff(59_990) < 1_404, "{many}");
        let [tuple, theta] = &*state.sketches() else { panic!() };
        assert_eq!((tuple.was_estimated, theta.was_estimated), (false, true));
        assert!(theta.relative_error.unwrap() < 0.0240, "{theta:?}");
        assert!(state.size_bytes() > 64 << 10);
    }

    /// The state of the three figures below after the first two records of the test, in base64.
    const ENDS_OF_VERSION_1: &str = "AQACAAAAAAAAAAMAAAAHAQAAAAAAAAAAAAAAAAAQQAAAAAAAAAAACAkAAAAAAAAAAwQAAAAAAAAAFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACQoAAAAAAAAABQEAAAAAAAAAeBQAAAAAAAAAAAAAAAAAAAABAAAAAAAAAA==";

    #[test]
    fn deviations_and_ends_are_the_same_however_the_records_were_split_and_stored() {
        use Value::{Double, Integer, Null};
        let kinds = [(FigureKind::StandardDeviation, 0..1), (FigureKind::First, 0..4), (FigureKind::Last, 0..4)];
        let shape = AggregateShape::Groups { keys: 0, figures: figures(&kinds) };
        let record = |value, time_ms, offset| [value, Integer(time_ms), Integer(0), Integer(offset)];
        let records = [
            record(Integer(4), 20, 0),
            record(text("x"), 20, 1),
            record(Double(1.0), 10, 2),
            record(Null, 5, 3),
            record(Value::Nested(b"{}".into()), 30, 4),
            record(Integer(8), 20, 3),
        ];
        let records: Vec<&[Value<'_>]> = records.iter().map(<[Value<'_>; 4]>::as_slice).collect();
        assert_eq!(state(&shape, &[]).rows(), [[Null, Null, Null]]);
        assert_eq!(state(&shape, &records[..2]).rows(), [[Null, Integer(4), text("x")]]);
        let expected = [[Double(37.0_f64.sqrt() / 3.0_f64.sqrt()), Double(1.0), Integer(8)]];
        let kept = BASE64.decode(ENDS_OF_VERSION_1).unwrap();
        let stored = state(&shape, &records[..2]).write();
        assert_eq!(BASE64.encode(&stored), ENDS_OF_VERSION_1);
        for split in 0..=records.len() {
            let mut whole = state(&shape, &records[split..]);
            whole.merge(&state(&shape, &records[..split]));
            let mut read = AggregateState::read(&shape, SketchSizes::default(), &kept).unwrap();
            read.merge(&state(&shape, &records[2..]));
            for state in [&whole, &read] {
                let rows = state.rows();
                let (Double(found), Double(deviation)) = (&rows[0][0], &expected[0][0]) else { panic!("{rows:?}") };
                assert!((found - deviation).abs() < 1e-12, "{rows:?}");
                assert_eq!(rows[0][1..], expected[0][1..], "{split}");
            }
        }
    }

    /// The states of version 1 for the records `a` 1, `b` 2, `a` 1, by the shapes of [`shapes_v1`], in base64.
    const VERSION_1: &str = include_str!("../../tests/fixtures/states-v1.txt");

    fn shapes_v1() -> [AggregateShape; 5] {
        [
            groups(0),
            groups(1),
            AggregateShape::Top { k: 2, threshold: 0 },
            AggregateShape::Distribution { kind: DistributionKind::Quantile, points: Points::Linear(3) },
            AggregateShape::Raw { rows_max: 5 },
        ]
    }

    #[test]
    fn states_of_every_version_are_read() {
        let [a, b] = [("a", 1), ("b", 2)].map(|(key, n)| [text(key), Value::Integer(n)]);
        assert_eq!(VERSION_1.lines().count(), shapes_v1().len());
        for (shape, kept) in shapes_v1().iter().zip(VERSION_1.lines()) {
            let mut now = AggregateState::new(shape, SketchSizes::default());
            for inputs in [&a, &b, &a] {
                match shape {
                    AggregateShape::Raw { .. } => now.add_written(b"{\"n\":1}").unwrap(),
                    _ => now.add(inputs).unwrap(),
                }
            }
            let kept = BASE64.decode(kept).unwrap();
            let read = AggregateState::read(shape, SketchSizes::default(), &kept).unwrap();
            let mut rows = now.rows();
            if matches!(shape, AggregateShape::Groups { keys: 0, .. }) {
                // Version 1 did not store the least and the greatest text.
                rows[0].iter_mut().filter(|value| matches!(value, Value::Text(_))).for_each(|text| *text = Value::Null);
            }
            assert_eq!((read.rows(), read.records(), read.raw_rows()), (rows, 3, now.raw_rows()));
        }
    }

    #[test]
    fn states_are_read_as_they_were_written_by_their_own_kind_only() {
        let shapes = [
            groups(0),
            groups(1),
            AggregateShape::Top { k: 2, threshold: 0 },
            AggregateShape::Distribution { kind: DistributionKind::Quantile, points: Points::Linear(3) },
        ];
        let first = [text("a"), Value::Integer(1)];
        let second = [text("b"), Value::Integer(2)];
        let records: [&[Value<'_>]; 4] = [&first, &second, &first, &first];
        for (i, shape) in shapes.iter().enumerate() {
            let kept = state(shape, &records[..2]).write();
            let mut read = AggregateState::read(shape, SketchSizes::default(), &kept).unwrap();
            records[2..].iter().for_each(|inputs| read.add(inputs).unwrap());
            assert_eq!((read.rows(), read.records()), (state(shape, &records).rows(), 4));
            for (j, other) in shapes.iter().enumerate() {
                assert_eq!(AggregateState::read(other, SketchSizes::default(), &kept).is_ok(), i == j, "{i} {j}");
            }
            for length in 0..10 {
                assert!(AggregateState::read(shape, SketchSizes::default(), &kept[..length]).is_err());
            }
        }
        let counts = AggregateShape::Groups { keys: 0, figures: figures(&[(FigureKind::Count, 0..0)]) };
        let kept = state(&groups(0), &[]).write();
        assert!(AggregateState::read(&counts, SketchSizes::default(), &kept).is_err());
    }
}
