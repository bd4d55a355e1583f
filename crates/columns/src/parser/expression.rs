//! Expressions, by binding power: OR, then XOR, then AND, then NOT, then comparisons, which do not chain. `operand.rs`
//! parses the values that they compare.

use super::scope::Scope;
use crate::cursor::{Cursor, ParseError};
use crate::lexer::Token;
use crate::{Comparison, Expr, Literal, ParserLimits, Pattern, Type};

/// The binding power of the operators to the left of an expression.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BindingPower {
    Nothing,
    Or,
    Xor,
    And,
    Not,
}

/// Parses an expression of any type.
///
/// # Errors
/// A diagnostic with the position of the error.
pub fn value(cursor: &mut Cursor<'_>, limits: &ParserLimits, scope: Scope<'_>) -> Result<Expr, ParseError> {
    ExpressionParser { cursor, limits, scope, depth: 0, operators: 0 }.boolean(BindingPower::Nothing)
}

/// Parses an expression that is a condition.
///
/// # Errors
/// A diagnostic with the position of the error.
pub fn condition(cursor: &mut Cursor<'_>, limits: &ParserLimits, scope: Scope<'_>) -> Result<Expr, ParseError> {
    let mark = cursor.mark();
    let reader = &mut ExpressionParser { cursor, limits, scope, depth: 0, operators: 0 };
    let expr = reader.boolean(BindingPower::Nothing)?;
    reader.need_condition(mark, &expr)?;
    Ok(expr.coerced(Type::Boolean))
}

pub(super) struct ExpressionParser<'a, 'text> {
    pub(super) cursor: &'a mut Cursor<'text>,
    pub(super) limits: &'a ParserLimits,
    pub(super) scope: Scope<'a>,
    depth: usize,
    /// The number of operators between two values so far: each makes the expression one level higher.
    operators: usize,
}

