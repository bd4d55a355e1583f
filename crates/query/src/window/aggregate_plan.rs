//! The plan of an aggregating query: its state, and the rows of its result.
use std::cmp::Ordering;

use millstream_columns::{
    Aggregate, AggregateShape, AggregateState, Compiler, DistributionKind, Expr, FigureKind, FigureOf, Operand,
    Predicate, SketchMeta, SketchSizes, Summary, Value, WindowBound, WindowExtent, order_values, write_text,
};

use crate::compiled::RowMember;
use crate::plan::QueryPlan;
use crate::rows::{RowBatch, Rows as EncodedRows};

/// The suffix of the name for the lower bound of an estimated count.
const AT_LEAST: &str = "_at_least";

/// The aggregates of a query, and the form of its rows.
#[derive(Debug)]
pub(crate) struct AggregatePlan {
    shape: AggregateShape,
    sizes: SketchSizes,
    rows: RowForm,
    /// True if the rows name the bounds of their window.
    names_bounds: bool,
    rows_max: usize,
    is_default_limit: bool,
    /// True if the query ends once its one result has all rows that it can have.
    is_full_at_rows_max: bool,
}

#[derive(Debug)]
enum RowForm {
    /// The rows of records, as they are.
    Raw,
    /// The rows of the state, with these column names.
    Named(Vec<Vec<u8>>),
    /// One for each group, computed of its keys and figures.
    Computed { columns: Vec<RowMember>, having: Option<Predicate>, order_by: Vec<(Operand, bool)> },
}

/// The result that rows are made for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResultOf<'a> {
    /// The key of a state of one group, else empty.
    pub(crate) key: &'a [Value<'static>],
    /// The window, if it lies on a clock.
    pub(crate) window: Option<WindowExtent>,
    /// The time at which the result is made.
    pub(crate) now_ms: i64,
}

/// The most rows of a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultLimit {
    pub(crate) rows_max: u64,
    /// True if nobody asked for it, so that a result that reaches it says so.
    pub(crate) is_default: bool,
}

impl AggregatePlan {
    /// The plan for a query, with the most rows of a result.
    pub(crate) fn new(plan: &QueryPlan, limit: ResultLimit, sizes: SketchSizes) -> Self {
        let rows_max = usize::try_from(limit.rows_max).unwrap_or(usize::MAX);
        let (shape, rows) = if plan.is_raw() {
            let descending: Box<[bool]> = plan.order_by.iter().map(|order| order.descending).collect();
            let shape = match descending.is_empty() {
                true => AggregateShape::Raw { rows_max },
                false => AggregateShape::Sorted { rows_max, descending },
            };
            (shape, RowForm::Raw)
        } else if let Some((summary, _)) = plan.summary() {
            let mut names = plan.columns();
            if matches!(summary, Summary::Top { .. }) {
                // Told where counts are estimates.
                names.extend(names.last().map(|count| format!("{count}{AT_LEAST}")));
            }
            (shape_of_summary(summary), RowForm::Named(prefixes(&names)))
        } else if plan.is_of_the_most_frequent() {
            (AggregateShape::Top { k: u64::MAX, threshold: 0 }, computed(plan))
        } else {
            (shape_of_groups(plan), computed(plan))
        };
        let is_full_at_rows_max = plan.sorts_first_matches;
        let names_bounds = plan.names_window_bounds();
        Self { shape, sizes, rows, names_bounds, rows_max, is_default_limit: limit.is_default, is_full_at_rows_max }
    }

    /// The same for states of one group each, whose keys are known without them.
    pub(super) fn for_single_groups(self, plan: &QueryPlan) -> Self {
        let AggregateShape::Groups { figures, .. } = shape_of_groups(plan) else { return self };
        Self { shape: AggregateShape::Groups { keys: 0, figures }, ..self }
    }

    /// The state of no records.
    pub(crate) fn state(&self) -> AggregateState {
        AggregateState::new(&self.shape, self.sizes)
    }

    /// The rows of a result, and the number of those with a value that could not be computed and is NULL.
    pub(crate) fn rows(&self, of: ResultOf<'_>, state: &AggregateState) -> (RowBatch, u64) {
        let ResultOf { key, window, now_ms } = of;
        let (mut rows, mut failed) = (EncodedRows::default(), 0);
        if let Some(raw) = state.raw_rows() {
            raw.into_iter().for_each(|row| rows.push(|out| out.extend_from_slice(row)));
            return (rows.into(), 0);
        }
        let mut groups = state.rows();
        if !key.is_empty() {
            groups.iter_mut().for_each(|group| drop(group.splice(0..0, key.iter().cloned())));
        }
        if self.names_bounds {
            let bound = |of: fn(WindowExtent) -> i64| window.map_or(Value::Null, |window| Value::Integer(of(window)));
            let bounds = [bound(|window| window.start_ms), bound(|window| window.end_ms)];
            groups.iter_mut().for_each(|group| group.extend(bounds.iter().cloned()));
        }
        if let RowForm::Computed { having, order_by, .. } = &self.rows {
            if let Some(having) = having {
                groups.retain(|group| having.holds_for_given(group, now_ms) == Ok(true));
            }
            sort(&mut groups, order_by, now_ms);
        }
        groups.truncate(self.rows_max);
        for group in &groups {
            rows.push(|out| failed += u64::from(self.write_row(group, now_ms, out)));
        }
        (rows.into(), failed)
    }

