//! Checks on a complete statement: its clauses must fit together.

use millstream_columns::{Aggregate, Cursor, Expr, Field, ParseError, Summary, nearest};

use super::marks::Marks;
use crate::{Extent, QueryPlan, Select, Window};

const WHOLE_RECORDS: &str = "* is whole records and no value of a group; name what is to be told of each group";

/// Refuses a plan with contradicting clauses, and folds the items beside a TOP into it.
pub(super) fn check(cursor: &Cursor<'_>, plan: &mut QueryPlan, marks: &Marks) -> Result<(), ParseError> {
    let refuse = |mark: usize, message: &str| Err(cursor.refuse_at(mark, message.to_owned()));
    check_summaries(cursor, plan, marks)?;
    if plan.window.is_none() && plan.names_window_bounds() {
        let message =
            "WINDOW_START and WINDOW_END are of windows; add WINDOWING, as in WINDOWING TUMBLING(60000, TIME)";
        return refuse(marks.select, message);
    }
    if plan.event_time.is_some() {
        let message = match plan.window {
            Some(Window::Additive(_)) => "EVERY(…, ALL) is of all records, whatever their times; leave ON out",
            Some(Window::Tumbling(Extent::Records(_)) | Window::Sliding { emit: Extent::Records(_), .. }) => {
                "a window by RECORD is of records as they come, whatever their times; leave ON out"
            }
            _ => "",
        };
        if !message.is_empty() {
            return refuse(marks.event_time, message);
        }
    }
    if plan.summary().is_some() && plan.select.holds_payload() {
        return refuse(marks.select, WHOLE_RECORDS);
    }
    if plan.summary().is_some() {
        return check_summary(cursor, plan, marks);
    }
    if plan.having.is_some() && plan.group_by.is_empty() {
        return refuse(
            marks.having,
            "HAVING chooses among groups and needs a GROUP BY; a condition on records is WHERE",
        );
    }
    if plan.is_raw() {
        if matches!(plan.window, Some(Window::Additive(_))) {
            let message = "EVERY(…, ALL) would give all rows again and again; use TUMBLING, or an aggregate";
            return refuse(marks.window, message);
        }
        return Ok(());
    }
    if plan.select.holds_payload() {
        return refuse(marks.select, WHOLE_RECORDS);
    }
    if plan.distinct && !(plan.group_by.is_empty() && plan.aggregates().is_empty()) {
        return refuse(marks.select, "DISTINCT stands without GROUP BY and aggregates; groups are distinct without it");
    }
    check_groups(cursor, plan, marks)
}

/// A summary must be an item of its own, and the only one.
fn check_summaries(cursor: &Cursor<'_>, plan: &QueryPlan, marks: &Marks) -> Result<(), ParseError> {
    let mut first = true;
    for (item, mark) in plan.items().iter().zip(&marks.items) {
        let alone = matches!(item.value, Expr::Aggregate(Aggregate::Summary(_)));
        if alone && !std::mem::take(&mut first) {
            let message = "a query has one TOP, QUANTILE, FREQ or CUMFREQ; ask the others in queries of their own";
            return Err(cursor.refuse_at(*mark, message.to_owned()));
        }
        if !alone {
            need_no_summary(cursor, *mark, &item.value)?;
        }
    }
    if let Some(having) = &plan.having {
        need_no_summary(cursor, marks.having, having)?;
    }
    for (order, mark) in plan.order_by.iter().zip(&marks.order) {
        need_no_summary(cursor, *mark, &order.by)?;
    }
    Ok(())
}

fn need_no_summary(cursor: &Cursor<'_>, mark: usize, expr: &Expr) -> Result<(), ParseError> {
    let mut found = false;
    expr.each(&mut |part| found |= matches!(part, Expr::Aggregate(Aggregate::Summary(_))));
    if !found {
        return Ok(());
    }
    let message = "TOP, QUANTILE, FREQ and CUMFREQ give rows and no value; they stand in SELECT by themselves";
    Err(cursor.refuse_at(mark, message.to_owned()))
}

