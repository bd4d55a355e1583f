//! Plans as text. The parser reads the same plan back.

use std::fmt;

use millstream_columns::{CalendarStep, Expr, Name, listed};

use super::{EventTime, Extent, QueryPlan, RecordSource, Select, StreamDuration, Window};

impl fmt::Display for QueryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distinct = if self.distinct { "DISTINCT " } else { "" };
        write!(f, "SELECT {distinct}{} FROM {}", self.select, self.source)?;
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        for (i, key) in self.group_by.iter().enumerate() {
            write!(f, "{}", if i == 0 { " GROUP BY " } else { ", " })?;
            self.write_named(f, key)?;
        }
        if let Some(having) = &self.having {
            write!(f, " HAVING {having}")?;
        }
        for (i, order) in self.order_by.iter().enumerate() {
            write!(f, "{}", if i == 0 { " ORDER BY " } else { ", " })?;
            self.write_named(f, &order.by)?;
            f.write_str(if order.descending { " DESC" } else { "" })?;
        }
        if let Some(window) = &self.window {
            write!(f, " WINDOWING {window}")?;
            if let Some(EventTime { value, delay_ms }) = &self.event_time {
                write!(f, " ON {value} DELAY {delay_ms}")?;
            }
        }
        if let Some(limit) = self.limit {
            write!(f, " LIMIT {limit}")?;
        }
        Ok(())
    }
}

impl QueryPlan {
    /// By the name of an item that has one: a field of that name could be meant otherwise.
    fn write_named(&self, f: &mut fmt::Formatter<'_>, value: &Expr) -> fmt::Result {
        let named = self.items().iter().find(|item| item.value == *value);
        match named.and_then(|item| item.alias.as_deref()) {
            Some(name) => write!(f, "{}", Name(name)),
            None => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Items(items) => listed(f, items),
            Self::WithAll(items) => {
                listed(f, items)?;
                f.write_str(", *")
            }
        }
    }
}

impl fmt::Display for RecordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(StreamDuration::Default) => f.write_str("STREAM()"),
            Self::Stream(StreamDuration::Max) => f.write_str("STREAM(MAX, TIME)"),
            Self::Stream(StreamDuration::Ms(duration_ms)) => write!(f, "STREAM({duration_ms}, TIME)"),
            Self::Topic(name) => write!(f, "\"{}\"", name.replace('"', "\"\"")),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tumbling(emit) => write!(f, "TUMBLING({emit})"),
            Self::Additive(emit) => write!(f, "EVERY({emit}, ALL)"),
            Self::Sliding { emit, size } => write!(f, "EVERY({emit}, LAST, {size})"),
            Self::Calendar(windows) => {
                let (amount, unit) = match windows.step {
                    CalendarStep::Days(days) if days % 7 == 0 => (days / 7, "WEEK"),
                    CalendarStep::Days(days) => (days, "DAY"),
                    CalendarStep::Months(months) if months % 12 == 0 => (months / 12, "YEAR"),
                    CalendarStep::Months(months) if months % 3 == 0 => (months / 3, "QUARTER"),
                    CalendarStep::Months(months) => (months, "MONTH"),
                };
                write!(f, "TUMBLING({amount}, {unit}, '{}')", windows.zone_name())
            }
            Self::Session { gap_ms } => write!(f, "SESSION({gap_ms}, TIME)"),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeMs(duration_ms) => write!(f, "{duration_ms}, TIME"),
            Self::Records(records) => write!(f, "{records}, RECORD"),
        }
    }
}
