//! One figure of a group's records.

use std::ops::Range;

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;
use millstream_columns::Value;

use super::distinct::Distinct;
use super::key::{Nested, cut, damaged, write_tuple};
use super::number::{Number, Total};

/// Which figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FigureKind {
    /// How many records.
    Count,
    /// How many values that are not NULL.
    CountOf,
    Sum,
    Average,
    Min,
    Max,
    /// How many different tuples; a single value that is NULL does not count.
    CountDistinct,
}

/// A figure and the inputs that it is computed of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FigureOf {
    /// What it is called in the meta.
    pub(crate) name: String,
    pub(crate) kind: FigureKind,
    pub(crate) inputs: Range<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum Figure {
    Count(u64),
    Sum(Total),
    Average(Total),
    Min(Option<Number>),
    Max(Option<Number>),
    CountDistinct(Box<Distinct>),
}

impl Figure {
    pub(crate) fn new(kind: FigureKind, lg_distinct: u8) -> Self {
        match kind {
            FigureKind::Count | FigureKind::CountOf => Self::Count(0),
            FigureKind::Sum => Self::Sum(Total::default()),
            FigureKind::Average => Self::Average(Total::default()),
            FigureKind::Min => Self::Min(None),
            FigureKind::Max => Self::Max(None),
            FigureKind::CountDistinct => Self::CountDistinct(Box::new(Distinct::new(lg_distinct))),
        }
    }

    /// Adds a record's values. A tuple of which one is nested cannot be told from others and is left out.
    pub(crate) fn add(&mut self, values: &[Value<'_>]) -> Result<(), Nested> {
        let number = || values.first().and_then(Number::of);
        match self {
            Self::Count(count) => *count += u64::from(values.first() != Some(&Value::Null)),
            Self::Sum(total) | Self::Average(total) => number().into_iter().for_each(|number| total.add(number)),
            Self::Min(least) => *least = least_of(*least, number()),
            Self::Max(greatest) => *greatest = greatest_of(*greatest, number()),
            Self::CountDistinct(distinct) => {
                if values != [Value::Null] {
                    let mut tuple = Vec::with_capacity(32);
                    write_tuple(&mut tuple, values)?;
                    distinct.add(&tuple);
                }
            }
        }
        Ok(())
    }

    /// Adds what another has come to. They are of one kind.
    pub(crate) fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => *a += b,
            (Self::Sum(a), Self::Sum(b)) | (Self::Average(a), Self::Average(b)) => a.merge(b),
            (Self::Min(a), Self::Min(b)) => *a = least_of(*a, *b),
            (Self::Max(a), Self::Max(b)) => *a = greatest_of(*a, *b),
            (Self::CountDistinct(a), Self::CountDistinct(b)) => a.merge(b),
            (mine, other) => debug_assert!(false, "{mine:?} and {other:?} are of one query"),
        }
    }

    pub(crate) fn value(&self) -> Value<'static> {
        match self {
            Self::Count(count) => Value::Integer(i64::try_from(*count).unwrap_or(i64::MAX)),
            Self::Sum(total) => total.sum(),
            Self::Average(total) => total.average(),
            Self::Min(number) | Self::Max(number) => number.map_or(Value::Null, Number::value),
            Self::CountDistinct(distinct) => Value::Integer(i64::try_from(distinct.count()).unwrap_or(i64::MAX)),
        }
    }

    pub(crate) fn distinct(&self) -> Option<&Distinct> {
        match self {
            Self::CountDistinct(distinct) => Some(distinct),
            _ => None,
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.distinct().map_or(0, |distinct| size_of::<Distinct>() + distinct.size_bytes())
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        let mut extreme = |tag, number: &Option<Number>| {
            out.write_u8(tag);
            out.write_u8(u8::from(number.is_some()));
            number.iter().for_each(|number| number.write(out));
        };
        match self {
            Self::Min(number) => extreme(MIN, number),
            Self::Max(number) => extreme(MAX, number),
            Self::Count(count) => {
                out.write_u8(COUNT);
                out.write_u64_le(*count);
            }
            Self::Sum(total) => {
                out.write_u8(SUM);
                total.write(out);
            }
            Self::Average(total) => {
                out.write_u8(AVERAGE);
                total.write(out);
            }
            Self::CountDistinct(distinct) => {
                out.write_u8(COUNT_DISTINCT);
                distinct.write(out);
            }
        }
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let extreme = |input: &mut SketchSlice<'_>| match input.read_u8().map_err(cut)? {
            0 => Ok(None),
            _ => Number::read(input).map(Some),
        };
        match input.read_u8().map_err(cut)? {
            COUNT => input.read_u64_le().map(Self::Count).map_err(cut),
            SUM => Total::read(input).map(Self::Sum),
            AVERAGE => Total::read(input).map(Self::Average),
            MIN => extreme(input).map(Self::Min),
            MAX => extreme(input).map(Self::Max),
            COUNT_DISTINCT => Distinct::read(input).map(|distinct| Self::CountDistinct(Box::new(distinct))),
            _ => Err(damaged("an unknown kind of figure")),
        }
    }
}

const COUNT: u8 = 0;
const SUM: u8 = 1;
const AVERAGE: u8 = 2;
const MIN: u8 = 3;
const MAX: u8 = 4;
const COUNT_DISTINCT: u8 = 5;

fn least_of(a: Option<Number>, b: Option<Number>) -> Option<Number> {
    extreme_of(a, b, std::cmp::Ordering::Less)
}

fn greatest_of(a: Option<Number>, b: Option<Number>) -> Option<Number> {
    extreme_of(a, b, std::cmp::Ordering::Greater)
}

/// Whichever stands to the other as `wanted`; the first one if they are equal.
fn extreme_of(a: Option<Number>, b: Option<Number>, wanted: std::cmp::Ordering) -> Option<Number> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.value().compare(&a.value()) == Some(wanted) { b } else { a }),
        (a, b) => a.or(b),
    }
}
