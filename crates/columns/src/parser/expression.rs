//! Expressions, by binding power: OR, then XOR, then AND, then NOT, then comparisons (which do not chain); what these
//! compare stands in `operand.rs`.

use super::scope::Scope;
use crate::cursor::{Cursor, Refusal};
use crate::lexer::Token;
use crate::{Comparison, Expr, Limits, Literal, Pattern, Type};

/// How tightly the operators to the left of an expression bind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Power {
    Nothing,
    Or,
    Xor,
    And,
    Not,
}

/// Reads an expression of any type.
///
/// # Errors
/// What is wrong with it, and where.
pub fn value(cursor: &mut Cursor<'_>, limits: &Limits, scope: Scope<'_>) -> Result<Expr, Refusal> {
    Reader { cursor, limits, scope, depth: 0, operators: 0 }.boolean(Power::Nothing)
}

/// Reads a condition.
///
/// # Errors
/// What is wrong with it, and where.
pub fn condition(cursor: &mut Cursor<'_>, limits: &Limits, scope: Scope<'_>) -> Result<Expr, Refusal> {
    let mark = cursor.mark();
    let reader = &mut Reader { cursor, limits, scope, depth: 0, operators: 0 };
    let expr = reader.boolean(Power::Nothing)?;
    reader.need_condition(mark, &expr)?;
    Ok(expr.coerced(Type::Boolean))
}

pub(super) struct Reader<'a, 'text> {
    pub(super) cursor: &'a mut Cursor<'text>,
    pub(super) limits: &'a Limits,
    pub(super) scope: Scope<'a>,
    depth: usize,
    /// How many operators join two values so far: each makes the expression one level higher.
    operators: usize,
}

