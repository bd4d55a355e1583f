//! Functions of arrays and objects.

use serde_json::Value;

use crate::input::Input;
use crate::number::number;

/// `object|values`: the values of the members, in their order.
pub(crate) fn values(input: Input<'_, '_>) -> Option<Value> {
    match input.budget.own(input.piped)? {
        Value::Object(members) => Some(Value::Array(members.into_iter().map(|(_, value)| value).collect())),
        _ => None,
    }
}

/// `object|keys`: the names of the members, in their order.
pub(crate) fn keys(input: Input<'_, '_>) -> Option<Value> {
    let members = input.piped.as_object()?;
    let mut names = Vec::with_capacity(members.len());
    for name in members.keys() {
        input.budget.bytes(size_of::<Value>() + name.len())?;
        names.push(Value::from(&**name));
    }
    Some(Value::Array(names))
}

/// `array|arrSum`; as with all figures of an array, null if it is empty or has anything but numbers.
pub(crate) fn arr_sum(input: Input<'_, '_>) -> Option<Value> {
    numbers(input).map(|numbers| number(numbers.iter().sum()))
}

/// `array|arrAvg`
pub(crate) fn arr_avg(input: Input<'_, '_>) -> Option<Value> {
    numbers(input).map(|numbers| number(numbers.iter().sum::<f64>() / numbers.len() as f64))
}

/// `array|arrMax`
pub(crate) fn arr_max(input: Input<'_, '_>) -> Option<Value> {
    numbers(input)?.into_iter().reduce(f64::max).map(number)
}

/// `array|arrMin`
pub(crate) fn arr_min(input: Input<'_, '_>) -> Option<Value> {
    numbers(input)?.into_iter().reduce(f64::min).map(number)
}

/// `array|arrMed`: the median; of an even count the mean of the two in the middle.
pub(crate) fn arr_med(input: Input<'_, '_>) -> Option<Value> {
    let mut numbers = numbers(input)?;
    numbers.sort_by(f64::total_cmp);
    let upper = *numbers.get(numbers.len() / 2)?;
    let lower = *numbers.get((numbers.len() - 1) / 2)?;
    Some(number(f64::midpoint(lower, upper)))
}

/// `array|arrSort`: the numbers, the least first; null if there is anything else in the array.
pub(crate) fn arr_sort(input: Input<'_, '_>) -> Option<Value> {
    match input.budget.own(input.piped)? {
        Value::Array(mut items) if items.iter().all(Value::is_number) => {
            items.sort_by(|one, other| one.as_f64().unwrap_or_default().total_cmp(&other.as_f64().unwrap_or_default()));
            Some(Value::Array(items))
        }
        _ => None,
    }
}

/// `array|arrReverse`
pub(crate) fn arr_reverse(input: Input<'_, '_>) -> Option<Value> {
    match input.budget.own(input.piped)? {
        Value::Array(mut items) => {
            items.reverse();
            Some(Value::Array(items))
        }
        _ => None,
    }
}

/// The numbers of an array that has nothing else and is not empty.
fn numbers(input: Input<'_, '_>) -> Option<Vec<f64>> {
    let items = input.piped.as_array()?;
    input.budget.bytes(items.len().saturating_mul(size_of::<f64>()))?;
    let numbers = items.iter().map(Value::as_f64).collect::<Option<Vec<_>>>()?;
    (!numbers.is_empty()).then_some(numbers)
}
