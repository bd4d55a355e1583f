//! Expressions, by binding power: OR, then AND, then NOT, then comparisons (which do not chain).

use super::aggregate::{self, aggregate};
use super::path::field;
use super::scope::Scope;
use crate::cursor::{Cursor, Refusal};
use crate::lexer::Token;
use crate::suggest::nearest;
use crate::{Comparison, Expr, Limits, Literal, Pattern, Type};

/// How tightly the operators to the left of an expression bind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Power {
    Nothing,
    Or,
    And,
    Not,
}

/// Reads an expression of any type.
pub(super) fn value(cursor: &mut Cursor<'_>, limits: &Limits, scope: Scope<'_>) -> Result<Expr, Refusal> {
    Reader { cursor, limits, scope, depth: 0 }.boolean(Power::Nothing)
}

/// Reads a condition.
pub(super) fn condition(cursor: &mut Cursor<'_>, limits: &Limits, scope: Scope<'_>) -> Result<Expr, Refusal> {
    let mark = cursor.mark();
    let reader = &mut Reader { cursor, limits, scope, depth: 0 };
    let expr = reader.boolean(Power::Nothing)?;
    reader.need_condition(mark, &expr)?;
    Ok(expr.coerced(Type::Boolean))
}

struct Reader<'a, 'text> {
    cursor: &'a mut Cursor<'text>,
    limits: &'a Limits,
    scope: Scope<'a>,
    depth: usize,
}

impl Reader<'_, '_> {
    /// An expression up to the first operator that binds no tighter than `left`.
    fn boolean(&mut self, left: Power) -> Result<Expr, Refusal> {
        let mut mark = self.cursor.mark();
        let mut expr = self.prefix()?;
        loop {
            let (word, power) = if self.cursor.is_word("OR") {
                ("OR", Power::Or)
            } else if self.cursor.is_word("AND") {
                ("AND", Power::And)
            } else {
                return Ok(expr);
            };
            if power <= left {
                return Ok(expr);
            }
            self.need_condition(mark, &expr)?;
            self.cursor.need_word(word)?;
            mark = self.cursor.mark();
            let right = self.boolean(power)?;
            self.need_condition(mark, &right)?;
            expr = if power == Power::Or { expr.or(right) } else { expr.and(right) };
        }
    }

    fn prefix(&mut self) -> Result<Expr, Refusal> {
        if !self.cursor.is_word("NOT") {
            return self.test();
        }
        self.deeper(|reader| {
            reader.cursor.need_word("NOT")?;
            let mark = reader.cursor.mark();
            let negated = reader.boolean(Power::Not)?;
            reader.need_condition(mark, &negated)?;
            Ok(negated.negated())
        })
    }

    /// An operand and at most one comparison of it.
    fn test(&mut self) -> Result<Expr, Refusal> {
        let mark = self.cursor.mark();
        let left = self.operand()?;
        let expr = match self.comparison() {
            Some(comparison) => {
                self.cursor.advance();
                if self.cursor.is_word("ANY") || self.cursor.is_word("ALL") {
                    return Err(self.cursor.unavailable("comparing with ANY or ALL of a list"));
                }
                let right = self.operand()?;
                self.need_comparable(mark, &left, &right)?;
                left.compare(comparison, right)
            }
            None if self.cursor.take_word("IS") => self.is_null(left)?,
            None => self.worded(mark, left)?,
        };
        if self.comparison().is_some() {
            let message = "comparisons do not chain; join two of them with AND, or put one in parentheses";
            return Err(self.cursor.refuse(message.to_owned()));
        }
        Ok(expr)
    }

    fn comparison(&self) -> Option<Comparison> {
        let Token::Symbol(symbol) = self.cursor.peek() else {
            return None;
        };
        match *symbol {
            "=" | "==" => Some(Comparison::Equal),
            "!=" | "<>" => Some(Comparison::NotEqual),
            "<" => Some(Comparison::Less),
            "<=" => Some(Comparison::LessOrEqual),
            ">" => Some(Comparison::Greater),
            ">=" => Some(Comparison::GreaterOrEqual),
            _ => None,
        }
    }

