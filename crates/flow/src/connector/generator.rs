//! The source `generator`: records made from a template.

use std::sync::Arc;
use std::time::Duration;

use millstream_types::{MonotonicClock, WallClock};
use serde_json::{Map, Value};

use super::{ConnectorContext, Polled, Source, Started};
use crate::Error;
use crate::batch::SourceBatch;
use crate::delivery::SourcePosition;
use crate::document::{Key, KeyType, NodeType, Role};
use crate::object;

pub(super) const SOURCE: NodeType = NodeType {
    name: "generator",
    role: Role::Source,
    summary: "Makes records from a template, at a rate or as fast as the job takes them.",
    keys: &[
        Key {
            name: "record",
            value: KeyType::Checked(check_record),
            is_required: true,
            default: None,
            doc: "The template: members are constants, `{random: u32}`, `{sequence: true}` (0, 1, 2, …) or `{bytes: 100, random: false}` (a text of that many characters).",
        },
        Key {
            name: "rate",
            value: KeyType::Checked(check_rate),
            is_required: false,
            default: Some("unlimited"),
            doc: "Records a second, from 1 to 10,000,000, shared by all instances; or `unlimited`.",
        },
        Key {
            name: "count",
            value: KeyType::Whole(1, u64::MAX),
            is_required: false,
            default: None,
            doc: "Records after which the source ends; without it, it never does.",
        },
    ],
    can_end: true,
    keeps_state: false,
};

const RATE_MAX: u64 = 10_000_000;
const TEXT_MAX: u64 = 1 << 20;

fn check_record(value: &Value) -> Result<(), String> {
    let members = value.as_object().ok_or("write an object whose members are constants or rules")?;
    members
        .iter()
        .try_for_each(|(name, value)| MemberTemplate::read(value).map(drop).map_err(|fault| format!("{name}: {fault}")))
}

fn check_rate(value: &Value) -> Result<(), String> {
    let is_rate = value.as_u64().is_some_and(|rate| (1..=RATE_MAX).contains(&rate));
    if is_rate || value == "unlimited" { Ok(()) } else { Err(format!("write 1 to {RATE_MAX}, or unlimited")) }
}

/// A member of the template.
enum MemberTemplate {
    Constant(Vec<u8>),
    RandomU32,
    Sequence,
    /// A text of random letters.
    RandomText(u64),
}

impl MemberTemplate {
    fn read(value: &Value) -> Result<Self, String> {
        let constant = || Ok(Self::Constant(value.to_string().into_bytes()));
        let Some(rule) = value.as_object() else { return constant() };
        let is_true = |name: &str| rule.get(name) == Some(&Value::Bool(true));
        match (rule.get("random"), rule.get("bytes").map(Value::as_u64)) {
            (random, Some(Some(count @ 0..=TEXT_MAX))) if random.is_none_or(Value::is_boolean) => {
                if is_true("random") {
                    Ok(Self::RandomText(count))
                } else {
                    Ok(Self::text_of(count))
                }
            }
            (_, Some(_)) => Err(format!("bytes is a number up to {TEXT_MAX}, and random beside it true or false")),
            (Some(kind), None) if kind == "u32" => Ok(Self::RandomU32),
            (Some(kind), None) => Err(format!("random: {kind} is no rule; write u32")),
            (None, None) if is_true("sequence") => Ok(Self::Sequence),
            (None, None) => constant(),
        }
    }

    fn text_of(count: u64) -> Self {
        let mut text = vec![b'x'; count as usize + 2];
        (text[0], text[count as usize + 1]) = (b'"', b'"');
        Self::Constant(text)
    }

    fn write(&self, number: u64, random: &mut Random, out: &mut Vec<u8>) {
        match self {
            Self::Constant(json) => out.extend_from_slice(json),
            Self::RandomU32 => object::write_number(i64::from((random.next() >> 32) as u32), out),
            Self::Sequence => object::write_number(number as i64, out),
            Self::RandomText(count) => {
                out.push(b'"');
                out.extend((0..*count).map(|_| b'a' + (random.next() >> 40) as u8 % 26));
                out.push(b'"');
            }
        }
    }
}