impl ExpressionParser<'_, '_> {
    /// Parses up to the first operator that binds no tighter than `left`.
    pub(super) fn boolean(&mut self, left: BindingPower) -> Result<Expr, ParseError> {
        let mut mark = self.cursor.mark();
        let mut expr = self.prefix()?;
        loop {
            let (word, power) = if self.cursor.is_word("OR") {
                ("OR", BindingPower::Or)
            } else if self.cursor.is_word("XOR") {
                ("XOR", BindingPower::Xor)
            } else if self.cursor.is_word("AND") {
                ("AND", BindingPower::And)
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
            expr = match power {
                BindingPower::Or => expr.or(right),
                BindingPower::Xor => {
                    self.count_operator(mark)?;
                    expr.xor(right)
                }
                _ => expr.and(right),
            };
        }
    }

    fn prefix(&mut self) -> Result<Expr, ParseError> {
        if !self.cursor.is_word("NOT") {
            return self.test();
        }
        self.deeper(|reader| {
            reader.cursor.need_word("NOT")?;
            let mark = reader.cursor.mark();
            let negated = reader.boolean(BindingPower::Not)?;
            reader.need_condition(mark, &negated)?;
            Ok(negated.negated())
        })
    }

    /// Parses a value and at most one comparison of it.
    fn test(&mut self) -> Result<Expr, ParseError> {
        let mark = self.cursor.mark();
        let left = self.concatenation()?;
        let expr = match self.comparison() {
            Some(comparison) => {
                self.cursor.advance();
                self.compared(mark, left, comparison)?
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

    /// Parses the right side of a comparison: a value, or ANY or ALL and a list.
    fn compared(&mut self, mark: usize, left: Expr, comparison: Comparison) -> Result<Expr, ParseError> {
        let every = self.cursor.is_word("ALL");
        if !every && !self.cursor.is_word("ANY") {
            let right = self.concatenation()?;
            self.need_comparable(mark, &left, &right)?;
            return Ok(left.compare(comparison, right));
        }
        self.cursor.advance();
        let list = self.any_list(mark, &left)?;
        Ok(match (comparison, list) {
            (Comparison::Equal, Expr::List(list)) if !every => left.within(list),
            (Comparison::NotEqual, Expr::List(list)) if every => left.within(list).negated(),
            (_, list) => {
                Expr::Quantified { comparison, every, value: Box::new(left), list: Box::new(list.coerced(Type::List)) }
            }
        })
    }

    /// Parses a list in brackets or parentheses, or a value that is a list.
    fn any_list(&mut self, left_mark: usize, left: &Expr) -> Result<Expr, ParseError> {
        if self.cursor.is_symbol("[") || self.cursor.is_symbol("(") {
            return self.list(left_mark, left).map(Expr::List);
        }
        let mark = self.cursor.mark();
        let list = self.operand()?;
        if list.kind().may_be(Type::List) {
            return Ok(list);
        }
        Err(self.cursor.refuse_at(mark, format!("expected a list, found {}", list.kind().noun())))
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

    fn is_null(&mut self, left: Expr) -> Result<Expr, ParseError> {
        let negated = self.cursor.take_word("NOT");
        if !self.cursor.take_word("NULL") {
            return Err(self.cursor.expected(if negated { &["NULL"] } else { &["NULL", "NOT NULL"] }));
        }
        Ok(if negated { left.null_test().negated() } else { left.null_test() })
    }

    /// Parses IN, BETWEEN, LIKE or RLIKE, each also after NOT; or the value alone.
    fn worded(&mut self, mark: usize, left: Expr) -> Result<Expr, ParseError> {
        let negated = self.cursor.take_word("NOT");
        let expr = if self.cursor.take_word("IN") {
            match self.any_list(mark, &left)? {
                Expr::List(list) => left.within(list),
                list => {
                    let list = Box::new(list.coerced(Type::List));
                    Expr::Quantified { comparison: Comparison::Equal, every: false, value: Box::new(left), list }
                }
            }
        } else if self.cursor.take_word("BETWEEN") {
            let (low, high) = self.bounds(mark, &left)?;
            left.between(low, high)
        } else if self.cursor.take_word("RLIKE") {
            self.need_comparable(mark, &left, &Expr::Literal(Literal::Text(String::new())))?;
            self.rlike(left)?
        } else if self.cursor.take_word("LIKE") {
            self.need_comparable(mark, &left, &Expr::Literal(Literal::Text(String::new())))?;
            left.rlike(self.like_pattern()?)
        } else if negated {
            return Err(self.cursor.unexpected_rest(&["IN", "BETWEEN", "LIKE", "RLIKE"]));
        } else {
            return Ok(left);
        };
        Ok(if negated { expr.negated() } else { expr })
    }

    /// Parses a pattern, or ANY and several patterns.
    fn rlike(&mut self, left: Expr) -> Result<Expr, ParseError> {
        if !self.cursor.take_word("ANY") {
            let pattern = self.pattern()?;
            return Ok(left.rlike(pattern));
        }
        let closing = self.opened_list()?;
        let mut any: Option<Expr> = None;
        for count in 1.. {
            let mark = self.cursor.mark();
            let one = left.clone().rlike(self.pattern()?);
            self.within_list_max(mark, count)?;
            if count > 1 {
                self.count_repeated(mark, &left)?;
            }
            any = Some(match any {
                Some(others) => others.or(one),
                None => one,
            });
            if self.cursor.take_symbol(closing) {
                break;
            }
            if !self.cursor.take_symbol(",") {
                return Err(self.cursor.unexpected_rest(&[",", closing]));
            }
        }
        Ok(any.unwrap_or(left))
    }

    /// Takes the bracket that opens a list, and returns the one that closes it.
    fn opened_list(&mut self) -> Result<&'static str, ParseError> {
        if self.cursor.take_symbol("[") {
            Ok("]")
        } else if self.cursor.take_symbol("(") {
            Ok(")")
        } else {
            Err(self.cursor.expected(&["( with a list of values"]))
        }
    }

    pub(super) fn within_list_max(&self, mark: usize, count: usize) -> Result<(), ParseError> {
        if count <= self.limits.list_max {
            return Ok(());
        }
        let message = format!("a list has more than {} values", self.limits.named("list_max", self.limits.list_max));
        Err(self.cursor.refuse_at(mark, message))
    }

    fn list(&mut self, left_mark: usize, left: &Expr) -> Result<Vec<Expr>, ParseError> {
        let closing = self.opened_list()?;
        let mut list = Vec::new();
        loop {
            let mark = self.cursor.mark();
            list.push(self.concatenation()?);
            self.need_comparable(left_mark, left, &list[list.len() - 1])?;
            self.within_list_max(mark, list.len())?;
            if self.cursor.take_symbol(closing) {
                return Ok(list);
            }
            if !self.cursor.take_symbol(",") {
                return Err(self.cursor.unexpected_rest(&[",", closing]));
            }
        }
    }

    /// `(a, b)` or `a AND b`.
    fn bounds(&mut self, mark: usize, left: &Expr) -> Result<(Expr, Expr), ParseError> {
        self.count_repeated(mark, left)?;
        let pair = self.cursor.take_symbol("(");
        let low = self.concatenation()?;
        let joined = if pair { self.cursor.take_symbol(",") } else { self.cursor.take_word("AND") };
        if !joined {
            return Err(self.cursor.unexpected_rest(&[if pair { "," } else { "AND" }]));
        }
        let high = self.concatenation()?;
        if pair && !self.cursor.take_symbol(")") {
            return Err(self.cursor.unexpected_rest(&[")"]));
        }
        self.need_comparable(mark, left, &low)?;
        self.need_comparable(mark, left, &high)?;
        Ok((low, high))
    }

    /// `BETWEEN(value, a, b)`: the same as `value BETWEEN (a, b)`.
    pub(super) fn between_call(&mut self) -> Result<Expr, ParseError> {
        self.cursor.advance();
        self.cursor.need_symbol("(")?;
        let mark = self.cursor.mark();
        let value = self.concatenation()?;
        self.need_closing(",")?;
        self.count_repeated(mark, &value)?;
        let low = self.concatenation()?;
        self.need_closing(",")?;
        let high = self.concatenation()?;
        self.need_closing(")")?;
        self.need_comparable(mark, &value, &low)?;
        self.need_comparable(mark, &value, &high)?;
        Ok(value.between(low, high))
    }

    fn pattern(&mut self) -> Result<Pattern, ParseError> {
        let mark = self.cursor.mark();
        let text = self.constant_text("a regular expression in single quotes")?;
        Pattern::new(&text).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            self.cursor.refuse_at(mark, format!("not a regular expression of linear time: {reason}"))
        })
    }

    /// `'pattern'`, or `'pattern' ESCAPE 'character'`.
    fn like_pattern(&mut self) -> Result<Pattern, ParseError> {
        let mark = self.cursor.mark();
        let text = self.constant_text("a pattern in single quotes, in which % is any text and _ one character")?;
        let mut escape = None;
        if self.cursor.take_word("ESCAPE") {
            let mark = self.cursor.mark();
            let escaping = self.constant_text("one character in single quotes")?;
            let mut letters = escaping.chars();
            escape = letters.next();
            if escape.is_none() || letters.next().is_some() {
                let message = format!("ESCAPE takes one character, not '{escaping}'");
                return Err(self.cursor.refuse_at(mark, message));
            }
        }
        Pattern::like(&text, escape).map_err(|error| self.cursor.refuse_at(mark, error.to_string()))
    }

    /// A text in single quotes, or a parameter that is a text; `what` describes it, for the error.
    pub(super) fn constant_text(&mut self, what: &str) -> Result<String, ParseError> {
        let mark = self.cursor.mark();
        if self.cursor.is_symbol(":") {
            return match self.cursor.need_parameter()? {
                Expr::Literal(Literal::Text(text)) => Ok(text),
                other => {
                    let message = format!("expected {what}; this parameter is {}", other.kind().noun());
                    Err(self.cursor.refuse_at(mark, message))
                }
            };
        }
        let Token::Text(text) = self.cursor.peek().clone() else {
            return Err(self.cursor.expected(&[what]));
        };
        self.cursor.advance();
        Ok(text)
    }

    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth == self.limits.depth_max {
            let message =
                format!("nested deeper than {}; flatten it", self.limits.named("depth_max", self.limits.depth_max));
            return Err(self.cursor.refuse(message));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Counts an operator that makes an expression higher by one.
    pub(super) fn count_operator(&mut self, mark: usize) -> Result<(), ParseError> {
        self.operators += 1;
        if self.operators <= self.limits.operators_max {
            return Ok(());
        }
        let message =
            format!("more than {} operators; use fewer", self.limits.named("operators_max", self.limits.operators_max));
        Err(self.cursor.refuse_at(mark, message))
    }

    /// Counts the conditions in `left` if the plan contains `left` twice: nested, the plan would double with every level.
    pub(super) fn count_repeated(&mut self, mark: usize, left: &Expr) -> Result<(), ParseError> {
        let (mut parts, mut has_conditions) = (0, false);
        left.each(&mut |part| {
            parts += 1;
            has_conditions |= part.kind() == Type::Boolean && !matches!(part, Expr::Literal(_) | Expr::Hint { .. });
        });
        let counted = if has_conditions { parts } else { 0 };
        (0..counted).try_for_each(|_| self.count_operator(mark))
    }

    /// Refuses a comparison of two known types that differ: it would be NULL for every record.
    pub(super) fn need_comparable(&self, mark: usize, left: &Expr, right: &Expr) -> Result<(), ParseError> {
        let (left, right) = (left.kind(), right.kind());
        if left.may_be(right) {
            return Ok(());
        }
        let message =
            format!("{} is never comparable with {}; write both with the same type", left.noun(), right.noun());
        Err(self.cursor.refuse_at(mark, message))
    }

    /// Refuses an expression that is never TRUE or FALSE as a condition.
    pub(super) fn need_condition(&self, mark: usize, expr: &Expr) -> Result<(), ParseError> {
        if expr.kind().may_be(Type::Boolean) {
            return Ok(());
        }
        let message = format!("expected a condition, found {}; compare it with something", expr.kind().noun());
        Err(self.cursor.refuse_at(mark, message))
    }
}