    fn is_null(&mut self, left: Expr) -> Result<Expr, Refusal> {
        let negated = self.cursor.take_word("NOT");
        if !self.cursor.take_word("NULL") {
            return Err(self.cursor.expected(if negated { &["NULL"] } else { &["NULL", "NOT NULL"] }));
        }
        Ok(if negated { left.null_test().negated() } else { left.null_test() })
    }

    /// IN, BETWEEN or RLIKE, each also after NOT; or the operand alone.
    fn worded(&mut self, mark: usize, left: Expr) -> Result<Expr, Refusal> {
        let negated = self.cursor.take_word("NOT");
        let expr = if self.cursor.take_word("IN") {
            left.clone().within(self.list(mark, &left)?)
        } else if self.cursor.take_word("BETWEEN") {
            let (low, high) = self.bounds(mark, &left)?;
            left.between(low, high)
        } else if self.cursor.take_word("RLIKE") {
            self.need_comparable(mark, &left, &Expr::Literal(Literal::Text(String::new())))?;
            left.rlike(self.pattern()?)
        } else if negated {
            return Err(self.cursor.unexpected_rest(&["IN", "BETWEEN", "RLIKE"]));
        } else {
            return Ok(left);
        };
        Ok(if negated { expr.negated() } else { expr })
    }

    fn list(&mut self, left_mark: usize, left: &Expr) -> Result<Vec<Expr>, Refusal> {
        let closing = if self.cursor.take_symbol("[") {
            "]"
        } else if self.cursor.take_symbol("(") {
            ")"
        } else {
            return Err(self.cursor.expected(&["( with a list of values"]));
        };
        let mut list = Vec::new();
        loop {
            let mark = self.cursor.mark();
            list.push(self.operand()?);
            self.need_comparable(left_mark, left, &list[list.len() - 1])?;
            if list.len() > self.limits.list_max {
                let message = format!("a list has more than query.limits.list_max = {} values", self.limits.list_max);
                return Err(self.cursor.refuse_at(mark, message));
            }
            if self.cursor.take_symbol(closing) {
                return Ok(list);
            }
            if !self.cursor.take_symbol(",") {
                return Err(self.cursor.unexpected_rest(&[",", closing]));
            }
        }
    }

    /// `(a, b)` or `a AND b`.
    fn bounds(&mut self, mark: usize, left: &Expr) -> Result<(Expr, Expr), Refusal> {
        // The value is written twice in the plan; of a nested condition that would be twice at every level.
        if left.kind() == Type::Boolean && !matches!(left, Expr::Literal(_)) {
            let message = "BETWEEN needs a field or a value on its left, not a condition";
            return Err(self.cursor.refuse_at(mark, message.to_owned()));
        }
        let pair = self.cursor.take_symbol("(");
        let low = self.operand()?;
        let joined = if pair { self.cursor.take_symbol(",") } else { self.cursor.take_word("AND") };
        if !joined {
            return Err(self.cursor.unexpected_rest(&[if pair { "," } else { "AND" }]));
        }
        let high = self.operand()?;
        if pair && !self.cursor.take_symbol(")") {
            return Err(self.cursor.unexpected_rest(&[")"]));
        }
        self.need_comparable(mark, left, &low)?;
        self.need_comparable(mark, left, &high)?;
        Ok((low, high))
    }

