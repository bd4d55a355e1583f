//! How records become the rows of a result.
use millstream_columns::{Aggregate, Compiler, Expr, Operand, Statistic, Summary, Test, Value, write_text};

use crate::aggregate::{DistributionKind, FigureKind, FigureOf, Shape, SketchSizes, State, order};
use crate::compiled::Column;
use crate::plan::Plan;
use crate::rows::{RowBatch, Rows as EncodedRows};

/// What is computed of records, and what rows are made of it.
#[derive(Debug)]
pub(crate) struct Summing {
    shape: Shape,
    sizes: SketchSizes,
    rows: Rows,
    rows_max: usize,
}

#[derive(Debug)]
enum Rows {
    /// Those of the records.
    Raw,
    /// Those that the state gives, with these names.
    Named(Vec<Vec<u8>>),
    /// One for each group, computed of its keys and figures.
    Computed { columns: Vec<Column>, having: Option<Test>, order_by: Vec<(Operand, bool)> },
}

impl Summing {
    /// What `plan` asks for. A result has at most `rows_max` rows.
    pub(crate) fn new(plan: &Plan, rows_max: u64, sizes: SketchSizes) -> Self {
        let rows_max = usize::try_from(rows_max).unwrap_or(usize::MAX);
        let (shape, rows) = if plan.is_raw() {
            (Shape::Raw { rows_max }, Rows::Raw)
        } else if let Some((summary, _)) = plan.summary() {
            (shape_of_summary(summary), Rows::Named(prefixes(&plan.columns())))
        } else if plan.is_of_the_most_frequent() {
            (Shape::Top { k: u64::MAX, threshold: 0 }, computed(plan))
        } else {
            (shape_of_groups(plan), computed(plan))
        };
        Self { shape, sizes, rows, rows_max }
    }

    /// The state of no records.
    pub(crate) fn state(&self) -> State {
        State::new(&self.shape, self.sizes)
    }

    /// Rows of what records have come to. A row that cannot be computed is left out.
    pub(crate) fn rows(&self, state: &State, now_ms: i64) -> RowBatch {
        let mut rows = EncodedRows::default();
        if let Some(raw) = state.raw_rows() {
            raw.iter().for_each(|row| rows.push(|out| out.extend_from_slice(row)));
            return rows.into();
        }
        let mut groups = state.rows();
        if let Rows::Computed { having, order_by, .. } = &self.rows {
            if let Some(having) = having {
                groups.retain(|group| having.holds_for_given(group, now_ms) == Ok(true));
            }
            sort(&mut groups, order_by, now_ms);
        }
        groups.truncate(self.rows_max);
        groups.iter().for_each(|group| rows.push(|out| self.write_row(group, now_ms, out)));
        rows.into()
    }

    /// What was kept of a state.
    ///
    /// # Errors
    /// It is the state of another query.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<State, datasketches::error::Error> {
        State::read(&self.shape, self.sizes, bytes)
    }

    fn write_row(&self, group: &[Value<'static>], now_ms: i64, out: &mut Vec<u8>) {
        out.push(b'{');
        match &self.rows {
            Rows::Raw => {}
            Rows::Named(prefixes) => {
                for (prefix, value) in prefixes.iter().zip(group) {
                    out.extend_from_slice(prefix);
                    value.write_json(out);
                }
            }
            Rows::Computed { columns, .. } => {
                for Column { value, prefix } in columns {
                    out.extend_from_slice(prefix);
                    value.value_of_given(group, now_ms).unwrap_or(Value::Null).write_json(out);
                }
            }
        }
        out.push(b'}');
    }
}

/// Sorts groups that are equal by `order_by` as they stood before.
fn sort(groups: &mut [Vec<Value<'static>>], order_by: &[(Operand, bool)], now_ms: i64) {
    groups.sort_by(|a, b| {
        for (operand, descending) in order_by {
            let value = |group| operand.value_of_given(group, now_ms).unwrap_or(Value::Null);
            let order = order(&value(a), &value(b));
            if order.is_ne() {
                return if *descending { order.reverse() } else { order };
            }
        }
        std::cmp::Ordering::Equal
    });
}

fn computed(plan: &Plan) -> Rows {
    let aggregates = plan.aggregates().into_iter().map(|aggregate| Expr::Aggregate(aggregate.clone()));
    let given = plan.keys().into_iter().cloned().chain(aggregates).collect();
    let mut compiler = Compiler::of_given(given);
    let items = plan.items().iter().enumerate();
    Rows::Computed {
        columns: items.map(|(i, item)| Column::new(&mut compiler, i, &item.value, &item.name())).collect(),
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

fn shape_of_groups(plan: &Plan) -> Shape {
    let keys = plan.keys().len();
    let mut place = keys;
    let mut figures = Vec::new();
    for aggregate in plan.aggregates() {
        let inputs = place..place + aggregate.arguments().len();
        place = inputs.end;
        figures.push(FigureOf { name: aggregate.to_string(), kind: figure_kind(aggregate), inputs });
    }
    Shape::Groups { keys, figures: figures.into() }
}

fn figure_kind(aggregate: &Aggregate) -> FigureKind {
    match aggregate {
        Aggregate::Count => FigureKind::Count,
        Aggregate::Of { statistic: Statistic::Count, .. } => FigureKind::CountOf,
        Aggregate::Of { statistic: Statistic::Sum, .. } => FigureKind::Sum,
        Aggregate::Of { statistic: Statistic::Average, .. } => FigureKind::Average,
        Aggregate::Of { statistic: Statistic::Min, .. } => FigureKind::Min,
        Aggregate::Of { statistic: Statistic::Max, .. } => FigureKind::Max,
        // A summary stands by itself, and its rows are not computed.
        Aggregate::CountDistinct(_) | Aggregate::Summary(_) => FigureKind::CountDistinct,
    }
}

fn shape_of_summary(summary: &Summary) -> Shape {
    let distribution = |kind, points: &crate::Points| Shape::Distribution { kind, points: points.clone() };
    match summary {
        Summary::Quantile { points, .. } => distribution(DistributionKind::Quantile, points),
        Summary::Frequency { points, .. } => distribution(DistributionKind::Frequency, points),
        Summary::CumulativeFrequency { points, .. } => distribution(DistributionKind::CumulativeFrequency, points),
        Summary::Top { k, threshold, .. } => Shape::Top { k: *k, threshold: threshold.unwrap_or(0) },
    }
}
