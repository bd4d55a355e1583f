//! Aggregate calls, after their name and the opening parenthesis.

use super::expression::value;
use super::items::Items;
use super::scope::Scope;
use crate::cursor::{Cursor, ParseError};
use crate::expr::Expr;
use crate::lexer::Token;
use crate::value_type::Type;
use crate::{Aggregate, AggregateList, Field, ListOrder, ParserLimits, Points, Statistic, Summary, WindowBound};

/// Parses the arguments of `name(`, to the closing parenthesis; `name` is one of the table.
pub(super) fn aggregate(cursor: &mut Cursor<'_>, limits: &ParserLimits, name: &str) -> Result<Aggregate, ParseError> {
    let aggregate = match name {
        "COUNT" => count(cursor, limits)?,
        "SUM" => statistic(cursor, limits, Statistic::Sum)?,
        "AVG" => statistic(cursor, limits, Statistic::Average)?,
        "MIN" => statistic(cursor, limits, Statistic::Min)?,
        "MAX" => statistic(cursor, limits, Statistic::Max)?,
        "STDDEV" => statistic(cursor, limits, Statistic::StandardDeviation)?,
        "FIRST" => end(cursor, limits, Statistic::First)?,
        "LAST" => end(cursor, limits, Statistic::Last)?,
        "TOP" => Aggregate::Summary(Box::new(top(cursor, limits)?)),
        "ARRAY_AGG" => Aggregate::List(Box::new(list(cursor, limits)?)),
        "WINDOW_START" => window_bound(cursor, WindowBound::Start)?,
        "WINDOW_END" => window_bound(cursor, WindowBound::End)?,
        _ => distribution(cursor, limits, name)?,
    };
    if cursor.take_symbol(")") { Ok(aggregate) } else { Err(cursor.unexpected_rest(&[")"])) }
}

