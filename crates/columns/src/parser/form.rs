//! Functions with a syntax of their own: CASE, EXTRACT, and the parts of times.

use super::expression::{BindingPower, ExpressionParser};
use crate::cursor::ParseError;
use crate::date_part::DatePart;
use crate::lexer::Token;
use crate::suggest::nearest;
use crate::{Comparison, Expr, Function, Literal, Type};

impl ExpressionParser<'_, '_> {
    /// `CASE WHEN condition THEN value … END`, or `CASE value WHEN value
    /// THEN value … END`, which is the same with equalities as conditions.
    pub(super) fn case(&mut self) -> Result<Expr, ParseError> {
        self.cursor.need_word("CASE")?;
        let mark = self.cursor.mark();
        let subject = if self.cursor.is_word("WHEN") { None } else { Some(self.boolean(BindingPower::Nothing)?) };
        let mut arguments = Vec::new();
        while self.cursor.take_word("WHEN") {
            let mark_of_when = self.cursor.mark();
            let when = self.boolean(BindingPower::Nothing)?;
            let condition = match &subject {
                None => {
                    self.need_condition(mark_of_when, &when)?;
                    when.coerced(Type::Boolean)
                }
                Some(subject) => {
                    self.need_comparable(mark_of_when, subject, &when)?;
                    if !arguments.is_empty() {
                        self.count_repeated(mark, subject)?;
                    }
                    subject.clone().compare(Comparison::Equal, when)
                }
            };
            if !self.cursor.take_word("THEN") {
                return Err(self.cursor.unexpected_rest(&["THEN"]));
            }
            arguments.extend([condition, self.boolean(BindingPower::Nothing)?]);
            self.within_list_max(mark_of_when, arguments.len() / 2)?;
        }
        if arguments.is_empty() {
            return Err(self.cursor.unexpected_rest(&["WHEN"]));
        }
        let has_else = self.cursor.take_word("ELSE");
        arguments.push(if has_else { self.boolean(BindingPower::Nothing)? } else { Expr::Literal(Literal::Null) });
        if !self.cursor.take_word("END") {
            return Err(self.cursor.unexpected_rest(if has_else { &["END"] } else { &["WHEN", "ELSE", "END"] }));
        }
        Ok(Expr::Call { function: Function::Case, arguments })
    }

    /// `EXTRACT(part FROM time)`.
    pub(super) fn extract(&mut self) -> Result<Expr, ParseError> {
        self.cursor.advance();
        self.cursor.need_symbol("(")?;
        let name = match self.cursor.peek() {
            Token::Word(name) | Token::Text(name) => name.to_ascii_uppercase(),
            _ => return Err(self.cursor.expected(&DatePart::names(false))),
        };
        if DatePart::named(&name).is_none() {
            return Err(self.cursor.expected(&DatePart::names(false)));
        }
        self.cursor.advance();
        if !self.cursor.take_word("FROM") {
            return Err(self.cursor.unexpected_rest(&["FROM"]));
        }
        let time = self.boolean(BindingPower::Nothing)?;
        self.need_closing(")")?;
        Ok(Expr::Call { function: Function::Extract, arguments: vec![Expr::Literal(Literal::Text(name)), time] })
    }

    /// The first argument of DATE_TRUNC, in capitals.
    pub(super) fn part_to_truncate(&self, mark: usize, argument: &Expr) -> Result<Expr, ParseError> {
        let names = DatePart::names(true);
        let found = match argument {
            Expr::Literal(Literal::Text(name)) => name.to_ascii_uppercase(),
            other => {
                let message =
                    format!("DATE_TRUNC needs a part such as 'hour' in single quotes, not {}", other.kind().noun());
                return Err(self.cursor.refuse_at(mark, message));
            }
        };
        if names.contains(&found.as_str()) {
            return Ok(Expr::Literal(Literal::Text(found)));
        }
        let message = format!("DATE_TRUNC knows no part '{found}'; use one of {}", names.join(", "));
        let mut refusal = self.cursor.refuse_at(mark, message);
        refusal.suggestion = nearest(&found, names).map(str::to_owned);
        Err(refusal)
    }
}
