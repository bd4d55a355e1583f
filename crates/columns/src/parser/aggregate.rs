//! Calls of aggregates, once their name and the opening parenthesis are passed.

use super::expression::value;
use super::items::Items;
use super::scope::Scope;
use crate::cursor::{Cursor, Refusal};
use crate::expr::{Expr, Type};
use crate::lexer::Token;
use crate::{Aggregate, Limits, Points, Statistic, Summary};

/// The names of all aggregates.
pub(super) const NAMES: [&str; 9] = ["COUNT", "SUM", "AVG", "MIN", "MAX", "QUANTILE", "FREQ", "CUMFREQ", "TOP"];

/// Reads what follows `name(`, to the closing parenthesis; `name` is one of [`NAMES`].
pub(super) fn aggregate(cursor: &mut Cursor<'_>, limits: &Limits, name: &str) -> Result<Aggregate, Refusal> {
    let aggregate = match name {
        "COUNT" => count(cursor, limits)?,
        "SUM" => statistic(cursor, limits, Statistic::Sum)?,
        "AVG" => statistic(cursor, limits, Statistic::Average)?,
        "MIN" => statistic(cursor, limits, Statistic::Min)?,
        "MAX" => statistic(cursor, limits, Statistic::Max)?,
        "TOP" => Aggregate::Summary(Box::new(top(cursor, limits)?)),
        _ => Aggregate::Summary(Box::new(distribution(cursor, limits, name)?)),
    };
    if cursor.take_symbol(")") { Ok(aggregate) } else { Err(cursor.unexpected_rest(&[")"])) }
}

fn count(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Aggregate, Refusal> {
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

fn statistic(cursor: &mut Cursor<'_>, limits: &Limits, statistic: Statistic) -> Result<Aggregate, Refusal> {
    if cursor.is_word("DISTINCT") {
        let message = "only COUNT takes DISTINCT, as in COUNT(DISTINCT a)";
        return Err(cursor.refuse(message.to_owned()));
    }
    Ok(Aggregate::Of { statistic, value: Box::new(numeric(cursor, limits, statistic.as_str())?) })
}

fn numeric(cursor: &mut Cursor<'_>, limits: &Limits, name: &str) -> Result<Expr, Refusal> {
    let mark = cursor.mark();
    let value = value(cursor, limits, Scope::ARGUMENT)?;
    if value.kind().may_be(Type::Number) {
        return Ok(value);
    }
    Err(cursor.refuse_at(mark, format!("{name} is of numbers; this is {}", value.kind().noun())))
}

fn distribution(cursor: &mut Cursor<'_>, limits: &Limits, name: &str) -> Result<Summary, Refusal> {
    let value = numeric(cursor, limits, name)?;
    if !cursor.take_symbol(",") {
        return Err(cursor.unexpected_rest(&[","]));
    }
    let mark = cursor.mark();
    let points = points(cursor, limits)?;
    if points.count() > limits.points_max {
        let message = format!(
            "{} points are more than query.limits.points_max = {}; ask for fewer",
            points.count(),
            limits.points_max
        );
        return Err(cursor.refuse_at(mark, message));
    }
    if name == "QUANTILE" && !points.are_ranks() {
        let message = "the points of QUANTILE are ranks from 0 to 1";
        return Err(cursor.refuse_at(mark, message.to_owned()));
    }
    Ok(match name {
        "QUANTILE" => Summary::Quantile { value, points },
        "FREQ" => Summary::Frequency { value, points },
        _ => Summary::CumulativeFrequency { value, points },
    })
}

fn points(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Points, Refusal> {
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
            let message = format!("more than query.limits.points_max = {} points; ask for fewer", limits.points_max);
            return Err(cursor.refuse_at(mark, message));
        }
    }
    if points.is_empty() { Err(cursor.expected(&[", and the first point"])) } else { Ok(Points::Manual(points)) }
}

fn top(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Summary, Refusal> {
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

fn whole(cursor: &mut Cursor<'_>, what: &str) -> Result<u64, Refusal> {
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

/// A number that stands in the query itself.
fn number(cursor: &mut Cursor<'_>) -> Result<f64, Refusal> {
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
