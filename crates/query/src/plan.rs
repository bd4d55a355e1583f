//! A parsed query: its items, stream, lifetime, filter, groups, windows and limit.
//!
//! There is one plan, whichever language it was written in. A query is one of three kinds:
//!
//! | kind | is | rows |
//! | --- | --- | --- |
//! | raw | neither aggregates, nor GROUP BY, nor DISTINCT | one for each record that matches |
//! | grouped | aggregates, GROUP BY or DISTINCT; see [`QueryPlan::keys`] and [`QueryPlan::aggregates`] | one for each group |
//! | summary | TOP, QUANTILE, FREQ or CUMFREQ as an item: [`QueryPlan::summary`] | those of the summary |
//!
//! A raw query evaluates its items on records. Of a grouped one the keys and the arguments of the aggregates are
//! evaluated on records; items, HAVING and ORDER BY are expressions over these keys and aggregates.

mod display;
mod window;

pub use window::{EventTime, Extent, Window};

use millstream_columns::{Aggregate, Expr, Field, Function, Item, Literal, Summary, Type};

/// The member of Bullet's rows that tells when their record was received.
pub(crate) const RECEIVE_TIMESTAMP: &str = "__receive_timestamp";

/// A query that has been parsed and typed. Displays as a text that parses to the same plan.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryPlan {
    /// The content of a result row.
    pub select: Select,
    /// Merges equal rows: the items are the keys of the groups. There are no aggregates and no GROUP BY then.
    pub distinct: bool,
    /// The source of the records.
    pub source: RecordSource,
    /// The filter, TRUE for the records that match; `None` accepts all. It contains no aggregate.
    pub filter: Option<Expr>,
    /// The grouping keys; empty without GROUP BY. They contain no aggregate.
    pub group_by: Vec<Expr>,
    /// The condition for groups that are in the result. It requires a GROUP BY.
    pub having: Option<Expr>,
    /// The sort order of a result's rows: by the first of these, then the second, … A raw query with a sort order emits a
    /// result instead of rows at once.
    pub order_by: Vec<Order>,
    /// The times of results, and the records in each. `None` emits one result of all records at the end; raw rows without a
    /// sort order are emitted at once.
    pub window: Option<Window>,
    /// The time of records for their windows; `None` is the server's clock.
    pub event_time: Option<EventTime>,
    /// A raw query whose rows are emitted at once ends after this many. For others it is the most rows of a result: with a
    /// sort order the first by it.
    pub limit: Option<u64>,
    /// A raw query with a sort order ends after `limit` rows, and only these are sorted. No text can ask for it; documents
    /// do.
    pub sorts_first_matches: bool,
    /// Adds the receive time to rows that are whole payloads and objects. No text can ask for it.
    pub stamped: bool,
}

impl QueryPlan {
    /// The selected values; none of `*`.
    pub fn items(&self) -> &[Item] {
        match &self.select {
            Select::All => &[],
            Select::Items(items) | Select::WithAll(items) => items,
        }
    }

    /// The names of a row's members; none if rows hold whole payloads.
    pub fn columns(&self) -> Vec<String> {
        match self.summary() {
            Some((summary, item)) => summary.columns(item.alias.as_deref()),
            None if self.select.holds_payload() => Vec::new(),
            None => self.items().iter().map(Item::name).collect(),
        }
    }

    /// True if each matching record is a row.
    pub fn is_raw(&self) -> bool {
        !self.distinct && self.group_by.is_empty() && self.aggregates().is_empty()
    }

    /// True if rows are emitted as their records match.
    pub(crate) fn gives_rows_at_once(&self) -> bool {
        self.is_raw() && self.window.is_none() && self.order_by.is_empty()
    }

    /// True if it sorts rows of records that it has to see all, so that without window there is a result at its end only.
    pub(crate) fn sorts_all_matches(&self) -> bool {
        self.is_raw() && self.window.is_none() && !self.order_by.is_empty() && !self.sorts_first_matches
    }

    /// True if it asks for the groups with most records: these are tracked, instead of a sample of all groups.
    pub(crate) fn is_of_the_most_frequent(&self) -> bool {
        let count = Expr::Aggregate(Aggregate::Count);
        let most_first = self.order_by.first().is_some_and(|order| order.descending && order.by == count);
        most_first && self.limit.is_some() && !self.group_by.is_empty() && self.aggregates() == [&Aggregate::Count]
    }

    /// The same with values by which records are grouped or counted told as texts, NULL as `null`.
    pub(crate) fn with_groups_as_texts(mut self) -> Self {
        let (distinct, group_by) = (self.distinct, &self.group_by);
        let Select::Items(items) = &mut self.select else { return self };
        for item in items {
            match &mut item.value {
                Expr::Aggregate(Aggregate::Summary(summary)) => {
                    if let Summary::Top { values, .. } = &mut **summary {
                        values.iter_mut().for_each(tell_as_text);
                    }
                }
                value if distinct || group_by.contains(value) => tell_as_text(item),
                _ => {}
            }
        }
        self
    }

