//! Strings that are numbers: INCR and its kin.

use bytes::Bytes;

use crate::Value;
use crate::resp::context::{Context, Fault, Outcome, integer_argument};
use crate::resp::events::EventClass;
use crate::resp::long_double::LongDouble;

const NOT_A_FLOAT: Fault = Fault::error("ERR value is not a valid float");

pub(crate) fn incr(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    add(context, &arguments[1], 1)
}

pub(crate) fn decr(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    add(context, &arguments[1], -1)
}

pub(crate) fn incrby(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    add(context, &arguments[1], integer_argument(&arguments[2])?)
}

pub(crate) fn decrby(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let decrement = integer_argument(&arguments[2])?;
    add(context, &arguments[1], decrement.checked_neg().ok_or(Fault::error("ERR decrement would overflow"))?)
}

fn add(context: &mut Context<'_>, key: &Bytes, increment: i64) -> Outcome {
    let old = context.get(key)?;
    let number = old.as_ref().map_or(Ok(0), |old| integer_argument(&old.bytes))?;
    let sum = number.checked_add(increment).ok_or(Fault::error("ERR increment or decrement would overflow"))?;
    let bytes = Bytes::copy_from_slice(itoa::Buffer::new().format(sum).as_bytes());
    context.put(key, Value { bytes, ..old.unwrap_or_default() })?;
    context.event(EventClass::String, "incrby", key);
    context.reply.integer(sum);
    Ok(())
}

pub(crate) fn incrbyfloat(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let key = &arguments[1];
    let old = context.get(key)?;
    let number = old.as_ref().map_or(Ok(Some(LongDouble::ZERO)), |old| float(&old.bytes))?;
    let increment = float(&arguments[2])?;
    let sum = number.zip(increment).and_then(|(number, increment)| number.add(increment));
    let text = sum.ok_or(Fault::error("ERR increment would produce NaN or Infinity"))?.text();
    context.reply.bulk(text.as_bytes());
    context.put(key, Value { bytes: text.into(), ..old.unwrap_or_default() })?;
    context.event(EventClass::String, "incrbyfloat", key);
    Ok(())
}

/// A number; `None` for infinity, which Redis reads as one and then refuses the sum.
fn float(text: &[u8]) -> Result<Option<LongDouble>, Fault> {
    let number = LongDouble::parse(text);
    let unsigned = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let is_infinite = unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity");
    if number.is_none() && !is_infinite { Err(NOT_A_FLOAT) } else { Ok(number) }
}