fn count(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<Aggregate, ParseError> {
    if cursor.take_symbol("*") {
        return Ok(Aggregate::Count);
    }
    if cursor.take_word("DISTINCT") {
        let mut values = Vec::new();
        loop {
            let mark = cursor.mark();
            values.push(value(cursor, limits, Scope::ARGUMENT)?);
            super::within_items_max(cursor, mark, values.len(), limits)?;
            if !cursor.take_symbol(",") {
                return Ok(Aggregate::CountDistinct(values));
            }
        }
    }
    let value = Box::new(value(cursor, limits, Scope::ARGUMENT)?);
    Ok(Aggregate::Of { statistic: Statistic::Count, value })
}

fn statistic(cursor: &mut Cursor<'_>, limits: &ParserLimits, statistic: Statistic) -> Result<Aggregate, ParseError> {
    if cursor.is_word("DISTINCT") {
        let message = "only COUNT takes DISTINCT, as in COUNT(DISTINCT a)";
        return Err(cursor.refuse(message.to_owned()));
    }
    if matches!(statistic, Statistic::Min | Statistic::Max) {
        let mark = cursor.mark();
        let value = value(cursor, limits, Scope::ARGUMENT)?;
        if value.kind() == Type::Text {
            return Ok(Aggregate::Of { statistic, value: Box::new(value) });
        }
        return Ok(Aggregate::Of { statistic, value: Box::new(need_number(cursor, mark, value, statistic.as_str())?) });
    }
    Ok(Aggregate::Of { statistic, value: Box::new(numeric(cursor, limits, statistic.as_str())?) })
}

/// FIRST or LAST of single values.
fn end(cursor: &mut Cursor<'_>, limits: &ParserLimits, statistic: Statistic) -> Result<Aggregate, ParseError> {
    let mark = cursor.mark();
    let value = value(cursor, limits, Scope::ARGUMENT)?;
    if value.kind().is_nested() {
        let message =
            format!("{} is of numbers, texts and booleans; this is {}", statistic.as_str(), value.kind().noun());
        return Err(cursor.refuse_at(mark, message));
    }
    Ok(Aggregate::Of { statistic, value: Box::new(value) })
}

fn window_bound(cursor: &Cursor<'_>, bound: WindowBound) -> Result<Aggregate, ParseError> {
    if cursor.is_of_job() {
        let message = "WINDOW_START and WINDOW_END are of queries; a job's results have window.start and window.end";
        return Err(cursor.refuse_last(message.to_owned()));
    }
    Ok(Aggregate::WindowBound(bound))
}

/// Most sort keys of a list.
const SORT_KEYS_MAX: usize = 8;

/// The list that ARRAY_AGG makes.
fn list(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<AggregateList, ParseError> {
    if !cursor.is_of_job() {
        let message = "ARRAY_AGG is of jobs; a query lists records by SELECT without aggregates";
        return Err(cursor.refuse_last(message.to_owned()));
    }
    let distinct = cursor.take_word("DISTINCT");
    let value = if cursor.take_symbol("*") {
        Expr::Field(Field::Record)
    } else {
        self::value(cursor, limits, Scope::ARGUMENT)?
    };
    let mut order = Vec::new();
    if cursor.take_word("ORDER") {
        cursor.need_word("BY")?;
        loop {
            let mark = cursor.mark();
            let value = self::value(cursor, limits, Scope::ARGUMENT)?;
            let descending = cursor.take_word("DESC");
            if !descending {
                cursor.take_word("ASC");
            }
            order.push(ListOrder { value, descending });
            if order.len() > SORT_KEYS_MAX {
                let message = format!("a list has at most {SORT_KEYS_MAX} sort keys; name fewer");
                return Err(cursor.refuse_at(mark, message));
            }
            if !cursor.take_symbol(",") {
                break;
            }
        }
    }
    let values_max = if cursor.take_word("LIMIT") {
        let mark = cursor.mark();
        let most = whole(cursor, "how many values to keep, from 1")?;
        let message = || format!("LIMIT is at most {}, not {most}; leave it out to keep all values", u32::MAX);
        Some(u32::try_from(most).map_err(|_| cursor.refuse_at(mark, message()))?)
    } else {
        None
    };
    Ok(AggregateList { distinct, value, order, values_max })
}

fn numeric(cursor: &mut Cursor<'_>, limits: &ParserLimits, name: &str) -> Result<Expr, ParseError> {
    let mark = cursor.mark();
    let value = value(cursor, limits, Scope::ARGUMENT)?;
    need_number(cursor, mark, value, name)
}

fn need_number(cursor: &Cursor<'_>, mark: usize, value: Expr, name: &str) -> Result<Expr, ParseError> {
    if value.kind().may_be(Type::Number) {
        return Ok(value);
    }
    Err(cursor.refuse_at(mark, format!("{name} is of numbers; this is {}", value.kind().noun())))
}

fn distribution(cursor: &mut Cursor<'_>, limits: &ParserLimits, name: &str) -> Result<Aggregate, ParseError> {
    let value = numeric(cursor, limits, name)?;
    if !cursor.take_symbol(",") {
        return Err(cursor.unexpected_rest(&[","]));
    }
    let mark = cursor.mark();
    if name == "QUANTILE" && !cursor.is_word("LINEAR") && !cursor.is_word("REGION") && !cursor.is_word("MANUAL") {
        return rank(cursor).map(|rank| Aggregate::Quantile { value: Box::new(value), rank });
    }
    let points = points(cursor, limits)?;
    if points.count() > limits.points_max {
        let message = format!(
            "{} points are more than {}; ask for fewer",
            points.count(),
            limits.named("points_max", limits.points_max)
        );
        return Err(cursor.refuse_at(mark, message));
    }
    if name == "QUANTILE" && !points.are_ranks() {
        let message = "the points of QUANTILE are ranks from 0 to 1";
        return Err(cursor.refuse_at(mark, message.to_owned()));
    }
    let summary = match name {
        "QUANTILE" => Summary::Quantile { value, points },
        "FREQ" => Summary::Frequency { value, points },
        _ => Summary::CumulativeFrequency { value, points },
    };
    Ok(Aggregate::Summary(Box::new(summary)))
}

/// The rank of one quantile.
fn rank(cursor: &mut Cursor<'_>) -> Result<f64, ParseError> {
    let mark = cursor.mark();
    if !matches!(cursor.peek(), Token::Number(_)) && !cursor.is_symbol("-") {
        return Err(cursor.expected(&["a rank such as 0.95", "LINEAR", "REGION", "MANUAL"]));
    }
    let rank = number(cursor)?;
    if (0.0..=1.0).contains(&rank) {
        return Ok(rank);
    }
    let message = format!("the rank of QUANTILE is from 0 to 1, not {rank:?}; the 95th percentile is 0.95");
    Err(cursor.refuse_at(mark, message))
}

fn points(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<Points, ParseError> {
    if cursor.take_word("LINEAR") {
        cursor.need_symbol(",")?;
        return whole(cursor, "a whole number of points from 1").map(Points::Linear);
    }
    if cursor.take_word("REGION") {
        cursor.need_symbol(",")?;
        let start = number(cursor)?;
        cursor.need_symbol(",")?;
        let mark = cursor.mark();
        let end = number(cursor)?;
        if end < start {
            return Err(cursor.refuse_at(mark, "a region ends where it starts or above".to_owned()));
        }
        cursor.need_symbol(",")?;
        let mark = cursor.mark();
        let step = number(cursor)?;
        if step <= 0.0 {
            return Err(cursor.refuse_at(mark, "the step of a region is above 0".to_owned()));
        }
        return Ok(Points::Region { start, end, step });
    }
    if !cursor.take_word("MANUAL") {
        return Err(cursor.expected(&["LINEAR", "REGION", "MANUAL"]));
    }
    let mut points = Vec::new();
    while cursor.take_symbol(",") {
        let mark = cursor.mark();
        points.push(number(cursor)?);
        if points.len() as u64 > limits.points_max {
            let message = format!("more than {} points; ask for fewer", limits.named("points_max", limits.points_max));
            return Err(cursor.refuse_at(mark, message));
        }
    }
    if points.is_empty() { Err(cursor.expected(&[", and the first point"])) } else { Ok(Points::Manual(points)) }
}

fn top(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<Summary, ParseError> {
    let k = whole(cursor, "how many to tell, from 1")?;
    cursor.need_symbol(",")?;
    let threshold = match (cursor.peek(), cursor.peek_next()) {
        (Token::Number(_), Token::Symbol(",")) => {
            let threshold = whole(cursor, "the least count that is told, from 1")?;
            cursor.need_symbol(",")?;
            Some(threshold)
        }
        _ => None,
    };
    let mut values = Items::new(limits);
    loop {
        values.read(cursor, Scope::ARGUMENT)?;
        if !cursor.take_symbol(",") {
            return Ok(Summary::Top { k, threshold, values: values.read });
        }
    }
}

fn whole(cursor: &mut Cursor<'_>, what: &str) -> Result<u64, ParseError> {
    let number = match cursor.peek() {
        Token::Number(digits) => digits.parse().ok().filter(|number| *number > 0),
        _ => None,
    };
    let Some(number) = number else {
        return Err(cursor.expected(&[what]));
    };
    cursor.advance();
    Ok(number)
}

fn number(cursor: &mut Cursor<'_>) -> Result<f64, ParseError> {
    let negative = cursor.take_symbol("-");
    let number = match cursor.peek() {
        Token::Number(digits) => {
            digits.trim_end_matches(['l', 'L', 'f', 'F']).parse().ok().filter(|n: &f64| n.is_finite())
        }
        _ => None,
    };
    let Some(number) = number else {
        return Err(cursor.expected(&["a number"]));
    };
    cursor.advance();
    Ok(if negative { -number } else { number })
}
