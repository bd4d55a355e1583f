//! Commands on strings.

use bytes::{Bytes, BytesMut};

use crate::Value;
use crate::resp::context::{Context, Fault, Outcome, integer_argument, is};
use crate::resp::events::EventClass;
use crate::resp::expiry::{Deadline, TimeUnit};
use crate::resp::unit::REPLIES_MAX_BYTES;

pub(crate) fn get(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let value = context.read(&arguments[1])?;
    context.reply.bulk_or_null(value.as_ref().map(|value| &value.bytes[..]));
    Ok(())
}

/// The condition under which SET writes: NX, XX or IFEQ.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SetCondition {
    Missing,
    Present,
    Equals(Bytes),
}

/// The change that SET and GETEX make to the expiry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpiryChange {
    Keep,
    Remove,
    Set(TimeUnit),
}

/// The options of SET and GETEX, behind key and value.
#[derive(Debug, Default)]
struct Options {
    condition: Option<SetCondition>,
    get: bool,
    expiry: Option<ExpiryChange>,
    /// The number behind a unit of time.
    time: Bytes,
}

impl Options {
    /// An option may be repeated, but not meet one that contradicts it.
    fn parse(arguments: &[Bytes], is_set: bool) -> Result<Self, Fault> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            if is(option, "get") && is_set {
                options.get = true;
            } else if let Some(expiry) = expiry_change(option, is_set) {
                if options.expiry.is_some_and(|other| other != expiry) {
                    return Err(Fault::SYNTAX);
                }
                options.expiry = Some(expiry);
                if matches!(expiry, ExpiryChange::Set(_)) {
                    options.time = rest.next().ok_or(Fault::SYNTAX)?.clone();
                }
            } else {
                let condition = match () {
                    () if !is_set => return Err(Fault::SYNTAX),
                    () if is(option, "nx") => SetCondition::Missing,
                    () if is(option, "xx") => SetCondition::Present,
                    () if is(option, "ifeq") => SetCondition::Equals(rest.next().ok_or(Fault::SYNTAX)?.clone()),
                    () => return Err(Fault::SYNTAX),
                };
                if options.condition.as_ref().is_some_and(|other| *other != condition) {
                    return Err(Fault::SYNTAX);
                }
                options.condition = Some(condition);
            }
        }
        Ok(options)
    }

    fn expires_ms(&self, context: &Context<'_>, command: &'static str) -> Result<Option<i64>, Fault> {
        match self.expiry {
            Some(ExpiryChange::Set(unit)) => Deadline::positive(&self.time, unit, context.now_ms(), command).map(Some),
            _ => Ok(None),
        }
    }
}

fn expiry_change(option: &[u8], is_set: bool) -> Option<ExpiryChange> {
    match TimeUnit::named(option) {
        Some(unit) => Some(ExpiryChange::Set(unit)),
        None if is_set && is(option, "keepttl") => Some(ExpiryChange::Keep),
        None if !is_set && is(option, "persist") => Some(ExpiryChange::Remove),
        None => None,
    }
}

pub(crate) fn set(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, key, bytes, options @ ..] = arguments else { return Err(Fault::arity("set")) };
    if options.is_empty() {
        store(context, key, bytes.clone(), None)?;
        context.reply.ok();
        return Ok(());
    }
    let options = Options::parse(options, true)?;
    let mut expires_ms = options.expires_ms(context, "set")?;
    let needs_old = options.get || matches!(options.condition, Some(SetCondition::Equals(_)));
    let old = if needs_old { context.get(key)? } else { None };
    let entry = context.entry(key);
    let may_write = match &options.condition {
        None => true,
        Some(SetCondition::Missing) => entry.is_none(),
        Some(SetCondition::Present) => entry.is_some(),
        Some(SetCondition::Equals(expected)) => old.as_ref().is_some_and(|old| old.bytes == *expected),
    };
    if may_write {
        if options.expiry == Some(ExpiryChange::Keep) {
            expires_ms = entry.and_then(|entry| entry.expires_ms);
        }
        store(context, key, bytes.clone(), expires_ms)?;
        if matches!(options.expiry, Some(ExpiryChange::Set(_))) {
            context.event(EventClass::Generic, "expire", key);
        }
    }
    match (options.get, may_write) {
        (true, _) => context.reply.bulk_or_null(old.as_ref().map(|old| &old.bytes[..])),
        (false, true) => context.reply.ok(),
        (false, false) => context.reply.null(),
    }
    Ok(())
}

/// Replaces a value, its expiry and its attributes.
fn store(context: &mut Context<'_>, key: &Bytes, bytes: Bytes, expires_ms: Option<i64>) -> Outcome {
    context.put(key, Value { bytes, expires_ms, attributes: None })?;
    context.event(EventClass::String, "set", key);
    Ok(())
}

pub(crate) fn setnx(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let is_missing = context.entry(&arguments[1]).is_none();
    if is_missing {
        store(context, &arguments[1], arguments[2].clone(), None)?;
    }
    context.reply.integer(is_missing.into());
    Ok(())
}

pub(crate) fn setex(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    set_for(context, arguments, TimeUnit::Seconds, "setex")
}

pub(crate) fn psetex(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    set_for(context, arguments, TimeUnit::Milliseconds, "psetex")
}

fn set_for(context: &mut Context<'_>, arguments: &[Bytes], unit: TimeUnit, command: &'static str) -> Outcome {
    let expires_ms = Deadline::positive(&arguments[2], unit, context.now_ms(), command)?;
    store(context, &arguments[1], arguments[3].clone(), Some(expires_ms))?;
    context.event(EventClass::Generic, "expire", &arguments[1]);
    context.reply.ok();
    Ok(())
}

