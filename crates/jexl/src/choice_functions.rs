//! Functions that choose one of several values.

use std::borrow::Cow;

use serde_json::Value;

use crate::budget::Budget;
use crate::input::{Input, argument};

/// `text|mapper(texts, choices)`: the choice at the place of the text among `texts`. Null if it is not there, if one of
/// `texts` is no text, or if there are not as many choices.
pub(crate) fn mapper(input: Input<'_, '_>) -> Option<Value> {
    let (texts, choices) = lists(&input.arguments)?;
    let text = input.piped.as_str()?;
    let texts = texts.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
    input.budget.bytes(texts.iter().map(|known| known.len() + 1).sum())?;
    let place = texts.iter().position(|known| *known == text)?;
    choose(choices, texts.len(), place, input.budget)
}

/// `number|nMapper(numbers, choices)`: as [`mapper`], with numbers, which are rounded to whole ones.
pub(crate) fn n_mapper(input: Input<'_, '_>) -> Option<Value> {
    let (numbers, choices) = lists(&input.arguments)?;
    let number = input.number()?.round();
    input.budget.bytes(numbers.len())?;
    let numbers = numbers.iter().map(Value::as_f64).collect::<Option<Vec<_>>>()?;
    let place = numbers.iter().position(|known| known.round() == number)?;
    choose(choices, numbers.len(), place, input.budget)
}

/// `number|thMapper(thresholds, choices)`: the choice at the place of the first threshold above the number, and the
/// last choice if none is. Null unless there is one choice more than thresholds, which are all numbers.
pub(crate) fn th_mapper(input: Input<'_, '_>) -> Option<Value> {
    let (thresholds, choices) = lists(&input.arguments)?;
    let number = input.number()?;
    input.budget.bytes(thresholds.len())?;
    let thresholds = thresholds.iter().map(Value::as_f64).collect::<Option<Vec<_>>>()?;
    let place = thresholds.iter().position(|threshold| number < *threshold).unwrap_or(thresholds.len());
    choose(choices, thresholds.len() + 1, place, input.budget)
}

/// The two arguments.
fn lists<'v>(arguments: &'v [Cow<'_, Value>]) -> Option<(&'v Vec<Value>, &'v Vec<Value>)> {
    Some((argument(arguments, 0)?.as_array()?, argument(arguments, 1)?.as_array()?))
}

/// The choice at a place, if there are as many as there have to be.
fn choose(choices: &[Value], expected: usize, place: usize, budget: &mut Budget) -> Option<Value> {
    let choice = choices.get(place).filter(|_| choices.len() == expected)?;
    budget.copy(choice)?;
    Some(choice.clone())
}
