//! A parsed query: what to select, from which stream, for how long, where, and how much.

use std::fmt;

use crate::field::Name;
use crate::{Expr, Field};

/// A query that has been parsed and typed. Displays as a text that parses to the same plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What a result row holds.
    pub select: Select,
    /// Where records come from.
    pub source: Source,
    /// Which records are results: those for which it is TRUE. `None` takes all.
    pub filter: Option<Expr>,
    /// After how many rows the query ends.
    pub limit: Option<u64>,
}

/// What a result row holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Select {
    /// The payload, byte for byte.
    All,
    /// Some fields, each with the bytes of its value; not empty, all names different.
    Items(Vec<Item>),
}

/// A selected field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which.
    pub field: Field,
    /// The name given by AS.
    pub alias: Option<String>,
}

impl Item {
    /// The name of the result row's member.
    pub fn name(&self) -> String {
        self.alias.clone().unwrap_or_else(|| self.field.default_name())
    }
}

/// Where records come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `STREAM(…)`: the stream of queries that name none.
    Stream(StreamDuration),
    /// A topic by its name.
    Topic(String),
}

/// How long a query asks to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDuration {
    /// `STREAM()`: as the request says, else the default.
    Default,
    /// `STREAM(MAX, TIME)`: as long as is allowed.
    Max,
    /// `STREAM(30000, TIME)`.
    Ms(u64),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SELECT {} FROM {}", self.select, self.source)?;
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        if let Some(limit) = self.limit {
            write!(f, " LIMIT {limit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Items(items) = self else {
            return f.write_str("*");
        };
        for (i, item) in items.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}", item.field)?;
            if let Some(alias) = &item.alias {
                write!(f, " AS {}", Name(alias))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(StreamDuration::Default) => f.write_str("STREAM()"),
            Self::Stream(StreamDuration::Max) => f.write_str("STREAM(MAX, TIME)"),
            Self::Stream(StreamDuration::Ms(duration_ms)) => write!(f, "STREAM({duration_ms}, TIME)"),
            Self::Topic(name) => write!(f, "\"{}\"", name.replace('"', "\"\"")),
        }
    }
}
