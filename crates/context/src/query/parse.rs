//! Parser of `q` and `mq`.
//!
//! ```text
//! expression = part *( ";" part ) [ ";" ]
//! part       = statement | "(" expression *( "|" expression ) ")"
//! statement  = [ "!" ] path | path operator right
//! path       = token *( "." token )           token = name | "'" any "'"
//! operator   = "==" | ":" | "!=" | ">" | ">=" | "<" | "<=" | "~="
//! right      = value *( "," value ) | value ".." value | regular expression
//! ```
//!
//! Blanks around statements, names, operators and values are ignored; within quotes they count. Brackets with `|` are those of
//! NGSI-LD (ETSI GS CIM 009, section 4.9): in NGSI-v2 no statement begins with one, so `|` has no meaning outside of them.
//! Within brackets those of a pattern come in pairs, or are escaped by a backslash.

use std::borrow::Cow;
use std::mem::discriminant;

use crate::model::datetime;
use crate::model::scalar::Scalar;
use crate::query::expression::{Choice, Edge, Expression, Path, Statement, Test};
use crate::query::{Pattern, Rules};
use crate::refusal::Refusal;

const STATEMENTS_MAX: usize = 100;
const LIST_MAX: usize = 1_000;
/// Brackets within brackets.
const NESTING_MAX: usize = 16;

/// Characters that no request may have in names and values, also within quotes.
const NEVER_SENT: [char; 4] = ['<', '>', '(', ')'];

/// Longer operators come first: one may begin another.
const OPERATORS: [&str; 9] = ["==", "!=", "~=", ">=", "<=", ">", "<", ":", "="];

/// The expression is a `q` or an `mq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Attributes,
    Metadata,
}

impl About {
    const fn parameter(self) -> &'static str {
        match self {
            Self::Attributes => "q",
            Self::Metadata => "mq",
        }
    }
}

impl Expression {
    pub(crate) fn of_q(text: &str, rules: Rules) -> Result<Self, Refusal> {
        Self::read(text, About::Attributes, rules)
    }

    pub(crate) fn of_mq(text: &str, rules: Rules) -> Result<Self, Refusal> {
        Self::read(text, About::Metadata, rules)
    }

    fn read(text: &str, about: About, rules: Rules) -> Result<Self, Refusal> {
        ExpressionReader { about, rules, statements: 0 }.all_of(text, Nesting::Outside)
    }
}

/// The brackets around a text: none, or so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Outside,
    Within(usize),
}

struct ExpressionReader {
    about: About,
    rules: Rules,
    /// Those that were read so far.
    statements: usize,
}

impl ExpressionReader {
    /// Statements and brackets joined by `;`.
    fn all_of(&mut self, text: &str, nesting: Nesting) -> Result<Expression, Refusal> {
        let mut parts = parts(text, ';', nesting).ok_or_else(|| open_quote(text, self.about))?;
        if parts.len() > 1 && parts.last().is_some_and(|last| last.trim().is_empty()) {
            parts.pop();
        }
        let mut read = Expression::default();
        for part in parts {
            let part = part.trim();
            match part.starts_with('(') {
                true => read.alternatives.push(self.any_of(part, nesting)?),
                false => read.statements.push(self.statement(part)?),
            }
        }
        Ok(read)
    }

    /// The inside of brackets: expressions joined by `|`.
    fn any_of(&mut self, text: &str, nesting: Nesting) -> Result<Vec<Expression>, Refusal> {
        let depth = match nesting {
            Nesting::Outside => 1,
            Nesting::Within(depth) => depth + 1,
        };
        if depth > NESTING_MAX {
            let why = format!("more than {NESTING_MAX} brackets within each other");
            return Err(refused(text, self.about, &why));
        }
        let nesting = Nesting::Within(depth);
        let inner = match closing_bracket(text) {
            Some(end) if end + 1 == text.len() => &text[1..end],
            Some(_) => return Err(refused(text, self.about, "behind a bracket that closes comes ';' or '|'")),
            None => return Err(refused(text, self.about, "a bracket is not closed: brackets come in pairs")),
        };
        let each = parts(inner, '|', nesting).ok_or_else(|| open_quote(inner, self.about))?;
        each.into_iter().map(|part| self.all_of(part, nesting)).collect()
    }