impl Reader<'_, '_> {
    /// An expression up to the first operator that binds no tighter than `left`.
    pub(super) fn boolean(&mut self, left: Power) -> Result<Expr, Refusal> {
        let mut mark = self.cursor.mark();
        let mut expr = self.prefix()?;
        loop {
            let (word, power) = if self.cursor.is_word("OR") {
                ("OR", Power::Or)
            } else if self.cursor.is_word("XOR") {
                ("XOR", Power::Xor)
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
            expr = match power {
                Power::Or => expr.or(right),
                Power::Xor => {
                    self.count_operator(mark)?;
                    expr.xor(right)
                }
                _ => expr.and(right),
            };
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

    /// A value and at most one comparison of it.
    fn test(&mut self) -> Result<Expr, Refusal> {
        let mark = self.cursor.mark();
        let left = self.sum()?;
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

    /// What follows a comparison: a value, or ANY or ALL and a list.
    fn compared(&mut self, mark: usize, left: Expr, comparison: Comparison) -> Result<Expr, Refusal> {
        let every = self.cursor.is_word("ALL");
        if !every && !self.cursor.is_word("ANY") {
            let right = self.sum()?;
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

    /// A list as it is written, in brackets or parentheses, or a value that is one.
    fn any_list(&mut self, left_mark: usize, left: &Expr) -> Result<Expr, Refusal> {
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

    fn is_null(&mut self, left: Expr) -> Result<Expr, Refusal> {
        let negated = self.cursor.take_word("NOT");
        if !self.cursor.take_word("NULL") {
            return Err(self.cursor.expected(if negated { &["NULL"] } else { &["NULL", "NOT NULL"] }));
        }
        Ok(if negated { left.null_test().negated() } else { left.null_test() })
    }

    /// IN, BETWEEN or RLIKE, each also after NOT; or the value alone.
    fn worded(&mut self, mark: usize, left: Expr) -> Result<Expr, Refusal> {
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
            self.rlike(mark, left)?
        } else if negated {
            return Err(self.cursor.unexpected_rest(&["IN", "BETWEEN", "RLIKE"]));
        } else {
            return Ok(left);
        };
        Ok(if negated { expr.negated() } else { expr })
    }

    /// A pattern, or ANY and several.
    fn rlike(&mut self, mark: usize, left: Expr) -> Result<Expr, Refusal> {
        if !self.cursor.take_word("ANY") {
            let pattern = self.pattern()?;
            return Ok(left.rlike(pattern));
        }
        self.need_plain(mark, &left, "RLIKE ANY")?;
        let closing = self.opened_list()?;
        let mut any: Option<Expr> = None;
        for count in 1.. {
            let mark = self.cursor.mark();
            let one = left.clone().rlike(self.pattern()?);
            self.within_list_max(mark, count)?;
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

    /// Takes the bracket that opens a list: the one that closes it.
    fn opened_list(&mut self) -> Result<&'static str, Refusal> {
        if self.cursor.take_symbol("[") {
            Ok("]")
        } else if self.cursor.take_symbol("(") {
            Ok(")")
        } else {
            Err(self.cursor.expected(&["( with a list of values"]))
        }
    }

    pub(super) fn within_list_max(&self, mark: usize, count: usize) -> Result<(), Refusal> {
        if count <= self.limits.list_max {
            return Ok(());
        }
        let message = format!("a list has more than query.limits.list_max = {} values", self.limits.list_max);
        Err(self.cursor.refuse_at(mark, message))
    }

    fn list(&mut self, left_mark: usize, left: &Expr) -> Result<Vec<Expr>, Refusal> {
        let closing = self.opened_list()?;
        let mut list = Vec::new();
        loop {
            let mark = self.cursor.mark();
            list.push(self.sum()?);
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
    fn bounds(&mut self, mark: usize, left: &Expr) -> Result<(Expr, Expr), Refusal> {
        self.need_plain(mark, left, "BETWEEN")?;
        let pair = self.cursor.take_symbol("(");
        let low = self.sum()?;
        let joined = if pair { self.cursor.take_symbol(",") } else { self.cursor.take_word("AND") };
        if !joined {
            return Err(self.cursor.unexpected_rest(&[if pair { "," } else { "AND" }]));
        }
        let high = self.sum()?;
        if pair && !self.cursor.take_symbol(")") {
            return Err(self.cursor.unexpected_rest(&[")"]));
        }
        self.need_comparable(mark, left, &low)?;
        self.need_comparable(mark, left, &high)?;
        Ok((low, high))
    }

    fn pattern(&mut self) -> Result<Pattern, Refusal> {
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

    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Refusal>) -> Result<T, Refusal> {
        if self.depth == self.limits.depth_max {
            let message = format!("nested deeper than query.limits.depth_max = {}; flatten it", self.limits.depth_max);
            return Err(self.cursor.refuse(message));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Counts an operator that makes an expression higher by one.
    pub(super) fn count_operator(&mut self, mark: usize) -> Result<(), Refusal> {
        self.operators += 1;
        if self.operators <= self.limits.operators_max {
            return Ok(());
        }
        let message =
            format!("more than query.limits.operators_max = {} operators; use fewer", self.limits.operators_max);
        Err(self.cursor.refuse_at(mark, message))
    }

    /// Refuses a condition on the left of what writes its left side several times in the plan: nested, that would grow
    /// with every level.
    fn need_plain(&self, mark: usize, left: &Expr, what: &str) -> Result<(), Refusal> {
        let mut conditions = false;
        left.each(&mut |part| {
            conditions |= part.kind() == Type::Boolean && !matches!(part, Expr::Literal(_) | Expr::Hint { .. });
        });
        if !conditions {
            return Ok(());
        }
        let message = format!(
            "{what} needs a field or a value computed of fields on its left, and no condition in it; compare twice, such as x >= a AND x <= b"
        );
        Err(self.cursor.refuse_at(mark, message))
    }

    /// Refuses a comparison of two known types that differ: it would be NULL for every record.
    pub(super) fn need_comparable(&self, mark: usize, left: &Expr, right: &Expr) -> Result<(), Refusal> {
        let (left, right) = (left.kind(), right.kind());
        if left.may_be(right) {
            return Ok(());
        }
        let message =
            format!("{} is never comparable with {}; write both with the same type", left.noun(), right.noun());
        Err(self.cursor.refuse_at(mark, message))
    }

    /// Refuses what can never be TRUE or FALSE where a condition is needed.
    pub(super) fn need_condition(&self, mark: usize, expr: &Expr) -> Result<(), Refusal> {
        if expr.kind().may_be(Type::Boolean) {
            return Ok(());
        }
        let message = format!("expected a condition, found {}; compare it with something", expr.kind().noun());
        Err(self.cursor.refuse_at(mark, message))
    }
}
