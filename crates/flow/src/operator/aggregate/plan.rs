//! The windows of an aggregate, and the form of the records that it makes of them.

use millstream_columns::{
    AggregateState, CalendarWindows, Trigger, TriggerPlan, TriggerWhen, Value, WindowExtent, WindowShape, WindowState,
};

use crate::Error;
use crate::batch::{MadeRecord, MadeRows};
use crate::document::{Node, TriggerMode, TriggerOn, TriggerSetting, WindowKind, gives_by_time_alone};
use crate::expression::{Aggregates, Condition, FieldScope};
use crate::object;
use crate::operator::keyed::{key_parts, record_key};

/// The compiled settings of an aggregate.
pub(super) struct AggregatePlan {
    pub(super) windows: WindowsPlan,
    /// The time by which results may lie behind the watermark, those after late records apart.
    pub(super) delay_ms: i64,
    pub(super) aggregates: Aggregates,
    /// The conditions of triggers by single records, with the numbers of the triggers.
    pub(super) conditions: Vec<(usize, Condition)>,
    /// The triggers by the clock: their numbers, and the milliseconds between two.
    pub(super) intervals: Vec<(usize, i64)>,
    /// The names of the members that the key gives.
    key_names: Vec<String>,
    /// The form of the results of each trigger.
    outputs: Vec<TriggerOutput>,
}

/// The windows, by what gives them.
pub(super) enum WindowsPlan {
    /// Time alone: windows are sums of panes.
    Timed {
        shape: WindowShape,
        lateness_ms: i64,
    },
    /// The numbers of a key's records take the place of time. Windows end at multiples of `slide`.
    Counted {
        shape: WindowShape,
        slide: i64,
    },
    Triggered(TriggerPlan),
}

impl WindowsPlan {
    /// A session is over after its gap, and a trigger may give windows later than their end.
    fn delay_ms(&self) -> i64 {
        let (shape, delay_ms) = match self {
            Self::Timed { shape, .. } => (shape, 0),
            Self::Counted { .. } => return 0,
            Self::Triggered(plan) => (&plan.shape, longest_delay_ms(&plan.triggers)),
        };
        match shape {
            WindowShape::Session { gap_ms } => gap_ms.saturating_add(delay_ms),
            WindowShape::Global => 0,
            WindowShape::Time { .. } | WindowShape::Calendar(_) => delay_ms,
        }
    }
}

struct TriggerOutput {
    /// The name in the records; `None` with one trigger.
    name: Option<String>,
    retracts: bool,
}

/// The place of a call in the stream.
#[derive(Clone, Copy)]
pub(super) struct Cause {
    /// The row that causes records.
    pub(super) input: u32,
    /// The time of that row, or the watermark.
    pub(super) time_ms: i64,
    pub(super) watermark_ms: i64,
}

/// The figures of the records of a pane or a window.
#[derive(Debug)]
pub(super) struct WindowFigures {
    pub(super) figures: AggregateState,
    /// The members that were sent and not taken back, each with the number of its trigger.
    sent: Vec<(u8, Box<[u8]>)>,
}

impl WindowState for WindowFigures {
    fn merge(&mut self, other: &Self) {
        self.figures.merge(&other.figures);
        self.sent.extend(other.sent.iter().cloned());
    }
}

impl WindowFigures {
    pub(super) fn new(figures: AggregateState) -> Self {
        Self { figures, sent: Vec::new() }
    }

    pub(super) fn heap_bytes(&self) -> u64 {
        let sent: usize = self.sent.iter().map(|(_, members)| 32 + members.len()).sum();
        (16 + self.figures.size_bytes() + sent) as u64
    }

    /// Appends the stored form: the number of results that were sent (4 bytes), of each its trigger (1), length (4) and bytes, and the
    /// figures.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.sent.len() as u32).to_be_bytes());
        for (trigger, members) in &self.sent {
            out.push(*trigger);
            out.extend_from_slice(&(members.len() as u32).to_be_bytes());
            out.extend_from_slice(members);
        }
        out.extend_from_slice(&self.figures.write());
    }

    /// The figures of a stored form; `None` if it is that of other aggregates.
    pub(super) fn read(aggregates: &Aggregates, stored: &[u8]) -> Option<Self> {
        let (count, mut rest) = stored.split_first_chunk()?;
        let mut sent = Vec::new();
        for _ in 0..u32::from_be_bytes(*count) {
            let ([trigger], after) = rest.split_first_chunk()?;
            let (length, after) = after.split_first_chunk()?;
            let (members, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            sent.push((*trigger, members.into()));
            rest = after;
        }
        Some(Self { figures: aggregates.read(rest)?, sent })
    }
}

