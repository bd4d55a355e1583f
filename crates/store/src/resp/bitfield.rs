//! BITFIELD: integers of any width inside a string.

use bytes::Bytes;

use crate::Value;
use crate::resp::bitmaps::check_offset;
use crate::resp::context::{Context, Fault, Outcome, integer_argument, is};
use crate::resp::events::EventClass;
use crate::resp::number::integer;
use crate::resp::strings::grown;

/// The width of an integer, and whether it has a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IntegerType {
    signed: bool,
    bits: u32,
}

/// The treatment of a number that its field cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Debug, Clone, Copy)]
enum FieldAction {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Debug)]
struct FieldOperation {
    kind: IntegerType,
    offset: u64,
    action: FieldAction,
    overflow: Overflow,
}

impl IntegerType {
    fn parse(argument: &[u8]) -> Result<Self, Fault> {
        let kind = match argument {
            [b'i', bits @ ..] => Some((true, bits, 64)),
            [b'u', bits @ ..] => Some((false, bits, 63)),
            _ => None,
        };
        let kind = kind.and_then(|(signed, bits, most)| {
            let bits = u32::try_from(integer(bits)?).ok().filter(|bits| (1..=most).contains(bits))?;
            Some(Self { signed, bits })
        });
        kind.ok_or(Fault::error(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))
    }

    fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    /// The number that the field gets for `value`; `None` if it does not fit and the operation fails.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let fits = (self.min()..=self.max()).contains(&value);
        let value = match overflow {
            _ if fits => value,
            Overflow::Fail => return None,
            Overflow::Saturate => value.clamp(self.min(), self.max()),
            Overflow::Wrap => self.of_bits(value.cast_unsigned()),
        };
        i64::try_from(value).ok()
    }

    /// The number that the lowest bits of `bits` are.
    fn of_bits(self, bits: u128) -> i128 {
        let unused = 128 - self.bits;
        let high = bits << unused;
        if self.signed { high.cast_signed() >> unused } else { (high >> unused).cast_signed() }
    }

    fn read(self, bytes: &[u8], offset: u64) -> i64 {
        let mut bits = 0u128;
        for place in offset..offset + u64::from(self.bits) {
            let byte = bytes.get((place / 8) as usize).copied().unwrap_or(0);
            bits = bits << 1 | u128::from(byte >> (7 - place % 8) & 1);
        }
        i64::try_from(self.of_bits(bits)).unwrap_or_default()
    }

    fn write(self, bytes: &mut [u8], offset: u64, value: i64) {
        for index in 0..self.bits {
            let place = offset + u64::from(self.bits - 1 - index);
            let (byte, shift) = ((place / 8) as usize, 7 - place % 8);
            bytes[byte] = bytes[byte] & !(1 << shift) | ((value >> index & 1) as u8) << shift;
        }
    }
}

fn parse(context: &Context<'_>, arguments: &[Bytes], read_only: bool) -> Result<Vec<FieldOperation>, Fault> {
    let (mut operations, mut overflow, mut rest) = (Vec::new(), Overflow::Wrap, arguments);
    while let [name, after @ ..] = rest {
        if is(name, "overflow") {
            let [how, after @ ..] = after else { return Err(Fault::SYNTAX) };
            overflow = match how.to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err(Fault::error("ERR Invalid OVERFLOW type specified")),
            };
            rest = after;
            continue;
        }
        let (is_set, is_add) = (is(name, "set"), is(name, "incrby"));
        let count = if is_set || is_add { 3 } else { 2 };
        if !(is_set || is_add || is(name, "get")) || after.len() < count {
            return Err(Fault::SYNTAX);
        }
        let kind = IntegerType::parse(&after[0])?;
        let offset = offset(context, &after[1], kind)?;
        let action = match (is_set, is_add) {
            (true, _) => FieldAction::Set(integer_argument(&after[2])?),
            (_, true) => FieldAction::Add(integer_argument(&after[2])?),
            _ => FieldAction::Get,
        };
        operations.push(FieldOperation { kind, offset, action, overflow });
        rest = &after[count..];
    }
    if read_only && operations.iter().any(|operation| !matches!(operation.action, FieldAction::Get)) {
        return Err(Fault::error("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    Ok(operations)
}

/// An offset in bits, or behind `#` in fields of this kind. The whole field must lie inside the longest value.
fn offset(context: &Context<'_>, argument: &[u8], kind: IntegerType) -> Result<u64, Fault> {
    const BAD: Fault = Fault::error("ERR bit offset is not an integer or out of range");
    let (number, unit) = match argument {
        [b'#', number @ ..] => (number, u64::from(kind.bits)),
        number => (number, 1),
    };
    let number = integer(number).and_then(|number| u64::try_from(number).ok()).ok_or(BAD)?;
    let offset = number.checked_mul(unit).ok_or(BAD)?;
    check_offset(context, offset.checked_add(u64::from(kind.bits) - 1).ok_or(BAD)?)?;
    Ok(offset)
}

pub(crate) fn bitfield(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let operations = parse(context, &arguments[2..], false)?;
    run(context, &arguments[1], &operations)
}

pub(crate) fn bitfield_ro(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let operations = parse(context, &arguments[2..], true)?;
    run(context, &arguments[1], &operations)
}

fn run(context: &mut Context<'_>, key: &Bytes, operations: &[FieldOperation]) -> Outcome {
    let writes = operations.iter().filter(|operation| !matches!(operation.action, FieldAction::Get));
    let end = writes.map(|operation| (operation.offset + u64::from(operation.kind.bits)).div_ceil(8)).max();
    let old = if end.is_some() { context.get(key)? } else { context.read(key)? };
    let Some(end) = end else {
        let bytes = old.map(|old| old.bytes).unwrap_or_default();
        context.reply.array(operations.len());
        for operation in operations {
            context.reply.integer(operation.kind.read(&bytes, operation.offset));
        }
        return Ok(());
    };
    let old = old.unwrap_or_default();
    let (mut bytes, mut has_changed) = (grown(&old.bytes, end as usize), false);
    // The value grows to the end of the fields to be written, even if none of them is.
    let has_grown = bytes.len() > old.bytes.len();
    context.reply.array(operations.len());
    for FieldOperation { kind, offset, action, overflow } in operations {
        let present = kind.read(&bytes, *offset);
        let (new, answer) = match action {
            FieldAction::Get => (None, Some(present)),
            FieldAction::Set(value) => {
                let new = kind.fit(kind.of_argument(*value), *overflow);
                (new, new.map(|_| present))
            }
            FieldAction::Add(increment) => {
                let new = kind.fit(i128::from(present) + i128::from(*increment), *overflow);
                (new, new)
            }
        };
        if let Some(new) = new {
            kind.write(&mut bytes, *offset, new);
            has_changed |= new != present || has_grown;
        }
        match answer {
            Some(number) => context.reply.integer(number),
            None => context.reply.null(),
        }
    }
    if has_changed || has_grown {
        context.put(key, Value { bytes: bytes.freeze(), ..old })?;
    }
    if has_changed {
        context.event(EventClass::String, "setbit", key);
    }
    Ok(())
}

impl IntegerType {
    /// The number that SET is given. Redis takes a negative one for an unsigned field as its 64 bits.
    fn of_argument(self, value: i64) -> i128 {
        if self.signed { value.into() } else { value.cast_unsigned().into() }
    }
}
