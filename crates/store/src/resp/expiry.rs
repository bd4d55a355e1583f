//! Commands that set, read and remove the expiry of keys.

use bytes::Bytes;

use crate::Value;
use crate::resp::context::{Context, Fault, Outcome, integer_argument, shown};
use crate::resp::events::EventClass;

/// The unit of a time of expiry: from now on, or since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl TimeUnit {
    /// The unit of an option of SET and GETEX.
    pub(crate) fn named(option: &[u8]) -> Option<Self> {
        match option.to_ascii_lowercase().as_slice() {
            b"ex" => Some(Self::Seconds),
            b"px" => Some(Self::Milliseconds),
            b"exat" => Some(Self::UnixSeconds),
            b"pxat" => Some(Self::UnixMilliseconds),
            _ => None,
        }
    }
}

/// A time of expiry that a client gives.
pub(crate) struct Deadline;

impl Deadline {
    /// Milliseconds since 1970-01-01T00:00:00Z; the time may have passed.
    pub(crate) fn any(number: &[u8], unit: TimeUnit, now_ms: i64, command: &str) -> Result<i64, Fault> {
        let number = integer_argument(number)?;
        let deadline = match unit {
            TimeUnit::Seconds => number.checked_mul(1_000).and_then(|ms| now_ms.checked_add(ms)),
            TimeUnit::Milliseconds => now_ms.checked_add(number),
            TimeUnit::UnixSeconds => number.checked_mul(1_000),
            TimeUnit::UnixMilliseconds => Some(number),
        };
        deadline.ok_or_else(|| invalid(command))
    }

    /// As [`Deadline::any`], for a number that must be positive.
    pub(crate) fn positive(number: &[u8], unit: TimeUnit, now_ms: i64, command: &str) -> Result<i64, Fault> {
        if integer_argument(number)? <= 0 {
            return Err(invalid(command));
        }
        Self::any(number, unit, now_ms, command)
    }
}

fn invalid(command: &str) -> Fault {
    Fault::from(format!("ERR invalid expire time in '{command}' command"))
}

pub(crate) fn expire(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    expire_by(context, arguments, TimeUnit::Seconds, "expire")
}

pub(crate) fn pexpire(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    expire_by(context, arguments, TimeUnit::Milliseconds, "pexpire")
}

pub(crate) fn expireat(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    expire_by(context, arguments, TimeUnit::UnixSeconds, "expireat")
}

pub(crate) fn pexpireat(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    expire_by(context, arguments, TimeUnit::UnixMilliseconds, "pexpireat")
}

/// When an expiry may be set.
#[derive(Debug, Default)]
struct ExpiryConditions {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_earlier: bool,
}

impl ExpiryConditions {
    fn parse(arguments: &[Bytes]) -> Result<Self, Fault> {
        let mut conditions = Self::default();
        for option in arguments {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => conditions.if_none = true,
                b"xx" => conditions.if_any = true,
                b"gt" => conditions.if_later = true,
                b"lt" => conditions.if_earlier = true,
                _ => return Err(Fault::from(format!("ERR Unsupported option {}", shown(option)))),
            }
        }
        let Self { if_none, if_any, if_later, if_earlier } = conditions;
        if if_none && (if_any || if_later || if_earlier) {
            return Err(Fault::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if if_later && if_earlier {
            return Err(Fault::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// No expiry counts as the latest one.
    fn allow(&self, present: Option<i64>, wanted: i64) -> bool {
        !(self.if_none && present.is_some()
            || self.if_any && present.is_none()
            || self.if_later && present.is_none_or(|present| wanted <= present)
            || self.if_earlier && present.is_some_and(|present| wanted >= present))
    }
}

fn expire_by(context: &mut Context<'_>, arguments: &[Bytes], unit: TimeUnit, command: &str) -> Outcome {
    let [_, key, number, options @ ..] = arguments else { return Err(Fault::arity(command)) };
    let conditions = ExpiryConditions::parse(options)?;
    let deadline = Deadline::any(number, unit, context.now_ms(), command)?;
    let allowed = context.entry(key).is_some_and(|entry| conditions.allow(entry.expires_ms, deadline));
    if allowed {
        if deadline <= context.now_ms() {
            context.delete(key);
            context.event(EventClass::Generic, "del", key);
        } else if let Some(value) = context.get(key)? {
            context.put(key, Value { expires_ms: Some(deadline), ..value })?;
            context.event(EventClass::Generic, "expire", key);
        }
    }
    context.reply.integer(allowed.into());
    Ok(())
}

pub(crate) fn ttl(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let now_ms = context.now_ms();
    reply_time(context, &arguments[1], |expires_ms| (remaining(expires_ms, now_ms) + 500) / 1_000)
}

pub(crate) fn pttl(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let now_ms = context.now_ms();
    reply_time(context, &arguments[1], |expires_ms| remaining(expires_ms, now_ms))
}

pub(crate) fn expiretime(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    reply_time(context, &arguments[1], |expires_ms| expires_ms.saturating_add(500) / 1_000)
}

pub(crate) fn pexpiretime(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    reply_time(context, &arguments[1], |expires_ms| expires_ms)
}

fn remaining(expires_ms: i64, now_ms: i64) -> i64 {
    expires_ms.saturating_sub(now_ms).clamp(0, i64::MAX - 500)
}

fn reply_time(context: &mut Context<'_>, key: &[u8], show: impl FnOnce(i64) -> i64) -> Outcome {
    let number = match context.entry(key) {
        None => -2,
        Some(entry) => entry.expires_ms.map_or(-1, show),
    };
    context.reply.integer(number);
    Ok(())
}

pub(crate) fn persist(context: &mut Context<'_>, arguments: &[Bytes]) -> Outcome {
    let key = &arguments[1];
    let expires = context.entry(key).is_some_and(|entry| entry.expires_ms.is_some());
    if expires && let Some(value) = context.get(key)? {
        context.put(key, Value { expires_ms: None, ..value })?;
        context.event(EventClass::Generic, "persist", key);
    }
    context.reply.integer(expires.into());
    Ok(())
}