impl AggregatePlan {
    /// # Errors
    /// [`Error::Plan`] for what the document's checks should have refused.
    pub(super) fn new(node: &Node) -> Result<Self, Error> {
        let refuse = |key: &str, message: String| Error::plan(&node.name, key, message);
        let text = node.aggregates.as_deref().unwrap_or_default();
        let aggregates = Aggregates::parse(text, &node.key_by, &node.params);
        let (mut conditions, mut intervals) = (Vec::new(), Vec::new());
        for (number, trigger) in node.triggers.iter().enumerate() {
            match &trigger.on {
                TriggerOn::Punctuation { when } => {
                    let condition = Condition::parse(when, FieldScope::Record, &node.params);
                    conditions.push((number, condition.map_err(|message| refuse("triggers", message))?));
                }
                TriggerOn::Interval { every_ms } => intervals.push((number, (*every_ms).max(1))),
                _ => {}
            }
        }
        let is_one = node.triggers.len() < 2;
        let windows = windows(node).ok_or_else(|| refuse("window", "it is not there".to_owned()))?;
        let output = |(number, trigger): (usize, &TriggerSetting)| TriggerOutput {
            name: (!is_one).then(|| trigger.id.clone().unwrap_or_else(|| number.to_string())),
            retracts: trigger.mode == TriggerMode::Retracting,
        };
        Ok(Self {
            delay_ms: windows.delay_ms(),
            windows,
            aggregates: aggregates.map_err(|message| refuse("aggregates", message))?,
            conditions,
            intervals,
            key_names: node.key_by.clone(),
            outputs: node.triggers.iter().enumerate().map(output).collect(),
        })
    }

    /// `true` for windows that need the time of records.
    pub(super) fn needs_time(&self) -> bool {
        match &self.windows {
            WindowsPlan::Timed { shape, .. } => *shape != WindowShape::Global,
            WindowsPlan::Counted { .. } => false,
            WindowsPlan::Triggered(plan) => plan.shape != WindowShape::Global,
        }
    }

    pub(super) fn fresh(&self) -> WindowFigures {
        WindowFigures::new(self.aggregates.state())
    }

    /// Makes the record of a window that time gives.
    pub(super) fn send(
        &self,
        key: &[u8],
        window: WindowExtent,
        figures: &WindowFigures,
        cause: Cause,
        made: &mut MadeRows,
    ) {
        let record_key = record_key(key);
        let (record, members) = self.result(key, window, &figures.figures, cause, None);
        made.push(MadeRecord { key: &record_key, ..record }, |out| write_result(&members, None, out));
    }

    /// Makes the record of a window that a trigger gives, and before it that of the result that was sent before, if it is taken
    /// back.
    pub(super) fn send_by(
        &self,
        trigger: usize,
        key: &[u8],
        window: WindowExtent,
        figures: &mut WindowFigures,
        cause: Cause,
        made: &mut MadeRows,
    ) {
        let TriggerOutput { name, retracts } = &self.outputs[trigger];
        let record_key = record_key(key);
        let (record, members) = self.result(key, window, &figures.figures, cause, name.as_deref());
        let record = MadeRecord { key: &record_key, ..record };
        if !retracts {
            return made.push(record, |out| write_result(&members, None, out));
        }
        let of_trigger = |sent: &(u8, Box<[u8]>)| usize::from(sent.0) == trigger;
        let former: Vec<_> = figures.sent.extract_if(.., |sent| of_trigger(sent)).map(|(_, members)| members).collect();
        // A result that is as it was is not sent again.
        let is_same = matches!(&former[..], [former] if **former == *members);
        if !is_same {
            for former in &former {
                made.push(record, |out| write_result(former, Some("retract"), out));
            }
            made.push(record, |out| write_result(&members, Some("insert"), out));
        }
        figures.sent.push((trigger as u8, members.into()));
    }

    /// The result of a window as JSON, if it were sent now, and the bytes of it.
    pub(super) fn describe(
        &self,
        key: &[u8],
        window: WindowExtent,
        figures: &WindowFigures,
    ) -> (serde_json::Value, usize) {
        let cause = Cause { input: 0, time_ms: window.end_ms, watermark_ms: window.end_ms };
        let (_, mut members) = self.result(key, window, &figures.figures, cause, None);
        members.push(b'}');
        (serde_json::from_slice(&members).unwrap_or_default(), members.len())
    }

