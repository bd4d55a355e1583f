//! Strings as arrays of bits: the first bit is the highest of the first byte.

use bytes::Bytes;

use crate::Value;
use crate::resp::context::{Context, Fault, Outcome, integer_argument, is};
use crate::resp::events::EventClass;
use crate::resp::number::integer;
use crate::resp::strings::{clamped_range, grown};

const BAD_OFFSET: Fault = Fault::error("ERR bit offset is not an integer or out of range");

/// The offset of a bit inside the longest value that there may be.
pub(crate) fn bit_offset(context: &Context<'_>, argument: &[u8]) -> Result<u64, Fault> {
    let offset = integer(argument).and_then(|offset| u64::try_from(offset).ok()).ok_or(BAD_OFFSET)?;
    check_offset(context, offset)
}

pub(crate) fn check_offset(context: &Context<'_>, offset: u64) -> Result<u64, Fault> {
    if offset / 8 >= context.value_max_bytes { Err(BAD_OFFSET) } else { Ok(offset) }
}

pub(crate) fn setbit(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, key, offset, bit] = arguments else { return Err(Fault::arity("setbit")) };
    let offset = bit_offset(context, offset)?;
    let bit = match &bit[..] {
        b"0" => 0u8,
        b"1" => 1,
        _ => return Err(Fault::error("ERR bit is not an integer or out of range")),
    };
    let old = context.get(key)?.unwrap_or_default();
    let (byte, shift) = ((offset / 8) as usize, 7 - offset % 8);
    let mut new = grown(&old.bytes, byte + 1);
    let before = new[byte] >> shift & 1;
    // A bit that is so already is not worth a record, unless the value grows.
    if before != bit || new.len() > old.bytes.len() {
        new[byte] = new[byte] & !(1 << shift) | bit << shift;
        context.put(key, Value { bytes: new.freeze(), ..old })?;
        context.event(EventClass::String, "setbit", key);
    }
    context.reply.integer(before.into());
    Ok(())
}

pub(crate) fn getbit(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let offset = bit_offset(context, &arguments[2])?;
    let bytes = context.bytes(&arguments[1])?;
    let bit = bytes.get((offset / 8) as usize).map_or(0, |byte| byte >> (7 - offset % 8) & 1);
    context.reply.integer(bit.into());
    Ok(())
}

/// Bits from the first to the last place, in a string; `None` if there are none.
fn bit_range(bytes: &[u8], start: i64, end: i64, unit: Option<&Bytes>) -> Result<Option<(usize, usize)>, Fault> {
    Ok(match unit {
        Some(unit) if is(unit, "bit") => clamped_range(start, end, bytes.len() * 8),
        Some(unit) if !is(unit, "byte") => return Err(Fault::SYNTAX),
        _ => clamped_range(start, end, bytes.len()).map(|(first, last)| (first * 8, last * 8 + 7)),
    })
}

pub(crate) fn bitcount(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let Some(value) = context.read(&arguments[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let bits = match &arguments[2..] {
        [] => clamped_range(0, -1, value.bytes.len() * 8),
        [start, end, unit @ ..] if unit.len() <= 1 => {
            let (start, end) = (integer_argument(start)?, integer_argument(end)?);
            // As in Redis, an empty range is seen before the unit is looked at.
            if start < 0 && end < 0 && start > end { None } else { bit_range(&value.bytes, start, end, unit.first())? }
        }
        _ => return Err(Fault::SYNTAX),
    };
    context.reply.count(bits.map_or(0, |(first, last)| ones(&value.bytes, first, last)));
    Ok(())
}

/// Bits that are set, from `first` to `last`.
fn ones(bytes: &[u8], first: usize, last: usize) -> usize {
    let whole: usize = bytes[first / 8..=last / 8].iter().map(|byte| byte.count_ones() as usize).sum();
    let before = bytes[first / 8] & !(0xff >> (first % 8));
    let after = bytes[last / 8] & (0x7f >> (last % 8));
    whole - before.count_ones() as usize - after.count_ones() as usize
}

pub(crate) fn bitpos(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let bit = match integer_argument(&arguments[2])? {
        0 => 0u8,
        1 => 1,
        _ => return Err(Fault::error("ERR The bit argument must be 1 or 0.")),
    };
    let Some(value) = context.read(&arguments[1])? else {
        context.reply.integer(if bit == 1 { -1 } else { 0 });
        return Ok(());
    };
    let bytes = &value.bytes;
    let (bits, has_end) = match &arguments[3..] {
        [] => (bit_range(bytes, 0, -1, None)?, false),
        [start] => (bit_range(bytes, integer_argument(start)?, -1, None)?, false),
        [start, end, unit @ ..] if unit.len() <= 1 => {
            let start = integer_argument(start)?;
            // As in Redis, the unit is looked at before the end.
            if !unit.iter().all(|unit| is(unit, "bit") || is(unit, "byte")) {
                return Err(Fault::SYNTAX);
            }
            (bit_range(bytes, start, integer_argument(end)?, unit.first())?, true)
        }
        _ => return Err(Fault::SYNTAX),
    };
    let place = match bits {
        None => None,
        Some((first, last)) => match first_bit(bytes, bit, first, last) {
            // Without an end, a string of ones is followed by zeros.
            None if bit == 0 && !has_end => Some(bytes.len() * 8),
            place => place,
        },
    };
    context.reply.integer(place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1));
    Ok(())
}

/// The first place of `bit`, from `first` to `last`.
fn first_bit(bytes: &[u8], bit: u8, first: usize, last: usize) -> Option<usize> {
    let flip = if bit == 1 { 0 } else { 0xff };
    let (from, to) = (first / 8, last / 8);
    for (index, byte) in bytes[from..=to].iter().enumerate() {
        let mut found = byte ^ flip;
        if index == 0 {
            found &= 0xff >> (first % 8);
        }
        if from + index == to {
            found &= !(0x7f >> (last % 8));
        }
        if found != 0 {
            return Some((from + index) * 8 + found.leading_zeros() as usize);
        }
    }
    None
}

pub(crate) fn bitop(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, operation, destination, sources @ ..] = arguments else { return Err(Fault::arity("bitop")) };
    let combine: fn(u8, u8) -> u8 = match operation.to_ascii_lowercase().as_slice() {
        b"and" => |a, b| a & b,
        b"or" => |a, b| a | b,
        b"xor" => |a, b| a ^ b,
        b"not" if sources.len() != 1 => {
            return Err(Fault::error("ERR BITOP NOT must be called with a single source key."));
        }
        b"not" => |a, _| !a,
        _ => return Err(Fault::SYNTAX),
    };
    let values = sources.iter().map(|key| context.bytes(key)).collect::<Result<Vec<_>, _>>()?;
    let length = values.iter().map(Bytes::len).max().unwrap_or(0);
    let mut result = grown(&values[0], length);
    if values.len() == 1 {
        result.iter_mut().for_each(|byte| *byte = combine(*byte, if is(operation, "and") { 0xff } else { 0 }));
    }
    for value in &values[1..] {
        let (both, beyond) = result.split_at_mut(value.len());
        both.iter_mut().zip(&value[..]).for_each(|(byte, other)| *byte = combine(*byte, *other));
        beyond.iter_mut().for_each(|byte| *byte = combine(*byte, 0));
    }
    if length > 0 {
        context.put(destination, Value::of(result.freeze()))?;
        context.event(EventClass::String, "set", destination);
    } else if context.delete(destination) {
        context.event(EventClass::Generic, "del", destination);
    }
    context.reply.count(length);
    Ok(())
}
