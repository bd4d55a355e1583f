//! Aggregates: their types, arguments and result columns.

mod display;

pub use display::listed;

use crate::aggregation::{FigureKind, ListKind};
use crate::expr::{Aggregate, AggregateList, Expr, Item, ListOrder, Summary};
use crate::field::Field;
use crate::statistic::Statistic;
use crate::value_type::Type;

/// The place of a record among others: its time, and where several have it, their partition and offset.
static PLACE: [Expr; 3] = [Expr::Field(Field::Timestamp), Expr::Field(Field::Partition), Expr::Field(Field::Offset)];

impl Aggregate {
    /// The result type, as far as it is known. A summary has none.
    pub fn kind(&self) -> Type {
        match self {
            Self::Count | Self::CountDistinct(_) | Self::WindowBound(_) => Type::Integer,
            Self::Of { statistic, value } => match statistic {
                Statistic::Count => Type::Integer,
                Statistic::Average | Statistic::StandardDeviation => Type::Double,
                Statistic::Sum => Type::Number,
                Statistic::First | Statistic::Last => match value.kind() {
                    Type::Null => Type::Any,
                    kind => kind,
                },
                Statistic::Min | Statistic::Max if value.kind().is_number() => Type::Number,
                Statistic::Min | Statistic::Max => Type::Any,
            },
            Self::Quantile { .. } => Type::Double,
            Self::List(_) => Type::List,
            Self::Summary(_) => Type::Any,
        }
    }

    /// The figure that it is; `None` for the bound of a window, and for a summary, which has rows of its own.
    pub fn figure(&self) -> Option<FigureKind> {
        Some(match self {
            Self::Count => FigureKind::Count,
            Self::Of { statistic, .. } => match statistic {
                Statistic::Count => FigureKind::CountOf,
                Statistic::Sum => FigureKind::Sum,
                Statistic::Average => FigureKind::Average,
                Statistic::Min => FigureKind::Min,
                Statistic::Max => FigureKind::Max,
                Statistic::StandardDeviation => FigureKind::StandardDeviation,
                Statistic::First => FigureKind::First,
                Statistic::Last => FigureKind::Last,
            },
            Self::Quantile { rank, .. } => FigureKind::Quantile(*rank),
            Self::CountDistinct(_) => FigureKind::CountDistinct,
            Self::List(list) => FigureKind::List(list.kind()),
            Self::WindowBound(_) | Self::Summary(_) => return None,
        })
    }

    /// The expressions over which the aggregate is computed. FIRST and LAST need the place of the record, too; the sort keys of a
    /// list stand before its value.
    pub fn arguments(&self) -> Vec<&Expr> {
        match self {
            Self::Of { statistic: Statistic::First | Statistic::Last, value } => {
                std::iter::once(&**value).chain(&PLACE).collect()
            }
            Self::Count | Self::WindowBound(_) => Vec::new(),
            Self::Of { value, .. } | Self::Quantile { value, .. } => vec![value],
            Self::CountDistinct(values) => values.iter().collect(),
            Self::List(list) => list.order.iter().map(|key| &key.value).chain([&list.value]).collect(),
            Self::Summary(summary) => summary.arguments(),
        }
    }
}

impl AggregateList {
    fn kind(&self) -> ListKind {
        let bit = |(number, key): (usize, &ListOrder)| u8::from(key.descending) << number;
        ListKind {
            distinct: self.distinct,
            sort_keys: self.order.len() as u8,
            descending: self.order.iter().enumerate().map(bit).sum(),
            values_max: self.values_max.unwrap_or(u32::MAX),
        }
    }
}

impl Summary {
    /// The expressions over which the summary is computed.
    pub fn arguments(&self) -> Vec<&Expr> {
        match self {
            Self::Quantile { value, .. } | Self::Frequency { value, .. } | Self::CumulativeFrequency { value, .. } => {
                vec![value]
            }
            Self::Top { values, .. } => values.iter().map(|item| &item.value).collect(),
        }
    }

    /// The member names of a result row. `name` is the alias of the item, if it has one.
    pub fn columns(&self, name: Option<&str>) -> Vec<String> {
        let fixed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            Self::Quantile { .. } => fixed(&["Quantile", "Value"]),
            Self::Frequency { .. } | Self::CumulativeFrequency { .. } => fixed(&["Range", "Count", "Probability"]),
            Self::Top { values, .. } => {
                values.iter().map(Item::name).chain([name.unwrap_or("Count").to_owned()]).collect()
            }
        }
    }
}
