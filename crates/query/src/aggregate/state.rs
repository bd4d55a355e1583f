//! What a query's records have come to.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;
use millstream_columns::Value;

use super::distribution::Distribution;
use super::figure::Figure;
use super::groups::{Figures, Groups};
use super::key::{Nested, damaged, read_bytes, read_tuple};
use super::shape::{Shape, SketchSizes};
use super::sketch::SketchMeta;
use super::top::Top;

/// The state of an aggregate. All of one shape merge.
#[derive(Debug)]
pub(crate) struct State {
    kind: Kind,
    records: u64,
}

#[derive(Debug)]
enum Kind {
    /// Figures of all records.
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
}

impl State {
    /// Of no records.
    pub(crate) fn new(shape: &Shape, sizes: SketchSizes) -> Self {
        let kind = match shape {
            Shape::Groups { keys, figures } => {
                let of = Figures::new(figures.clone(), sizes);
                if *keys == 0 {
                    Kind::One { figures: of.fresh(), of }
                } else {
                    Kind::Groups { keys: *keys, groups: Box::new(Groups::new(of, sizes)) }
                }
            }
            Shape::Raw { rows_max } => Kind::Raw { rows: Vec::new(), rows_max: *rows_max },
            Shape::Top { k, threshold } => Kind::Top(Box::new(Top::new(*k, *threshold, sizes.lg_top))),
            Shape::Distribution { kind, points } => {
                Kind::Distribution(Box::new(Distribution::new(*kind, points.clone(), sizes.quantile_k)))
            }
        };
        Self { kind, records: 0 }
    }

    /// Adds a record by its inputs.
    pub(crate) fn add(&mut self, inputs: &[Value<'_>]) -> Result<(), Nested> {
        match &mut self.kind {
            Kind::One { of, figures } => of.add(figures, inputs)?,
            Kind::Groups { keys, groups } => groups.add(*keys, inputs)?,
            Kind::Top(top) => top.add(inputs)?,
            Kind::Distribution(distribution) => inputs.iter().for_each(|value| distribution.add(value)),
            Kind::Raw { .. } => {}
        }
        self.records += 1;
        Ok(())
    }

    /// Adds a record by what a match has written for it: a row, or the bytes of its inputs.
    pub(crate) fn add_written(&mut self, written: &[u8]) -> Result<(), Nested> {
        let Kind::Raw { rows, rows_max } = &mut self.kind else {
            let inputs = read_tuple(written).expect("what a match has written is a tuple");
            return self.add(&inputs);
        };
        if rows.len() < *rows_max {
            rows.push(written.into());
        }
        self.records += 1;
        Ok(())
    }

    /// The rows of records themselves, if that is what it holds.
    pub(crate) fn raw_rows(&self) -> Option<&[Box<[u8]>]> {
        match &self.kind {
            Kind::Raw { rows, .. } => Some(rows),
            _ => None,
        }
    }

    /// Adds what another of the same shape has come to.
    pub(crate) fn merge(&mut self, other: &Self) {
        match (&mut self.kind, &other.kind) {
            (Kind::One { figures, .. }, Kind::One { figures: others, .. }) => Figures::merge(figures, others),
            (Kind::Groups { groups, .. }, Kind::Groups { groups: others, .. }) => groups.merge(others),
            (Kind::Top(top), Kind::Top(other)) => top.merge(other),
            (Kind::Distribution(mine), Kind::Distribution(other)) => mine.merge(other),
            (Kind::Raw { rows, rows_max }, Kind::Raw { rows: others, .. }) => {
                let room = rows_max.saturating_sub(rows.len());
                rows.extend(others.iter().take(room).cloned());
            }
            (mine, other) => debug_assert!(false, "{mine:?} and {other:?} are of one query"),
        }
        self.records += other.records;
    }

    /// How many records have been added.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// The values of each row: keys and figures, values and count, or what a distribution gives.
    pub(crate) fn rows(&self) -> Vec<Vec<Value<'static>>> {
        match &self.kind {
            Kind::One { figures, .. } => vec![figures.iter().map(Figure::value).collect()],
            Kind::Groups { groups, .. } => groups.rows(),
            Kind::Top(top) => top.rows(),
            Kind::Distribution(distribution) => distribution.rows(),
            Kind::Raw { .. } => Vec::new(),
        }
    }