    /// If it gives whole records: the same with their keys before them.
    pub(crate) fn with_keys(mut self) -> Self {
        if self.select == Select::All {
            self.select = Select::WithAll(vec![Item { value: Expr::Field(Field::Key), alias: None }]);
        }
        self
    }

    /// If it is raw: the same with the time at which its record was received in each row.
    pub(crate) fn with_receive_timestamp(mut self) -> Self {
        if !self.is_raw() {
            return self;
        }
        match &mut self.select {
            Select::All => self.stamped = true,
            Select::Items(items) | Select::WithAll(items) => {
                let alias = Some(RECEIVE_TIMESTAMP.to_owned());
                items.push(Item { value: Expr::Literal(Literal::Now), alias });
            }
        }
        self
    }

    /// The grouping keys; none if all records are one group.
    pub fn keys(&self) -> Vec<&Expr> {
        if self.distinct {
            return self.items().iter().map(|item| &item.value).collect();
        }
        self.group_by.iter().collect()
    }

    /// True if the results tell the bounds of their windows.
    pub(crate) fn names_window_bounds(&self) -> bool {
        self.aggregates().iter().any(|aggregate| matches!(aggregate, Aggregate::WindowBound(_)))
    }

    /// The different aggregates of items, HAVING and ORDER BY, in their order.
    pub fn aggregates(&self) -> Vec<&Aggregate> {
        let exprs = self.items().iter().map(|item| &item.value).chain(&self.having);
        let mut found = Vec::new();
        for expr in exprs.chain(self.order_by.iter().map(|order| &order.by)) {
            expr.each(&mut |part| {
                if let Expr::Aggregate(aggregate) = part
                    && !found.contains(&aggregate)
                {
                    found.push(aggregate);
                }
            });
        }
        found
    }

    /// Looks at all its expressions and their parts.
    pub(crate) fn each_expression<'p>(&'p self, look: &mut impl FnMut(&'p Expr)) {
        let exprs = self.items().iter().map(|item| &item.value).chain(&self.filter).chain(&self.having);
        let exprs = exprs.chain(&self.group_by).chain(self.order_by.iter().map(|order| &order.by));
        let exprs = exprs.chain(self.event_time.as_ref().map(|time| &time.value));
        exprs.chain(self.aggregates().into_iter().flat_map(Aggregate::arguments)).for_each(|expr| expr.each(look));
    }

    /// The values of a record for its groups: the keys, then the arguments of each aggregate.
    pub fn inputs(&self) -> Vec<&Expr> {
        let arguments = self.aggregates().into_iter().flat_map(Aggregate::arguments);
        self.keys().into_iter().chain(arguments).collect()
    }

    /// The summary that the query asks for, which makes its rows, and the item that it is.
    pub fn summary(&self) -> Option<(&Summary, &Item)> {
        self.items().iter().find_map(|item| match &item.value {
            Expr::Aggregate(Aggregate::Summary(summary)) => Some((&**summary, item)),
            _ => None,
        })
    }
}

fn tell_as_text(item: &mut Item) {
    item.alias = Some(item.name());
    let value = Box::new(item.value.clone());
    let null = Expr::Literal(Literal::Text("null".to_owned()));
    let text = Expr::Cast { to: Type::Text, value: value.clone() };
    item.value = Expr::Call { function: Function::If, arguments: vec![Expr::IsNull(value), null, text] };
}

/// The content of a result row.
#[derive(Debug, Clone, PartialEq)]
pub enum Select {
    /// The payload, byte for byte. The query is raw.
    All,
    /// Some values; not empty, all names different. A field has the bytes that it has in the payload.
    Items(Vec<Item>),
    /// As `Items`, followed by the members of the payload, or by the member `payload` if it is no object. The query is raw.
    WithAll(Vec<Item>),
}

impl Select {
    /// True if a row contains the whole payload.
    pub(crate) fn holds_payload(&self) -> bool {
        matches!(self, Self::All | Self::WithAll(_))
    }
}

/// A value by which rows are sorted. NULL comes before everything else, then booleans, numbers, texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The expression that sorts the rows.
    pub by: Expr,
    /// True if the greatest value comes first.
    pub descending: bool,
}

/// The source of a query's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordSource {
    /// `STREAM(…)`: the stream of queries that name none.
    Stream(StreamDuration),
    /// A topic by its name.
    Topic(String),
}

/// The lifetime that a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDuration {
    /// `STREAM()`: as the request says, else the default.
    Default,
    /// `STREAM(MAX, TIME)`: the longest allowed time.
    Max,
    /// `STREAM(30000, TIME)`.
    Ms(u64),
}
