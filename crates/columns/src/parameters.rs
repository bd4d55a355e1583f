//! The parameters of a text: `:name` stands for a value of the table, which is bound and never pasted as text.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::expr::{Expr, Literal};

/// The values of parameters, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters(BTreeMap<String, Expr>);

/// A parsed text with the names of the parameters that it uses.
#[derive(Debug, Clone, PartialEq)]
pub struct Parametric<T> {
    /// The parsed expression or list, with the parameters' values in it.
    pub parsed: T,
    /// The names of the parameters in the text, each once, in alphabetical order.
    pub parameters: Vec<String>,
}

/// A value that no parameter can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfitParameter {
    /// The name of the parameter.
    pub name: String,
    /// The noun for its value.
    pub found: &'static str,
}

impl std::fmt::Display for UnfitParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, found } = self;
        write!(
            f,
            "parameter \"{name}\" is {found}; a parameter is null, true, false, a number, a text or a list of these"
        )
    }
}

impl std::error::Error for UnfitParameter {}

impl Parameters {
    /// Sets the value of `:name`: null, a boolean, a number, a text, or a list of these.
    ///
    /// # Errors
    /// [`UnfitParameter`] for an object and for a list that holds an object or a list.
    pub fn set(&mut self, name: &str, value: &Json) -> Result<(), UnfitParameter> {
        let unfit = |found| UnfitParameter { name: name.to_owned(), found };
        let bound = match value {
            Json::Array(list) => {
                let nested = || unfit("a list with a list or an object in it");
                Expr::List(list.iter().map(|part| literal(part).ok_or_else(nested)).collect::<Result<_, _>>()?)
            }
            scalar => literal(scalar).ok_or_else(|| unfit("an object"))?,
        };
        self.0.insert(name.to_owned(), bound);
        Ok(())
    }

    /// The names of all parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Expr> {
        self.0.get(name)
    }
}

/// The literal of a JSON value; `None` for an object or an array.
fn literal(value: &Json) -> Option<Expr> {
    Some(Expr::Literal(match value {
        Json::Null => Literal::Null,
        Json::Bool(value) => Literal::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Literal::Integer(integer),
            (None, double) => Literal::Double(double?),
        },
        Json::String(text) => Literal::Text(text.clone()),
        Json::Array(_) | Json::Object(_) => return None,
    }))
}
