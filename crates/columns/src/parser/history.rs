//! Calls of functions that look back at the earlier records of a key.

use super::expression::{BindingPower, ExpressionParser};
use crate::cursor::ParseError;
use crate::lexer::Token;
use crate::{Expr, HistoryCall, HistoryFunction, Literal, Type};

/// The most records that LAG goes back.
const BACK_MAX: u8 = 100;

impl ExpressionParser<'_, '_> {
    /// `LAG(value[, n])`, `CHANGED(value)` and the like.
    pub(super) fn look_back(&mut self, mark: usize, function: HistoryFunction) -> Result<Expr, ParseError> {
        let name = function.as_str();
        if !self.scope.looks_back {
            let message =
                format!("{name} looks back at the records of a key; it stands in the select list of a map with key_by");
            return Err(self.cursor.refuse_at(mark, message));
        }
        self.cursor.advance();
        self.cursor.need_symbol("(")?;
        let mark = self.cursor.mark();
        // Its argument is of one record.
        self.scope.looks_back = false;
        let value = self.boolean(BindingPower::Nothing)?;
        self.scope.looks_back = true;
        if function.is_of_numbers() && !value.kind().may_be(Type::Number) {
            let message = format!("{name} is of numbers; this is {}", value.kind().noun());
            return Err(self.cursor.refuse_at(mark, message));
        }
        let has_back = function == HistoryFunction::Lag && self.cursor.take_symbol(",");
        let back = if has_back { self.records_back()? } else { 1 };
        self.need_closing(")")?;
        Ok(Expr::History(Box::new(HistoryCall { function, value, back })))
    }

    fn records_back(&mut self) -> Result<u8, ParseError> {
        let mark = self.cursor.mark();
        let written = match self.cursor.peek() {
            Token::Number(_) => Some(self.number()?),
            _ => None,
        };
        let back = match written {
            Some(Expr::Literal(Literal::Integer(number))) => u8::try_from(number).ok(),
            _ => None,
        };
        back.filter(|back| (1..=BACK_MAX).contains(back)).ok_or_else(|| {
            let message = format!("LAG goes back a number of records from 1 to {BACK_MAX}, as in LAG(a, 2)");
            self.cursor.refuse_at(mark, message)
        })
    }
}
