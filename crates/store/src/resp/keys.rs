//! Commands on keys, whatever their value is.

use bytes::Bytes;

use crate::Value;
use crate::resp::context::{Context, Fault, Outcome, integer_argument, is};
use crate::resp::events::EventClass;
use crate::resp::number::integer;

/// Longest value that Redis keeps in one piece with its head.
const EMBEDDED_MAX_BYTES: usize = 44;
/// Longest text of an integer that Redis keeps as a number.
const INTEGER_MAX_BYTES: usize = 20;
/// Memory of a key's entry in the index, beside key and value.
const ENTRY_BYTES: u64 = 64;

pub(crate) fn del(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let mut deleted = 0;
    for key in &arguments[1..] {
        if context.delete(key) {
            context.event(EventClass::Generic, "del", key);
            deleted += 1;
        }
    }
    context.reply.integer(deleted);
    Ok(())
}

pub(crate) fn delifeq(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, key, expected] = arguments else { return Err(Fault::arity("delifeq")) };
    let is_equal = context.get(key)?.is_some_and(|value| value.bytes == *expected);
    if is_equal {
        context.delete(key);
        context.event(EventClass::Generic, "del", key);
    }
    context.reply.integer(is_equal.into());
    Ok(())
}

/// EXISTS and TOUCH: a key that is named twice counts twice.
pub(crate) fn exists(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let found = arguments[1..].iter().filter(|key| context.entry(key).is_some()).count();
    context.reply.count(found);
    Ok(())
}

pub(crate) fn type_of(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let name = if context.entry(&arguments[1]).is_some() { "string" } else { "none" };
    context.reply.simple(name);
    Ok(())
}

pub(crate) fn rename(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, from, to] = arguments else { return Err(Fault::arity("rename")) };
    if context.entry(from).is_none() {
        return Err(Fault::NO_SUCH_KEY);
    }
    move_value(context, from, to)?;
    context.reply.ok();
    Ok(())
}

pub(crate) fn renamenx(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, from, to] = arguments else { return Err(Fault::arity("renamenx")) };
    if context.entry(from).is_none() {
        return Err(Fault::NO_SUCH_KEY);
    }
    let is_free = context.entry(to).is_none();
    if is_free {
        move_value(context, from, to)?;
    }
    context.reply.integer(is_free.into());
    Ok(())
}

fn move_value(context: &mut Context<'_>, from: &Bytes, to: &Bytes) -> Outcome {
    if from == to {
        return Ok(());
    }
    if let Some(value) = context.get(from)? {
        context.put(to, value)?;
        context.delete(from);
        context.event(EventClass::Generic, "rename_from", from);
        context.event(EventClass::Generic, "rename_to", to);
    }
    Ok(())
}

/// The options of COPY, parsed.
pub(crate) struct CopyOptions {
    pub(crate) replace: bool,
    /// The database of the copy.
    pub(crate) database: u32,
}

impl CopyOptions {
    /// Parses what follows the keys, for a client whose database is `own` out of `databases`.
    pub(crate) fn parse(options: &[Bytes], own: u32, databases: u32) -> Result<Self, Fault> {
        let (mut parsed, mut rest) = (Self { replace: false, database: own }, options.iter());
        while let Some(option) = rest.next() {
            if is(option, "replace") {
                parsed.replace = true;
            } else if is(option, "db") {
                let number = integer_argument(rest.next().ok_or(Fault::SYNTAX)?)?;
                let database = u32::try_from(number).ok().filter(|database| *database < databases);
                parsed.database = database.ok_or(Fault::error("ERR DB index is out of range"))?;
            } else {
                return Err(Fault::SYNTAX);
            }
        }
        Ok(parsed)
    }
}

/// COPY inside the database of the client; the session carries out one to another database.
pub(crate) fn copy(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let [_, from, to, options @ ..] = arguments else { return Err(Fault::arity("copy")) };
    let CopyOptions { replace, .. } = CopyOptions::parse(options, context.database, context.databases)?;
    if from == to {
        return Err(Fault::error("ERR source and destination objects are the same"));
    }
    let may_copy = context.entry(from).is_some() && (replace || context.entry(to).is_none());
    if may_copy && let Some(Value { bytes, expires_ms, attributes }) = context.get(from)? {
        context.put(to, Value { bytes, expires_ms, attributes })?;
        context.event(EventClass::Generic, "copy_to", to);
    }
    context.reply.integer(may_copy.into());
    Ok(())
}

pub(crate) fn object_encoding(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    match context.get(&arguments[2])? {
        None => context.reply.null(),
        Some(value) => context.reply.bulk(encoding(&value.bytes).as_bytes()),
    }
    Ok(())
}

/// The encoding in which Redis would keep a value that was set as a whole.
fn encoding(bytes: &[u8]) -> &'static str {
    match bytes.len() {
        ..=INTEGER_MAX_BYTES if integer(bytes).is_some() => "int",
        ..=EMBEDDED_MAX_BYTES => "embstr",
        _ => "raw",
    }
}

/// References to each of the numbers that Redis keeps once for all keys.
const SHARED_NUMBER_REFERENCES: i64 = 2_147_483_647;

pub(crate) fn object_refcount(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    match context.get(&arguments[2])? {
        None => context.reply.null(),
        Some(value) if integer(&value.bytes).is_some_and(|number| (0..10_000).contains(&number)) => {
            context.reply.integer(SHARED_NUMBER_REFERENCES);
        }
        Some(_) => context.reply.integer(1),
    }
    Ok(())
}

pub(crate) fn object_freq(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let key = &arguments[2];
    if context.entry(key).is_none() {
        context.reply.null();
        return Ok(());
    }
    let frequency = context.transaction.frequency(key).ok_or(Fault::error(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    ))?;
    context.reply.integer(frequency.into());
    Ok(())
}

pub(crate) fn object_idletime(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let key = &arguments[2];
    if context.entry(key).is_none() {
        context.reply.null();
        return Ok(());
    }
    let counts_accesses = context.transaction.frequency(key).is_some();
    let idle_ms = context.transaction.idle_ms(key).ok_or(Fault::error(if counts_accesses {
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at \
         runtime LRU and LFU data will take some time to adjust."
    } else {
        "ERR idle time not tracked: a durable bucket does not keep the time of the last access"
    }))?;
    context.reply.integer((idle_ms / 1_000).cast_signed());
    Ok(())
}

pub(crate) fn memory_usage(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    match &arguments[3..] {
        [] => {}
        [samples, count] if is(samples, "samples") => {
            if integer_argument(count)? < 0 {
                return Err(Fault::SYNTAX);
            }
        }
        _ => return Err(Fault::SYNTAX),
    }
    let key = &arguments[2];
    match context.entry(key) {
        None => context.reply.null(),
        Some(entry) => context.reply.integer((key.len() as u64 + entry.length + ENTRY_BYTES).cast_signed()),
    }
    Ok(())
}
