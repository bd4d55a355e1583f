//! Aggregates as text. The parser reads the same aggregate back.

use std::fmt;

use crate::expr::{Aggregate, AggregateList, ListOrder, Summary, WindowBound};
use crate::statistic::Points;
use crate::{Item, Name};

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)?;
        match &self.alias {
            Some(alias) => write!(f, " AS {}", Name(alias)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => f.write_str("COUNT(*)"),
            Self::Of { statistic, value } => write!(f, "{}({value})", statistic.as_str()),
            Self::Quantile { value, rank } => write!(f, "QUANTILE({value}, {rank:?})"),
            Self::CountDistinct(values) => {
                f.write_str("COUNT(DISTINCT ")?;
                listed(f, values)?;
                f.write_str(")")
            }
            Self::List(list) => write!(f, "{list}"),
            Self::WindowBound(WindowBound::Start) => f.write_str("WINDOW_START()"),
            Self::WindowBound(WindowBound::End) => f.write_str("WINDOW_END()"),
            Self::Summary(summary) => write!(f, "{summary}"),
        }
    }
}

impl fmt::Display for AggregateList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { distinct, value, order, values_max } = self;
        write!(f, "ARRAY_AGG({}{value}", if *distinct { "DISTINCT " } else { "" })?;
        if !order.is_empty() {
            f.write_str(" ORDER BY ")?;
            listed(f, order)?;
        }
        if let Some(values_max) = values_max {
            write!(f, " LIMIT {values_max}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for ListOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.value, if self.descending { " DESC" } else { "" })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantile { value, points } => write!(f, "QUANTILE({value}, {points})"),
            Self::Frequency { value, points } => write!(f, "FREQ({value}, {points})"),
            Self::CumulativeFrequency { value, points } => write!(f, "CUMFREQ({value}, {points})"),
            Self::Top { k, threshold, values } => {
                write!(f, "TOP({k}, ")?;
                if let Some(threshold) = threshold {
                    write!(f, "{threshold}, ")?;
                }
                listed(f, values)?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linear(count) => write!(f, "LINEAR, {count}"),
            Self::Region { start, end, step } => write!(f, "REGION, {start:?}, {end:?}, {step:?}"),
            Self::Manual(points) => {
                f.write_str("MANUAL")?;
                points.iter().try_for_each(|point| write!(f, ", {point:?}"))
            }
        }
    }
}

/// Writes `parts` with commas between them.
pub fn listed<T: fmt::Display>(f: &mut fmt::Formatter<'_>, parts: &[T]) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(f, "{comma}{part}")?;
    }
    Ok(())
}