/// Only names for the values of a TOP may stand beside a summary.
fn check_summary(cursor: &Cursor<'_>, plan: &mut QueryPlan, marks: &Marks) -> Result<(), ParseError> {
    for (there, mark, clause) in [
        (plan.distinct, marks.select, "DISTINCT"),
        (!plan.group_by.is_empty(), marks.group, "GROUP BY"),
        (plan.having.is_some(), marks.having, "HAVING"),
        (!plan.order_by.is_empty(), marks.order.first().copied().unwrap_or_default(), "ORDER BY"),
        (plan.limit.is_some(), marks.limit, "LIMIT"),
    ] {
        if there {
            let message = format!("TOP, QUANTILE, FREQ and CUMFREQ make all of a result; leave {clause} out");
            return Err(cursor.refuse_at(mark, message));
        }
    }
    let Select::Items(items) = &mut plan.select else { return Ok(()) };
    let (mut summaries, others): (Vec<_>, Vec<_>) = std::mem::take(items)
        .into_iter()
        .zip(&marks.items)
        .partition(|(item, _)| matches!(item.value, Expr::Aggregate(Aggregate::Summary(_))));
    for (other, mark) in others {
        let values = match summaries.first_mut().map(|(item, _)| &mut item.value) {
            Some(Expr::Aggregate(Aggregate::Summary(summary))) => match &mut **summary {
                Summary::Top { values, .. } => values,
                _ => &mut Vec::new(),
            },
            _ => &mut Vec::new(),
        };
        let Some(value) = values.iter_mut().find(|value| value.value == other.value) else {
            let message = "beside TOP stand only the values that it counts; beside the others nothing";
            return Err(cursor.refuse_at(*mark, message.to_owned()));
        };
        value.alias = other.alias;
    }
    items.extend(summaries.into_iter().map(|(item, _)| item));
    let mut columns = plan.columns();
    columns.sort_unstable();
    match columns.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let message = format!("two selected fields are called '{}'; rename one with AS", pair[0]);
            Err(cursor.refuse_at(marks.select, message))
        }
        None => Ok(()),
    }
}

/// Checks that the items of groups consist of grouping keys and aggregates; one refusal names all fields that do not.
fn check_groups(cursor: &Cursor<'_>, plan: &QueryPlan, marks: &Marks) -> Result<(), ParseError> {
    let keys = plan.keys();
    let items = plan.items().iter().map(|item| &item.value).zip(marks.items.iter().copied());
    let having = plan.having.iter().map(|having| (having, marks.having));
    let order = plan.order_by.iter().map(|order| &order.by).zip(marks.order.iter().copied());
    let mut ungrouped: Vec<(String, usize)> = Vec::new();
    for (expr, mark) in items.filter(|_| !plan.distinct).chain(having).chain(order) {
        each_ungrouped(expr, &keys, &mut |field| {
            let name = field.to_string();
            if ungrouped.iter().all(|(known, _)| *known != name) {
                ungrouped.push((name, mark));
            }
        });
    }
    let Some((name, mark)) = ungrouped.first() else { return Ok(()) };
    let message = match ungrouped.as_slice() {
        [_] => format!("{name} may differ within a group; add it to GROUP BY or aggregate it, as in MAX({name})"),
        all => {
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            let names = names.join(", ");
            format!("{names} may differ within a group; add them to GROUP BY or aggregate them, as in MAX({name})")
        }
    };
    let mut refusal = cursor.refuse_at(*mark, message);
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    refusal.suggestion = nearest(name, keys.iter().map(String::as_str)).map(str::to_owned);
    Err(refusal)
}

/// Calls `look` with each field outside of grouping keys and aggregates.
fn each_ungrouped<'e>(expr: &'e Expr, keys: &[&Expr], look: &mut impl FnMut(&'e Field)) {
    match expr {
        expr if keys.contains(&expr) => {}
        Expr::Aggregate(_) => {}
        Expr::Field(field) => look(field),
        other => other.parts().into_iter().for_each(|part| each_ungrouped(part, keys, look)),
    }
}
