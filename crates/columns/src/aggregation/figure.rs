//! One figure of a group's records.

use std::cmp::Ordering;
use std::ops::Range;

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::collected::{Collected, ListKind};
use super::deviation::Deviation;
use super::distinct::Distinct;
use super::ends::{Placed, RecordEnd};
use super::key::{Nested, cut, damaged, read_bytes, write_tuple};
use super::number::{Number, Total};
use super::quantile::Quantile;
use crate::Value;

/// The kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FigureKind {
    /// The number of records that were added.
    Count,
    /// The number of values that are not NULL.
    CountOf,
    /// The sum of the numbers.
    Sum,
    /// The mean of the numbers.
    Average,
    /// The least value that was added.
    Min,
    /// The greatest value that was added.
    Max,
    /// The standard deviation of the numbers.
    StandardDeviation,
    /// The first value by the place of its record, which the inputs after it tell: time, partition, offset.
    First,
    /// The last value, by the same places as for [`FigureKind::First`].
    Last,
    /// The number at this rank.
    Quantile(f64),
    /// The number of distinct tuples; a single value that is NULL does not count.
    CountDistinct,
    /// The values as a list; the last input, behind its sort keys.
    List(ListKind),
}

/// A figure and the inputs that it is computed of.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureOf {
    /// The name in the meta.
    pub name: String,
    /// The kind of the figure.
    pub kind: FigureKind,
    /// The places of its inputs among those of a record.
    pub inputs: Range<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum Figure {
    Count(u64),
    Sum(Total),
    Average(Total),
    Min(Option<Extreme>),
    Max(Option<Extreme>),
    CountDistinct(Box<Distinct>),
    Quantile(Box<Quantile>),
    StandardDeviation(Box<Deviation>),
    First(Option<Box<Placed>>),
    Last(Option<Box<Placed>>),
    List(Box<Collected>),
}

/// The least or the greatest so far: of numbers, and of texts where there are no numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Extreme {
    Number(Number),
    Text(Box<str>),
}

impl Extreme {
    /// Keeps the one of `kept` and `next` that is `wanted` relative to the other; `kept` stays if they are equal.
    fn take(kept: &mut Option<Self>, next: &Value<'_>, wanted: Ordering) {
        let next = match (Number::of(next).map(Number::value), next) {
            (Some(number), _) => number,
            (None, Value::Text(text)) => Value::Text(text.as_ref().into()),
            (None, _) => return,
        };
        let is_better = match (&*kept, &next) {
            (None, _) | (Some(Self::Text(_)), Value::Integer(_) | Value::Double(_)) => true,
            (Some(kept), next) => next.compare(&kept.value()) == Some(wanted),
        };
        if is_better {
            *kept = match next {
                Value::Text(text) => Some(Self::Text(text.into())),
                number => Number::of(&number).map(Self::Number),
            };
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Number(number) => number.value(),
            Self::Text(text) => Value::Text((&**text).into()),
        }
    }

    fn size_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }

    fn write(kept: Option<&Self>, out: &mut SketchBytes) {
        match kept {
            None => out.write_u8(NOTHING),
            Some(Self::Number(number)) => {
                out.write_u8(A_NUMBER);
                number.write(out);
            }
            Some(Self::Text(text)) => {
                out.write_u8(A_TEXT);
                out.write_u64_le(text.len() as u64);
                out.write(text.as_bytes());
            }
        }
    }

    fn read(input: &mut SketchSlice<'_>) -> Result<Option<Self>, Error> {
        match input.read_u8().map_err(cut)? {
            NOTHING => Ok(None),
            A_NUMBER => Number::read(input).map(|number| Some(Self::Number(number))),
            A_TEXT => {
                let length = input.read_u64_le().map_err(cut)?;
                let text = String::from_utf8(read_bytes(input, length)?);
                text.map(|text| Some(Self::Text(text.into()))).map_err(|_| damaged("a text that is not UTF-8"))
            }
            _ => Err(damaged("an unknown kind of least or greatest value")),
        }
    }
}

const NOTHING: u8 = 0;
const A_NUMBER: u8 = 1;
const A_TEXT: u8 = 2;

impl Figure {
    pub(crate) fn new(kind: FigureKind, lg_distinct: u8, quantile_k: u16) -> Self {
        match kind {
            FigureKind::Count | FigureKind::CountOf => Self::Count(0),
            FigureKind::Sum => Self::Sum(Total::default()),
            FigureKind::Average => Self::Average(Total::default()),
            FigureKind::Min => Self::Min(None),
            FigureKind::Max => Self::Max(None),
            FigureKind::StandardDeviation => Self::StandardDeviation(Box::default()),
            FigureKind::First => Self::First(None),
            FigureKind::Last => Self::Last(None),
            FigureKind::Quantile(rank) => Self::Quantile(Box::new(Quantile::new(rank, quantile_k))),
            FigureKind::List(kind) => Self::List(Box::new(Collected::new(kind))),
            FigureKind::CountDistinct => Self::CountDistinct(Box::new(Distinct::new(lg_distinct))),
        }
    }