    /// What is to be told about how sure the rows are.
    pub(crate) fn sketches(&self) -> Vec<SketchMeta> {
        match &self.kind {
            Kind::One { of, figures } => of.sketches(&[figures]),
            Kind::Groups { groups, .. } => groups.sketches(),
            Kind::Top(top) => vec![top.meta()],
            Kind::Distribution(distribution) => vec![distribution.meta()],
            Kind::Raw { .. } => Vec::new(),
        }
    }

    /// What it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.kind {
                Kind::One { figures, .. } => figures.iter().map(Figure::size_bytes).sum(),
                Kind::Groups { groups, .. } => groups.size_bytes(),
                Kind::Top(top) => top.size_bytes(),
                Kind::Distribution(distribution) => distribution.size_bytes(),
                Kind::Raw { rows, .. } => rows.iter().map(|row| row.len() + size_of::<Box<[u8]>>()).sum(),
            }
    }

    /// The bytes of which [`Self::read`] makes it again.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = SketchBytes::with_capacity(64);
        out.write_u8(VERSION);
        out.write_u8(self.kind.tag());
        out.write_u64_le(self.records);
        match &self.kind {
            Kind::One { figures, .. } => Figures::write(figures, &mut out),
            Kind::Groups { groups, .. } => groups.write(&mut out),
            Kind::Top(top) => top.write(&mut out),
            Kind::Distribution(distribution) => distribution.write(&mut out),
            Kind::Raw { rows, .. } => rows.iter().for_each(|row| {
                out.write_u64_le(row.len() as u64);
                out.write(row);
            }),
        }
        out.into_bytes()
    }

    /// What was written with the same shape.
    ///
    /// # Errors
    /// The bytes are none of this shape.
    pub(crate) fn read(shape: &Shape, sizes: SketchSizes, bytes: &[u8]) -> Result<Self, Error> {
        let mut state = Self::new(shape, sizes);
        let mut input = SketchSlice::new(bytes);
        let cut = super::key::cut;
        if input.read_u8().map_err(cut)? != VERSION {
            return Err(damaged("a version that is not known"));
        }
        if input.read_u8().map_err(cut)? != state.kind.tag() {
            return Err(damaged("the state of another kind of query"));
        }
        state.records = input.read_u64_le().map_err(cut)?;
        match &mut state.kind {
            Kind::One { figures, .. } => {
                let read = Figures::read(&mut input)?;
                let same = |(a, b): (&Figure, &Figure)| std::mem::discriminant(a) == std::mem::discriminant(b);
                if read.len() != figures.len() || !figures.iter().zip(&read).all(same) {
                    return Err(damaged("the figures of another query"));
                }
                *figures = read;
            }
            Kind::Groups { groups, .. } => groups.resume(input.remaining())?,
            Kind::Top(top) => top.resume(input.remaining())?,
            Kind::Distribution(distribution) => distribution.resume(input.remaining())?,
            Kind::Raw { rows, .. } => {
                while !input.remaining().is_empty() {
                    let length = input.read_u64_le().map_err(cut)?;
                    rows.push(read_bytes(&mut input, length)?.into());
                }
            }
        }
        Ok(state)
    }
}

/// The form of kept states.
const VERSION: u8 = 1;