    /// The record without its key, and the members of its payload.
    fn result(
        &self,
        key: &[u8],
        window: WindowExtent,
        figures: &AggregateState,
        Cause { input, time_ms, watermark_ms }: Cause,
        trigger: Option<&str>,
    ) -> (MadeRecord<'static>, Vec<u8>) {
        let shape = match &self.windows {
            WindowsPlan::Timed { shape, .. } | WindowsPlan::Triggered(TriggerPlan { shape, .. }) => shape,
            WindowsPlan::Counted { .. } => &WindowShape::Global,
        };
        // The last moment of the window; one without bounds has that of its last record.
        let time_ms = match shape {
            WindowShape::Time { .. } | WindowShape::Calendar(_) => window.end_ms.saturating_sub(1),
            WindowShape::Session { .. } => window.end_ms,
            WindowShape::Global => time_ms.max(0),
        };
        let values: Vec<Value<'static>> = key_parts(key).map(key_value).collect();
        let mut members = Vec::with_capacity(128);
        members.push(b'{');
        for (name, part) in self.key_names.iter().zip(key_parts(key)) {
            object::begin_member(name, &mut members);
            members.extend_from_slice(part);
        }
        self.aggregates.write(&values[..self.key_names.len()], figures, time_ms, &mut members);
        let has_bounds = *shape != WindowShape::Global;
        if has_bounds || trigger.is_some() {
            object::begin_member("window", &mut members);
            members.push(b'{');
            if has_bounds {
                object::begin_member("start", &mut members);
                object::write_time(&mut members, window.start_ms);
                object::begin_member("end", &mut members);
                object::write_time(&mut members, window.end_ms);
            }
            if let Some(trigger) = trigger {
                object::begin_member("trigger", &mut members);
                object::write_text(&mut members, trigger);
            }
            members.push(b'}');
        }
        let watermark_ms = watermark_ms.saturating_sub(self.delay_ms);
        (MadeRecord { input, key: &[], time_ms, watermark_ms }, members)
    }
}

/// Appends a result with its members, and says whether it is a new one or one that is taken back.
fn write_result(members: &[u8], op: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(members);
    if let Some(op) = op {
        object::begin_member("op", out);
        object::write_text(out, op);
    }
    out.push(b'}');
}

fn windows(node: &Node) -> Option<WindowsPlan> {
    let window = node.window.as_ref()?;
    let lateness_ms = window.allowed_lateness_ms;
    let shape = match &window.kind {
        WindowKind::Sliding { size_ms, slide_ms } => {
            WindowShape::Time { size_ms: *size_ms, slide_ms: *slide_ms, offset_ms: window.offset_ms }
        }
        WindowKind::Calendar { step, zone } => {
            WindowShape::Calendar(CalendarWindows { step: *step, zone: zone.clone(), offset_ms: window.offset_ms })
        }
        WindowKind::Session { gap_ms } => WindowShape::Session { gap_ms: *gap_ms },
        WindowKind::Global => WindowShape::Global,
        WindowKind::Count { size, slide } => {
            let (size, slide) = (i64::from(*size), i64::from(*slide));
            let shape = WindowShape::Time { size_ms: size, slide_ms: slide, offset_ms: -size };
            return Some(WindowsPlan::Counted { shape, slide });
        }
    };
    if gives_by_time_alone(&node.triggers, lateness_ms) {
        return Some(WindowsPlan::Timed { shape, lateness_ms });
    }
    let triggers: Vec<Trigger> = node.triggers.iter().map(trigger).collect();
    let kept_ms = longest_delay_ms(&triggers).max(lateness_ms);
    Some(WindowsPlan::Triggered(TriggerPlan { shape, triggers, kept_ms }))
}

fn longest_delay_ms(triggers: &[Trigger]) -> i64 {
    let delay_ms = |trigger: &Trigger| if let TriggerWhen::Closed { delay_ms } = trigger.when { delay_ms } else { 0 };
    triggers.iter().map(delay_ms).max().unwrap_or(0)
}

fn trigger(setting: &TriggerSetting) -> Trigger {
    let when = match setting.on {
        TriggerOn::Watermark { delay_ms } => TriggerWhen::Closed { delay_ms },
        TriggerOn::Count { every } => TriggerWhen::Records(every.max(1)),
        TriggerOn::Interval { .. } => TriggerWhen::Clock,
        TriggerOn::Punctuation { .. } => TriggerWhen::Record,
        TriggerOn::Percentile { at } => TriggerWhen::Part(at),
    };
    Trigger { when, gives_all: setting.fires_all, discards: setting.mode == TriggerMode::Discarding }
}

/// A part of a key, for expressions.
fn key_value(part: &[u8]) -> Value<'static> {
    Value::read(part).map_or(Value::Null, Value::into_owned)
}