    /// The number of rows after which the query is complete.
    pub(crate) fn rows_until_full(&self) -> Option<u64> {
        self.is_full_at_rows_max.then_some(self.rows_max as u64)
    }

    /// In words, whatever the rows of a result leave out or estimate.
    pub(crate) fn notes(&self, state: &AggregateState, sketches: &[SketchMeta]) -> Vec<String> {
        let rows = self.rows_max as u64;
        let is_cut = self.is_default_limit && !self.is_full_at_rows_max && matches!(self.rows, RowForm::Raw);
        let cut = (is_cut && state.records() > rows).then(|| {
            let records = state.records();
            format!("these are the first {rows} of {records} rows; say LIMIT for others, up to query.rows_max")
        });
        cut.into_iter().chain(sketches.iter().filter_map(SketchMeta::note)).collect()
    }

    /// Reads the stored state of an aggregate.
    ///
    /// # Errors
    /// An error if it is the state of another query.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<AggregateState, datasketches::error::Error> {
        AggregateState::read(&self.shape, self.sizes, bytes)
    }

    /// Writes a row; whether some value of it could not be computed.
    fn write_row(&self, group: &[Value<'static>], now_ms: i64, out: &mut Vec<u8>) -> bool {
        let mut has_failed = false;
        out.push(b'{');
        match &self.rows {
            RowForm::Raw => {}
            RowForm::Named(prefixes) => {
                for (prefix, value) in prefixes.iter().zip(group) {
                    out.extend_from_slice(prefix);
                    value.write_json(out);
                }
            }
            RowForm::Computed { columns, .. } => {
                for RowMember { value, prefix } in columns {
                    out.extend_from_slice(prefix);
                    let value = value.value_of_given(group, now_ms);
                    has_failed |= value.is_err();
                    value.unwrap_or(Value::Null).write_json(out);
                }
            }
        }
        out.push(b'}');
        has_failed
    }
}

/// Sorts groups stably by `order_by`.
fn sort(groups: &mut [Vec<Value<'static>>], order_by: &[(Operand, bool)], now_ms: i64) {
    groups.sort_by(|a, b| {
        in_order(order_by.iter().map(|(operand, descending)| {
            let value = |group| operand.value_of_given(group, now_ms).unwrap_or(Value::Null);
            (order_values(&value(a), &value(b)), *descending)
        }))
    });
}

/// The order of two rows: by the first of these that differs, each with a flag for descending order.
fn in_order(mut orders: impl Iterator<Item = (Ordering, bool)>) -> Ordering {
    let first = orders.find(|(order, _)| order.is_ne());
    first.map_or(Ordering::Equal, |(order, descending)| if descending { order.reverse() } else { order })
}

fn computed(plan: &QueryPlan) -> RowForm {
    let aggregates = plan.aggregates().into_iter().filter(|aggregate| !is_window_bound(aggregate));
    let aggregates = aggregates.map(|aggregate| Expr::Aggregate(aggregate.clone()));
    let given = plan.keys().into_iter().cloned().chain(aggregates);
    // The bounds stand behind what the state gives.
    let bounds = [WindowBound::Start, WindowBound::End].map(|bound| Expr::Aggregate(Aggregate::WindowBound(bound)));
    let given = given.chain(bounds.into_iter().filter(|_| plan.names_window_bounds())).collect();
    let mut compiler = Compiler::of_given(given);
    let items = plan.items().iter().enumerate();
    RowForm::Computed {
        columns: items.map(|(i, item)| RowMember::new(&mut compiler, i, &item.value, &item.name())).collect(),
        having: plan.having.as_ref().map(|having| compiler.test(having)),
        order_by: plan.order_by.iter().map(|order| (compiler.operand(&order.by), order.descending)).collect(),
    }
}

fn prefixes(names: &[String]) -> Vec<Vec<u8>> {
    let prefix = |(i, name): (usize, &String)| {
        let mut prefix = if i == 0 { Vec::new() } else { b",".to_vec() };
        write_text(&mut prefix, name);
        prefix.push(b':');
        prefix
    };
    names.iter().enumerate().map(prefix).collect()
}

fn shape_of_groups(plan: &QueryPlan) -> AggregateShape {
    let keys = plan.keys().len();
    let mut place = keys;
    let mut figures = Vec::new();
    for aggregate in plan.aggregates().into_iter().filter(|aggregate| !is_window_bound(aggregate)) {
        let inputs = place..place + aggregate.arguments().len();
        place = inputs.end;
        // A summary is the only item, and its rows are not computed here.
        let kind = aggregate.figure().unwrap_or(FigureKind::CountDistinct);
        figures.push(FigureOf { name: aggregate.to_string(), kind, inputs });
    }
    AggregateShape::Groups { keys, figures: figures.into() }
}

fn is_window_bound(aggregate: &Aggregate) -> bool {
    matches!(aggregate, Aggregate::WindowBound(_))
}

fn shape_of_summary(summary: &Summary) -> AggregateShape {
    let distribution = |kind, points: &crate::Points| AggregateShape::Distribution { kind, points: points.clone() };
    match summary {
        Summary::Quantile { points, .. } => distribution(DistributionKind::Quantile, points),
        Summary::Frequency { points, .. } => distribution(DistributionKind::Frequency, points),
        Summary::CumulativeFrequency { points, .. } => distribution(DistributionKind::CumulativeFrequency, points),
        Summary::Top { k, threshold, .. } => AggregateShape::Top { k: *k, threshold: threshold.unwrap_or(0) },
    }
}