    fn pattern(&mut self) -> Result<Pattern, Refusal> {
        if self.cursor.is_word("ANY") {
            return Err(self.cursor.unavailable("RLIKE ANY"));
        }
        let Token::Text(text) = self.cursor.peek().clone() else {
            return Err(self.cursor.expected(&["a regular expression in single quotes"]));
        };
        let pattern = Pattern::new(&text).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            self.cursor.refuse(format!("not a regular expression of linear time: {reason}"))
        })?;
        self.cursor.advance();
        Ok(pattern)
    }

    fn operand(&mut self) -> Result<Expr, Refusal> {
        match self.cursor.peek().clone() {
            Token::Text(text) => {
                self.cursor.advance();
                Ok(Expr::Literal(Literal::Text(text)))
            }
            Token::Number(_) | Token::Symbol("-") => self.number(),
            Token::Symbol("(") => self.parenthesised(),
            Token::Word(word) if *self.cursor.peek_next() == Token::Symbol("(") => self.call(&word),
            Token::Word(word) => match constant(&word) {
                Some(literal) => {
                    self.cursor.advance();
                    Ok(Expr::Literal(literal))
                }
                None => self.field(),
            },
            Token::Name(_) => self.field(),
            _ => Err(self.cursor.expected(&["a field", "a value", "NOT", "("])),
        }
    }

    fn field(&mut self) -> Result<Expr, Refusal> {
        field(self.cursor, self.limits).map(|field| self.scope.resolve(field))
    }

    fn call(&mut self, word: &str) -> Result<Expr, Refusal> {
        let name = word.to_ascii_uppercase();
        if let Some(why) = self.scope.no_aggregates.filter(|_| aggregate::NAMES.contains(&name.as_str())) {
            return Err(self.cursor.refuse(why.to_owned()));
        }
        if aggregate::NAMES.contains(&name.as_str()) {
            self.cursor.advance();
            self.cursor.need_symbol("(")?;
            return aggregate(self.cursor, self.limits, &name).map(Expr::Aggregate);
        }
        let mut refusal = self.cursor.refuse(format!("there is no function {name}"));
        refusal.suggestion = nearest(&name, aggregate::NAMES).map(str::to_owned);
        Err(refusal)
    }

    fn parenthesised(&mut self) -> Result<Expr, Refusal> {
        self.deeper(|reader| {
            reader.cursor.need_symbol("(")?;
            let inner = reader.boolean(Power::Nothing)?;
            if reader.cursor.take_symbol(")") {
                return Ok(inner);
            }
            Err(reader.cursor.unexpected_rest(&["AND", "OR", ")"]))
        })
    }

    fn number(&mut self) -> Result<Expr, Refusal> {
        let negative = self.cursor.take_symbol("-");
        let Token::Number(written) = self.cursor.peek().clone() else {
            return Err(self.cursor.expected(&["a number"]));
        };
        let literal = number(&written, negative).map_err(|message| self.cursor.refuse(message.to_owned()))?;
        self.cursor.advance();
        Ok(Expr::Literal(literal))
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Refusal>) -> Result<T, Refusal> {
        if self.depth == self.limits.depth_max {
            let message = format!("nested deeper than query.limits.depth_max = {}; flatten it", self.limits.depth_max);
            return Err(self.cursor.refuse(message));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Refuses a comparison of two known types that differ: it would be NULL for every record.
    fn need_comparable(&self, mark: usize, left: &Expr, right: &Expr) -> Result<(), Refusal> {
        let (left, right) = (left.kind(), right.kind());
        if left.may_be(right) {
            return Ok(());
        }
        let message =
            format!("{} is never comparable with {}; write both with the same type", left.noun(), right.noun());
        Err(self.cursor.refuse_at(mark, message))
    }

    /// Refuses what can never be TRUE or FALSE where a condition is needed.
    fn need_condition(&self, mark: usize, expr: &Expr) -> Result<(), Refusal> {
        if expr.kind().may_be(Type::Boolean) {
            return Ok(());
        }
        // What follows is the better clue: `a + 1 = 2` fails at the plus and not for want of a condition.
        if matches!(self.cursor.peek(), Token::Symbol("+" | "-" | "*" | "/" | "%" | ":")) {
            return Err(self.cursor.unexpected_rest(&[]));
        }
        let message = format!("expected a condition, found {}; compare it with something", expr.kind().noun());
        Err(self.cursor.refuse_at(mark, message))
    }
}

fn constant(word: &str) -> Option<Literal> {
    let constants = [
        ("NULL", Literal::Null),
        ("TRUE", Literal::Boolean(true)),
        ("FALSE", Literal::Boolean(false)),
        ("NOW", Literal::Now),
    ];
    constants.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, literal)| literal)
}

/// The value of a number as written. Without suffix an integer beyond 64 bits is a double, as it is in a payload.
fn number(written: &str, negative: bool) -> Result<Literal, &'static str> {
    let digits = written.trim_end_matches(['l', 'L', 'f', 'F']);
    let suffix = written[digits.len()..].to_ascii_uppercase();
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    if suffix != "F"
        && let Ok(integer) = signed.parse()
    {
        return Ok(Literal::Integer(integer));
    }
    if suffix == "L" {
        return Err("not a 64-bit integer; the suffix L needs one");
    }
    match signed.parse::<f64>() {
        Ok(double) if double.is_finite() => Ok(Literal::Double(double)),
        _ => Err("beyond the largest double, 1.7976931348623157e308"),
    }
}