pub(crate) fn getset(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    get(context, arguments)?;
    store(context, &arguments[1], arguments[2].clone(), None)
}

pub(crate) fn getdel(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    get(context, arguments)?;
    if context.delete(&arguments[1]) {
        context.event(EventClass::Generic, "del", &arguments[1]);
    }
    Ok(())
}

pub(crate) fn getex(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let key = &arguments[1];
    let options = Options::parse(&arguments[2..], false)?;
    let Some(value) = context.read(key)? else {
        context.reply.null();
        return Ok(());
    };
    let expires_ms = options.expires_ms(context, "getex")?;
    context.reply.bulk(&value.bytes);
    match expires_ms {
        Some(expires_ms) if expires_ms <= context.now_ms() => {
            context.delete(key);
            context.event(EventClass::Generic, "del", key);
        }
        Some(_) => {
            context.put(key, Value { expires_ms, ..value })?;
            context.event(EventClass::Generic, "expire", key);
        }
        None if options.expiry == Some(ExpiryChange::Remove) && value.expires_ms.is_some() => {
            context.put(key, Value { expires_ms: None, ..value })?;
            context.event(EventClass::Generic, "persist", key);
        }
        None => {}
    }
    Ok(())
}

pub(crate) fn mget(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let start = context.reply.len();
    context.reply.array(arguments.len() - 1);
    for key in &arguments[1..] {
        let value = context.read(key)?;
        context.reply.bulk_or_null(value.as_ref().map(|value| &value.bytes[..]));
        if context.reply.len() - start > REPLIES_MAX_BYTES {
            return Err(Fault::from(format!(
                "ERR the values have more than {REPLIES_MAX_BYTES} bytes together; ask for fewer keys at once"
            )));
        }
    }
    Ok(())
}

pub(crate) fn mset(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    set_all(context, arguments, "mset")?;
    context.reply.ok();
    Ok(())
}

pub(crate) fn msetnx(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    // The count is checked first: an odd one is an error even if a key is there.
    if arguments.len().is_multiple_of(2) {
        return Err(Fault::arity("msetnx"));
    }
    let is_free = !arguments[1..].iter().step_by(2).any(|key| context.entry(key).is_some());
    if is_free {
        set_all(context, arguments, "msetnx")?;
    }
    context.reply.integer(is_free.into());
    Ok(())
}

fn set_all(context: &mut Context<'_>, arguments: &[Bytes], command: &str) -> Outcome {
    if arguments.len().is_multiple_of(2) {
        return Err(Fault::arity(command));
    }
    arguments[1..].chunks_exact(2).try_for_each(|pair| store(context, &pair[0], pair[1].clone(), None))
}

pub(crate) fn append(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, key, suffix] = arguments else { return Err(Fault::arity("append")) };
    let length = context.entry(key).map_or(0, |entry| entry.length) + suffix.len() as u64;
    context.check_length(length)?;
    let value = match context.get(key)? {
        Some(old) => Value { bytes: [&old.bytes[..], suffix].concat().into(), ..old },
        None => Value::of(suffix.clone()),
    };
    context.put(key, value)?;
    context.event(EventClass::String, "append", key);
    context.reply.integer(length.cast_signed());
    Ok(())
}

pub(crate) fn strlen(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let length = context.entry(&arguments[1]).map_or(0, |entry| entry.length);
    context.reply.integer(length.cast_signed());
    Ok(())
}

pub(crate) fn getrange(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let (start, end) = (integer_argument(&arguments[2])?, integer_argument(&arguments[3])?);
    let bytes = context.bytes(&arguments[1])?;
    let range = range(start, end, bytes.len()).map_or(0..0, |(start, end)| start..end + 1);
    context.reply.bulk(&bytes[range]);
    Ok(())
}

/// The first and last place that `start` and `end` mean in something of `length`; negative ones count from its end.
/// `None` if nothing is between them.
pub(crate) fn range(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    // Both may lie before the first place, and are not moved to it then.
    if start < 0 && end < 0 && start > end { None } else { clamped_range(start, end, length) }
}

/// As [`range`], but places before the first one are the first one whatever the other end is.
pub(crate) fn clamped_range(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = i64::try_from(length).ok()?;
    let from_start = |place: i64| if place < 0 { place.saturating_add(length).max(0) } else { place };
    let (start, end) = (from_start(start), from_start(end).min(length - 1));
    if start > end || length == 0 {
        return None;
    }
    Some((usize::try_from(start).ok()?, usize::try_from(end).ok()?))
}

pub(crate) fn setrange(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, key, offset, bytes] = arguments else { return Err(Fault::arity("setrange")) };
    let offset = u64::try_from(integer_argument(offset)?).map_err(|_| Fault::error("ERR offset is out of range"))?;
    let length = context.entry(key).map_or(0, |entry| entry.length);
    if bytes.is_empty() {
        context.reply.integer(length.cast_signed());
        return Ok(());
    }
    let end = offset.saturating_add(bytes.len() as u64);
    context.check_length(end)?;
    let old = context.get(key)?.unwrap_or_default();
    let (from, to) = (offset as usize, end as usize);
    let mut new = grown(&old.bytes, to);
    new[from..to].copy_from_slice(bytes);
    context.reply.count(new.len());
    context.put(key, Value { bytes: new.freeze(), ..old })?;
    context.event(EventClass::String, "setrange", key);
    Ok(())
}

/// A copy of `bytes`, filled with zeros to at least `length`.
pub(crate) fn grown(bytes: &[u8], length: usize) -> BytesMut {
    let mut copy = BytesMut::with_capacity(bytes.len().max(length));
    copy.extend_from_slice(bytes);
    copy.resize(bytes.len().max(length), 0);
    copy
}