    fn statement(&mut self, text: &str) -> Result<Statement, Refusal> {
        self.statements += 1;
        if self.statements > STATEMENTS_MAX {
            return Err(refused(text, self.about, &format!("it is one of more than {STATEMENTS_MAX} statements")));
        }
        let read = statement(text, self.about)?;
        if self.rules == Rules::Sent {
            check_sent(text, &read.test, self.about)?;
        }
        Ok(read)
    }
}

/// Splits `text` at separators outside quotes and brackets; `None` if a quote is not closed. Outside of all brackets only the first
/// character of a part may open one: others belong to patterns.
fn parts(text: &str, separator: char, nesting: Nesting) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    let mut scan = BracketScan::default();
    for (at, c) in text.char_indices() {
        let is_plain = scan.passes(c, depth > 0 || nesting != Nesting::Outside);
        let opens = || depth > 0 || nesting != Nesting::Outside || text[begin..at].trim_start().is_empty();
        match c {
            _ if !is_plain => {}
            '(' if opens() => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if c == separator && depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    (!scan.in_quotes).then_some(parts)
}

/// The position of the bracket that closes the one with which `text` begins.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut scan, mut depth) = (BracketScan::default(), 0_usize);
    for (at, c) in text.char_indices() {
        match c {
            _ if !scan.passes(c, true) => {}
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Tells characters with a meaning from those within quotes and behind a backslash.
#[derive(Default)]
struct BracketScan {
    in_quotes: bool,
    is_escaped: bool,
}

impl BracketScan {
    /// Goes on by one character; returns `true` if it stands outside quotes and, where backslashes count, behind none.
    fn passes(&mut self, c: char, backslashes_count: bool) -> bool {
        if std::mem::take(&mut self.is_escaped) {
            return false;
        }
        self.in_quotes ^= c == '\'';
        self.is_escaped = backslashes_count && !self.in_quotes && c == '\\';
        !self.in_quotes
    }
}

/// Refuses forms that Orion refuses in requests but that stored subscriptions may have.
fn check_sent(text: &str, test: &Test, about: About) -> Result<(), Refusal> {
    if let Test::Equal(Choice::Any(values)) | Test::NotEqual(Choice::Any(values)) = test {
        check_list(text, values, about)?;
    }
    check_characters(text, about)?;
    let pattern = operator(text).filter(|(_, operator)| *operator == "~=").map(|(at, _)| text[at + 2..].trim());
    if pattern.is_some_and(|pattern| quoted(pattern).is_some()) {
        return Err(refused(text, about, "a pattern has no quotes: leave them out, and write \\x3b for a ';' in it"));
    }
    Ok(())
}

/// Refuses a list that has booleans, or values of several kinds; null may stand beside texts.
fn check_list(text: &str, values: &[Scalar<'_>], about: About) -> Result<(), Refusal> {
    let of_texts = |value: &Scalar<'_>| matches!(value, Scalar::Text(_) | Scalar::Null);
    let of_one_kind = |value: &Scalar<'_>| discriminant(value) == discriminant(&values[0]);
    let has_boolean = values.len() > 1 && values.iter().any(|value| matches!(value, Scalar::Bool(_)));
    if !has_boolean && (values.iter().all(of_one_kind) || values.iter().all(of_texts)) {
        return Ok(());
    }
    Err(refused(text, about, "a list has values of one kind, numbers, dates or texts: quote what is text"))
}

/// Refuses characters that neither a name nor a value can have; patterns may have any.
fn check_characters(text: &str, about: About) -> Result<(), Refusal> {
    let (left, right) = match operator(text) {
        Some((at, "~=")) => (&text[..at], ""),
        Some((at, operator)) => (&text[..at], &text[at + operator.len()..]),
        None => (text, ""),
    };
    if left.contains(NEVER_SENT) || right.contains(NEVER_SENT) {
        return Err(refused(text, about, "the characters < > ( ) are in no name and no value: leave them out"));
    }
    Ok(())
}

fn statement(text: &str, about: About) -> Result<Statement, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(refused(text, about, "an empty statement: remove the ';' or '|' beside it"));
    }
    if let Some(name) = text.strip_prefix('!') {
        if operator(name).is_some() {
            return Err(refused(text, about, "'!' stands before a name alone: use != to compare"));
        }
        return Ok(Statement { path: path(name, text, about)?, test: Test::Absent });
    }
    let Some((at, operator)) = operator(text) else {
        return Ok(Statement { path: path(text, text, about)?, test: Test::Exists });
    };
    let (name, right) = (&text[..at], text[at + operator.len()..].trim());
    let path = path(name, text, about)?;
    if right.is_empty() {
        return Err(refused(text, about, &format!("nothing stands right of '{operator}': add a value")));
    }
    let test = test(operator, right, text, about)?;
    Ok(Statement { path, test })
}

fn test(operator: &str, right: &str, text: &str, about: About) -> Result<Test, Refusal> {
    let one = || one_value(operator, right, text, about);
    Ok(match operator {
        "==" | ":" => Test::Equal(choice(right, text, about)?),
        "!=" => Test::NotEqual(choice(right, text, about)?),
        ">" => Test::Above(one()?, Edge::Excluded),
        ">=" => Test::Above(one()?, Edge::Included),
        "<" => Test::Below(one()?, Edge::Excluded),
        "<=" => Test::Below(one()?, Edge::Included),
        "~=" => {
            let pattern = quoted(right).unwrap_or(right);
            Test::Like(Pattern::new(&format!("the pattern of {}", about.parameter()), pattern)?)
        }
        unknown => {
            return Err(refused(text, about, &format!("'{unknown}' is no operator: use == : != > >= < <= or ~=")));
        }
    })
}

fn choice(right: &str, text: &str, about: About) -> Result<Choice, Refusal> {
    let items = split(right, ",").ok_or_else(|| open_quote(text, about))?;
    let [item] = items[..] else {
        if items.len() > LIST_MAX {
            return Err(refused(text, about, &format!("a list of {}: at most {LIST_MAX} are allowed", items.len())));
        }
        let each = |item: &str| match range(item, text, about)? {
            None => value(item, text, about),
            Some(_) => Err(refused(text, about, "a range within a list: use one or the other, or quote the text")),
        };
        return items.into_iter().map(each).collect::<Result<_, _>>().map(Choice::Any);
    };
    match range(item, text, about)? {
        Some((from, to)) => Ok(Choice::Range(from, to)),
        None => Ok(Choice::Any(vec![value(item, text, about)?])),
    }
}

type Ends = (Scalar<'static>, Scalar<'static>);

/// Both ends of a range; `None` if `item` is no range.
fn range(item: &str, text: &str, about: About) -> Result<Option<Ends>, Refusal> {
    let ends = split(item, "..").ok_or_else(|| open_quote(text, about))?;
    if ends.len() == 1 {
        return Ok(None);
    }
    let at = ends[0].len();
    let (from, to) = (value(ends[0], text, about)?, value(&item[at + 2..], text, about)?);
    if !from.has_order() || from.order(&to).is_none() {
        return Err(refused(text, about, "the ends of a range must be two numbers, two dates or two texts"));
    }
    Ok(Some((from, to)))
}

fn one_value(operator: &str, right: &str, text: &str, about: About) -> Result<Scalar<'static>, Refusal> {
    match choice(right, text, about)? {
        Choice::Any(values) => match <[Scalar<'static>; 1]>::try_from(values) {
            Ok([value]) if value.has_order() => Ok(value),
            _ => Err(refused(text, about, &format!("'{operator}' takes one number, date or text: quote other text"))),
        },
        Choice::Range(..) => Err(refused(text, about, &format!("'{operator}' takes one value, no range"))),
    }
}

/// Parses a value: quoted text, or the kind that the text looks like.
fn value(item: &str, text: &str, about: About) -> Result<Scalar<'static>, Refusal> {
    let item = item.trim();
    if let Some(inner) = quoted(item) {
        return Ok(Scalar::Text(Cow::Owned(inner.to_owned())));
    }
    if item.is_empty() {
        return Err(refused(text, about, "an empty value: write '' for the empty text"));
    }
    if item.contains('\'') {
        return Err(refused(text, about, "a quote within a value: put the whole value in quotes"));
    }
    if item.starts_with(['=', '<', '>']) {
        let begin: String =
            text.chars().skip_while(|c| !"=<>!~:".contains(*c)).take_while(|c| "=<>!~:".contains(*c)).collect();
        let why = format!("'{begin}' is no operator: use == : != > >= < <= or ~=, and quote a text that begins so");
        return Err(refused(text, about, &why));
    }
    Ok(match item {
        "true" => Scalar::Bool(true),
        "false" => Scalar::Bool(false),
        "null" => Scalar::Null,
        _ => match (number(item), datetime::parse(item)) {
            (Some(number), _) => Scalar::Number(number),
            (None, Some(at_ms)) => Scalar::Date(at_ms),
            (None, None) => Scalar::Text(Cow::Owned(item.to_owned())),
        },
    })
}

