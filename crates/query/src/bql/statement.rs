//! A statement: `SELECT … FROM … [WHERE …] [GROUP BY …] [HAVING …] [ORDER BY …] [WINDOWING …] [LIMIT n]`.

use millstream_columns::parser::{Scope, condition, named, value, within_items_max};
use millstream_columns::{Cursor, Diagnostic, ParseError, ParserLimits, TextPosition, Token, Type};

use super::check::check;
use super::marks::Marks;
use super::select::select;
use super::source::{limit, source};
use super::windowing::{event_time, window};
use crate::{Order, QueryPlan, Select};

/// Refuses a text that is longer than `query.limits.text_max_bytes`.
pub(crate) fn check_length(text: &str, limits: &ParserLimits) -> Result<(), Vec<Diagnostic>> {
    if text.len() > limits.text_max_bytes {
        return Err(vec![Diagnostic {
            place: TextPosition { byte: 0, line: 1, column: 1 },
            message: format!(
                "a query of {} bytes exceeds query.limits.text_max_bytes = {}; shorten it or raise the limit",
                text.len(),
                limits.text_max_bytes
            ),
            found: millstream_columns::excerpt(text),
            expected: Vec::new(),
            suggestion: None,
        }]);
    }
    Ok(())
}

/// Parses a query that is a statement.
pub(crate) fn parse_statement(text: &str, limits: &ParserLimits) -> Result<QueryPlan, Vec<Diagnostic>> {
    check_length(text, limits)?;
    let mut cursor = Cursor::new(text)?;
    statement(&mut cursor, limits).map_err(|refusal| vec![*refusal])
}

/// The clauses after FROM in their order.
const CLAUSES: [&str; 6] = ["WHERE", "GROUP", "HAVING", "ORDER", "WINDOWING", "LIMIT"];

fn statement(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<QueryPlan, ParseError> {
    let mut marks = Marks::default();
    cursor.need_word("SELECT")?;
    marks.select = cursor.mark();
    let distinct = cursor.take_word("DISTINCT");
    let select = select(cursor, limits, &mut marks)?;
    if !cursor.is_word("FROM") {
        let expected: &[&str] = if select == Select::All { &[",", "FROM"] } else { &[",", "AS", "FROM"] };
        return Err(cursor.unexpected_rest(expected));
    }
    cursor.need_word("FROM")?;
    let source = source(cursor)?;
    let mut plan = QueryPlan {
        select,
        distinct,
        source,
        filter: None,
        group_by: Vec::new(),
        having: None,
        order_by: Vec::new(),
        window: None,
        event_time: None,
        limit: None,
        sorts_first_matches: false,
        stamped: false,
    };
    clauses(cursor, limits, &mut plan, &mut marks)?;
    check(cursor, &mut plan, &marks)?;
    Ok(plan)
}

/// Parses the clauses after FROM.
fn clauses(
    cursor: &mut Cursor<'_>,
    limits: &ParserLimits,
    plan: &mut QueryPlan,
    marks: &mut Marks,
) -> Result<(), ParseError> {
    if cursor.take_word("WHERE") {
        plan.filter = Some(condition(cursor, limits, Scope::FILTER)?);
    }
    marks.group = cursor.mark();
    if cursor.take_word("GROUP") {
        cursor.need_word("BY")?;
        group_by(cursor, limits, plan)?;
    }
    marks.having = cursor.mark();
    if cursor.take_word("HAVING") {
        plan.having = Some(condition(cursor, limits, Scope::of_results(plan.items(), &plan.group_by))?);
    }
    if cursor.take_word("ORDER") {
        cursor.need_word("BY")?;
        order_by(cursor, limits, plan, marks)?;
    }
    marks.window = cursor.mark();
    if cursor.take_word("WINDOWING") {
        plan.window = Some(window(cursor)?);
        marks.event_time = cursor.mark();
        if cursor.take_word("ON") {
            plan.event_time = Some(event_time(cursor, limits)?);
        }
    }
    marks.limit = cursor.mark();
    if cursor.take_word("LIMIT") {
        plan.limit = Some(limit(cursor)?);
    }
    cursor.take_symbol(";");
    if *cursor.peek() == Token::End { Ok(()) } else { Err(unexpected_end(cursor, plan)) }
}

fn group_by(cursor: &mut Cursor<'_>, limits: &ParserLimits, plan: &mut QueryPlan) -> Result<(), ParseError> {
    loop {
        let mark = cursor.mark();
        let key = value(cursor, limits, Scope::KEY)?;
        let key = named(plan.items(), cursor.name_since(mark)).unwrap_or(key);
        if key.holds_aggregate() {
            let message = "a group is made by values of records; this name stands for an aggregate";
            return Err(cursor.refuse_at(mark, message.to_owned()));
        }
        need_primitive(cursor, mark, key.kind(), "grouped")?;
        if !plan.group_by.contains(&key) {
            plan.group_by.push(key);
        }
        within_items_max(cursor, mark, plan.group_by.len(), limits)?;
        if !cursor.take_symbol(",") {
            return Ok(());
        }
    }
}

fn order_by(
    cursor: &mut Cursor<'_>,
    limits: &ParserLimits,
    plan: &mut QueryPlan,
    marks: &mut Marks,
) -> Result<(), ParseError> {
    loop {
        let mark = cursor.mark();
        let by = value(cursor, limits, Scope::of_results(plan.items(), &plan.group_by))?;
        let by = named(plan.items(), cursor.name_since(mark)).unwrap_or(by);
        need_primitive(cursor, mark, by.kind(), "sorted")?;
        let descending = cursor.take_word("DESC");
        if !descending {
            cursor.take_word("ASC");
        }
        plan.order_by.push(Order { by, descending });
        marks.order.push(mark);
        within_items_max(cursor, mark, marks.order.len(), limits)?;
        if !cursor.take_symbol(",") {
            return Ok(());
        }
    }
}

fn need_primitive(cursor: &Cursor<'_>, mark: usize, kind: Type, done: &str) -> Result<(), ParseError> {
    if !kind.is_nested() {
        return Ok(());
    }
    Err(cursor.refuse_at(mark, format!("rows are {done} by numbers, texts and booleans; this is {}", kind.noun())))
}

/// The error for text after a complete statement.
fn unexpected_end(cursor: &Cursor<'_>, plan: &QueryPlan) -> ParseError {
    let passed = [
        plan.filter.is_some(),
        !plan.group_by.is_empty(),
        plan.having.is_some(),
        !plan.order_by.is_empty(),
        plan.window.is_some(),
        plan.limit.is_some(),
    ];
    let next = passed.iter().rposition(|there| *there).map_or(0, |last| last + 1);
    let mut expected: Vec<&str> = CLAUSES[next..].to_vec();
    if next == 1 {
        expected.splice(0..0, ["AND", "OR"]);
    } else if plan.window.is_some() && plan.limit.is_none() {
        expected.insert(0, if plan.event_time.is_some() { "DELAY" } else { "ON" });
    }
    expected.push("the end of the query");
    cursor.unexpected_rest(&expected)
}