/// Xorshift: good enough for test data, and the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

struct Generator {
    /// The text before each value, such as `,"name":`, and the value.
    members: Vec<(Vec<u8>, MemberTemplate)>,
    random: Random,
    /// Records a second of this instance; `None` without a limit.
    rate: Option<f64>,
    count: Option<u64>,
    made: u64,
    started: Option<Duration>,
    instance: u64,
    instances: u64,
    clock: Arc<dyn MonotonicClock>,
    wall: Arc<dyn WallClock>,
}

pub(super) fn source(context: &ConnectorContext<'_>) -> Result<Box<dyn Source>, Error> {
    let config = &context.node.config;
    let (instance, instances) = (u64::from(context.instance), u64::from(context.instances));
    let share = |count: u64| count / instances + u64::from(instance < count % instances);
    let template: Option<&Map<String, Value>> = config.get("record").and_then(Value::as_object);
    let members = template.into_iter().flatten().enumerate().map(|(place, (name, value))| {
        let mut prefix = vec![if place == 0 { b'{' } else { b',' }];
        object::write_text(&mut prefix, name);
        prefix.push(b':');
        let member = MemberTemplate::read(value);
        member.map(|member| (prefix, member)).map_err(|fault| Error::plan(&context.node.name, "record", fault))
    });
    Ok(Box::new(Generator {
        members: members.collect::<Result<_, _>>()?,
        random: Random(0x9e37_79b9_7f4a_7c15 ^ (instance + 1)),
        rate: config.get("rate").and_then(Value::as_u64).map(|rate| rate as f64 / instances as f64),
        count: config.get("count").and_then(Value::as_u64).map(share),
        made: 0,
        started: None,
        instance,
        instances,
        clock: Arc::clone(&context.services()?.clock),
        wall: Arc::clone(&context.services()?.wall),
    }))
}

impl Generator {
    /// Records that the rate allows now, and the time until it allows another one.
    fn due(&mut self) -> (u64, Duration) {
        let now = self.clock.now();
        let started = *self.started.get_or_insert(now);
        let Some(rate) = self.rate else { return (u64::MAX, Duration::ZERO) };
        let allowed = (now.saturating_sub(started).as_secs_f64() * rate) as u64 + 1;
        let next = started + Duration::from_secs_f64(self.made as f64 / rate);
        (allowed.saturating_sub(self.made), next.saturating_sub(now).max(Duration::from_millis(1)))
    }
}

impl Source for Generator {
    fn start(&mut self) -> Result<Started, Error> {
        Ok(Started::Yes)
    }

    fn records_ready(&mut self, max_records: usize) -> usize {
        let left = self.count.map_or(u64::MAX, |count| count - self.made);
        let (due, _) = self.due();
        if due >= left { max_records } else { max_records.min(due as usize) }
    }

    fn poll(&mut self, max_records: usize) -> Result<Polled, Error> {
        let left = self.count.map_or(u64::MAX, |count| count - self.made);
        if left == 0 {
            return Ok(Polled::End);
        }
        let (due, wait) = self.due();
        if due == 0 {
            return Ok(Polled::NotYet(Some(wait)));
        }
        let now_ms = self.wall.now_ms();
        let mut batch = SourceBatch::default();
        for _ in 0..due.min(left).min(max_records as u64) {
            let number = self.made * self.instances + self.instance;
            let (members, random) = (&self.members, &mut self.random);
            batch.push(number, None, now_ms, |out| {
                for (prefix, member) in members {
                    out.extend_from_slice(prefix);
                    member.write(number, random, out);
                }
                if members.is_empty() {
                    out.push(b'{');
                }
                out.push(b'}');
            });
            self.made += 1;
        }
        Ok(Polled::Batch(batch.finish(), SourcePosition::after(self.made)))
    }

    fn finished(&mut self, _up_to: &[SourcePosition]) -> Option<Duration> {
        None
    }

    fn is_settled(&self) -> bool {
        true
    }
}