impl Kind {
    fn tag(&self) -> u8 {
        match self {
            Self::One { .. } => 0,
            Self::Groups { .. } => 1,
            Self::Top(_) => 2,
            Self::Distribution(_) => 3,
            Self::Raw { .. } => 4,
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
    fn groups(keys: usize) -> Shape {
        let of = |kind: &FigureKind| (*kind, if *kind == FigureKind::Count { 0..0 } else { keys..keys + 1 });
        Shape::Groups { keys, figures: figures(&ALL.iter().map(of).collect::<Vec<_>>()) }
    }

    fn state(shape: &Shape, records: &[&[Value<'_>]]) -> State {
        let mut state = State::new(shape, SketchSizes::default());
        records.iter().for_each(|inputs| state.add(inputs).unwrap());
        state
    }

    fn text(text: &'static str) -> Value<'static> {
        Value::Text(text.into())
    }

    #[test]
    fn of_nothing_the_count_is_zero_and_the_others_are_null() {
        use Value::{Integer, Null};
        let row = [Integer(0), Integer(0), Null, Null, Null, Null, Integer(0)];
        assert_eq!(state(&groups(0), &[]).rows(), [row]);
        assert!(state(&groups(1), &[]).rows().is_empty());
    }

    #[test]
    fn figures_are_exact_and_skip_what_is_no_number() {
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
        let count = Shape::Groups { keys: 1, figures: figures(&[(FigureKind::Count, 0..0)]) };
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
        let nested = State::new(&count, SketchSizes::default()).add(&[Value::Nested(b"{}")]);
        assert_eq!(nested, Err(Nested));
    }

    #[test]
    fn up_to_the_nominal_number_all_groups_are_there_and_beyond_it_a_uniform_sample_whose_figures_are_exact() {
        let shape = Shape::Groups { keys: 1, figures: figures(&[(FigureKind::Count, 0..0), (FigureKind::Sum, 1..2)]) };
        let of = |groups: i64, part: i64| {
            let mut state = State::new(&shape, SketchSizes::default());
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
    fn different_values_are_counted_for_each_group() {
        let shape = Shape::Groups { keys: 1, figures: figures(&[(FigureKind::CountDistinct, 1..2)]) };
        let mut state = State::new(&shape, SketchSizes::default());
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

    /// What version 1 has written of the records `a` 1, `b` 2, `a` 1, by the shapes of [`shapes_v1`], in base64.
    const VERSION_1: &str = include_str!("../../tests/fixtures/states-v1.txt");

    fn shapes_v1() -> [Shape; 5] {
        [
            groups(0),
            groups(1),
            Shape::Top { k: 2, threshold: 0 },
            Shape::Distribution { kind: DistributionKind::Quantile, points: Points::Linear(3) },
            Shape::Raw { rows_max: 5 },
        ]
    }

    #[test]
    fn states_of_every_version_are_read() {
        let [a, b] = [("a", 1), ("b", 2)].map(|(key, n)| [text(key), Value::Integer(n)]);
        assert_eq!(VERSION_1.lines().count(), shapes_v1().len());
        for (shape, kept) in shapes_v1().iter().zip(VERSION_1.lines()) {
            let mut now = State::new(shape, SketchSizes::default());
            for inputs in [&a, &b, &a] {
                match shape {
                    Shape::Raw { .. } => now.add_written(b"{\"n\":1}").unwrap(),
                    _ => now.add(inputs).unwrap(),
                }
            }
            let kept = BASE64.decode(kept).unwrap();
            let read = State::read(shape, SketchSizes::default(), &kept).unwrap();
            assert_eq!((read.rows(), read.records(), read.raw_rows()), (now.rows(), 3, now.raw_rows()));
        }
    }

    #[test]
    fn states_are_read_as_they_were_written_by_their_own_kind_only() {
        let shapes = [
            groups(0),
            groups(1),
            Shape::Top { k: 2, threshold: 0 },
            Shape::Distribution { kind: DistributionKind::Quantile, points: Points::Linear(3) },
        ];
        let first = [text("a"), Value::Integer(1)];
        let second = [text("b"), Value::Integer(2)];
        let records: [&[Value<'_>]; 4] = [&first, &second, &first, &first];
        for (i, shape) in shapes.iter().enumerate() {
            let kept = state(shape, &records[..2]).write();
            let mut read = State::read(shape, SketchSizes::default(), &kept).unwrap();
            records[2..].iter().for_each(|inputs| read.add(inputs).unwrap());
            assert_eq!((read.rows(), read.records()), (state(shape, &records).rows(), 4));
            for (j, other) in shapes.iter().enumerate() {
                assert_eq!(State::read(other, SketchSizes::default(), &kept).is_ok(), i == j, "{i} {j}");
            }
            for length in 0..10 {
                assert!(State::read(shape, SketchSizes::default(), &kept[..length]).is_err());
            }
        }
        let counts = Shape::Groups { keys: 0, figures: figures(&[(FigureKind::Count, 0..0)]) };
        let kept = state(&groups(0), &[]).write();
        assert!(State::read(&counts, SketchSizes::default(), &kept).is_err());
    }
}