fn number(item: &str) -> Option<f64> {
    let plain = item.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
    plain.then(|| item.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

fn path(name: &str, text: &str, about: About) -> Result<Path, Refusal> {
    let tokens = split(name.trim(), ".").ok_or_else(|| open_quote(text, about))?;
    let mut names = Vec::with_capacity(tokens.len());
    for token in tokens {
        let name = quoted(token).unwrap_or(token);
        if name.is_empty() {
            return Err(refused(text, about, "an empty name: write attribute, or attribute.key"));
        }
        if quoted(token).is_none() && token.contains(['\'', '!']) {
            return Err(refused(text, about, "a quote or '!' within a name: put the whole name in quotes"));
        }
        names.push(name.to_owned());
    }
    let mut names = names.into_iter();
    let attribute = names.next().unwrap_or_default();
    let metadata = match about {
        About::Attributes => None,
        About::Metadata => {
            Some(names.next().ok_or_else(|| refused(text, about, "no metadata is named: write attribute.metadata"))?)
        }
    };
    Ok(Path { attribute, metadata, keys: names.collect() })
}

/// The first operator outside quotes, and its position.
fn operator(text: &str) -> Option<(usize, &'static str)> {
    let mut in_quotes = false;
    for (at, c) in text.char_indices() {
        in_quotes ^= c == '\'';
        if !in_quotes && let Some(operator) = OPERATORS.iter().find(|operator| text[at..].starts_with(**operator)) {
            return Some((at, operator));
        }
    }
    None
}

/// Splits `text` at separators outside quotes; `None` if a quote is not closed.
fn split<'a>(text: &'a str, separator: &str) -> Option<Vec<&'a str>> {
    let (mut parts, mut begin, mut in_quotes) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        in_quotes ^= c == '\'';
        if !in_quotes && at >= begin && text[at..].starts_with(separator) {
            parts.push(&text[begin..at]);
            begin = at + separator.len();
        }
    }
    parts.push(&text[begin..]);
    (!in_quotes).then_some(parts)
}

/// The text between the quotes, if all of `text` is quoted.
fn quoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    (!inner.contains('\'')).then_some(inner)
}

fn open_quote(text: &str, about: About) -> Refusal {
    refused(text, about, "a quote is not closed: quotes come in pairs")
}

fn refused(statement: &str, about: About, why: &str) -> Refusal {
    Refusal::bad(format!("{} '{statement}': {why}; correct it", about.parameter()))
}