    /// `true` for a figure of the same kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) => a.kind() == b.kind(),
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Adds a record's values. A tuple with a nested value is left out, because nested values cannot be compared.
    pub(crate) fn add(&mut self, values: &[Value<'_>]) -> Result<(), Nested> {
        let number = || values.first().and_then(Number::of);
        match self {
            Self::Count(count) => *count += u64::from(values.first() != Some(&Value::Null)),
            Self::Sum(total) | Self::Average(total) => number().into_iter().for_each(|number| total.add(number)),
            Self::Min(least) => values.iter().for_each(|value| Extreme::take(least, value, Ordering::Less)),
            Self::Max(greatest) => values.iter().for_each(|value| Extreme::take(greatest, value, Ordering::Greater)),
            Self::StandardDeviation(deviation) => number().into_iter().for_each(|number| deviation.add(number)),
            Self::First(kept) => Placed::take(kept, RecordEnd::First, values),
            Self::Last(kept) => Placed::take(kept, RecordEnd::Last, values),
            Self::Quantile(quantile) => values.iter().for_each(|value| quantile.add(value)),
            Self::List(list) => list.add(values),
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

    /// Merges another figure of the same kind.
    pub(crate) fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => *a += b,
            (Self::Sum(a), Self::Sum(b)) | (Self::Average(a), Self::Average(b)) => a.merge(b),
            (Self::Min(a), Self::Min(b)) => b.iter().for_each(|b| Extreme::take(a, &b.value(), Ordering::Less)),
            (Self::Max(a), Self::Max(b)) => b.iter().for_each(|b| Extreme::take(a, &b.value(), Ordering::Greater)),
            (Self::CountDistinct(a), Self::CountDistinct(b)) => a.merge(b),
            (Self::Quantile(a), Self::Quantile(b)) => a.merge(b),
            (Self::List(a), Self::List(b)) => a.merge(b),
            (Self::StandardDeviation(a), Self::StandardDeviation(b)) => a.merge(b),
            (Self::First(a), Self::First(b)) => Placed::merge(a, RecordEnd::First, b.as_deref()),
            (Self::Last(a), Self::Last(b)) => Placed::merge(a, RecordEnd::Last, b.as_deref()),
            (mine, other) => debug_assert!(false, "{mine:?} and {other:?} are of one query"),
        }
    }

    pub(crate) fn value(&self) -> Value<'static> {
        match self {
            Self::Count(count) => Value::Integer(i64::try_from(*count).unwrap_or(i64::MAX)),
            Self::Sum(total) => total.sum(),
            Self::Average(total) => total.average(),
            Self::Min(kept) | Self::Max(kept) => kept.as_ref().map_or(Value::Null, |kept| kept.value().into_owned()),
            Self::Quantile(quantile) => quantile.value(),
            Self::List(list) => list.value(),
            Self::StandardDeviation(deviation) => deviation.value(),
            Self::First(kept) | Self::Last(kept) => kept.as_ref().map_or(Value::Null, |kept| kept.value()),
            Self::CountDistinct(distinct) => Value::Integer(i64::try_from(distinct.count()).unwrap_or(i64::MAX)),
        }
    }

    pub(crate) fn quantile(&self) -> Option<&Quantile> {
        match self {
            Self::Quantile(quantile) => Some(quantile),
            _ => None,
        }
    }

    pub(crate) fn distinct(&self) -> Option<&Distinct> {
        match self {
            Self::CountDistinct(distinct) => Some(distinct),
            _ => None,
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Count(_) | Self::Sum(_) | Self::Average(_) => 0,
                Self::Min(kept) | Self::Max(kept) => kept.as_ref().map_or(0, Extreme::size_bytes),
                Self::CountDistinct(distinct) => size_of::<Distinct>() + distinct.size_bytes(),
                Self::Quantile(quantile) => quantile.size_bytes(),
                Self::List(list) => list.size_bytes(),
                Self::StandardDeviation(_) => size_of::<Deviation>(),
                Self::First(kept) | Self::Last(kept) => kept.as_ref().map_or(0, |kept| kept.size_bytes()),
            }
    }

    /// The bytes that its value or a merge takes beside the figure, for as long as that is made.
    pub(crate) fn working_bytes(&self) -> usize {
        match self {
            Self::CountDistinct(distinct) => distinct.working_bytes(),
            Self::Quantile(quantile) => quantile.working_bytes(),
            other => other.size_bytes(),
        }
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        match self {
            Self::Min(kept) => {
                out.write_u8(MIN);
                Extreme::write(kept.as_ref(), out);
            }
            Self::Max(kept) => {
                out.write_u8(MAX);
                Extreme::write(kept.as_ref(), out);
            }
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
            Self::Quantile(quantile) => {
                out.write_u8(QUANTILE);
                quantile.write(out);
            }
            Self::StandardDeviation(deviation) => {
                out.write_u8(STANDARD_DEVIATION);
                deviation.write(out);
            }
            Self::First(kept) => {
                out.write_u8(FIRST);
                Placed::write(kept.as_deref(), out);
            }
            Self::Last(kept) => {
                out.write_u8(LAST);
                Placed::write(kept.as_deref(), out);
            }
            Self::List(list) => {
                out.write_u8(LIST);
                list.write(out);
            }
            Self::CountDistinct(distinct) => {
                out.write_u8(COUNT_DISTINCT);
                distinct.write(out);
            }
        }
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        match input.read_u8().map_err(cut)? {
            COUNT => input.read_u64_le().map(Self::Count).map_err(cut),
            SUM => Total::read(input).map(Self::Sum),
            AVERAGE => Total::read(input).map(Self::Average),
            MIN => Extreme::read(input).map(Self::Min),
            MAX => Extreme::read(input).map(Self::Max),
            STANDARD_DEVIATION => Deviation::read(input).map(|deviation| Self::StandardDeviation(Box::new(deviation))),
            FIRST => Placed::read(input).map(Self::First),
            LAST => Placed::read(input).map(Self::Last),
            QUANTILE => Quantile::read(input).map(|quantile| Self::Quantile(Box::new(quantile))),
            LIST => Collected::read(input).map(|list| Self::List(Box::new(list))),
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
const QUANTILE: u8 = 6;
const STANDARD_DEVIATION: u8 = 7;
const FIRST: u8 = 8;
const LAST: u8 = 9;
const LIST: u8 = 10;
