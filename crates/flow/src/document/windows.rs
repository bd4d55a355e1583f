//! The windows and triggers of an aggregate, with the defaults of the model.

use jiff::tz::TimeZone;

use super::draft::DocumentDraft;
use super::keys::{TRIGGER, WINDOW};
use super::model::{TriggerMode, TriggerOn, TriggerSetting, WindowKind, WindowSetting};
use super::quantity::{calendar_step, duration_ms};
use super::settings::Settings;
use super::tree::Tree;

/// The windows of a node, with its defaults.
pub(super) fn window(draft: &DocumentDraft<'_>, tree: &Tree) -> WindowSetting {
    let window = Settings { tree: Some(tree), section: &WINDOW };
    let time = |key: &str| i64::try_from(window.duration_ms(key)).unwrap_or(i64::MAX);
    let kind = match window.text("type").as_str() {
        "sliding" => WindowKind::Sliding { size_ms: time("size"), slide_ms: time("slide") },
        "session" => WindowKind::Session { gap_ms: time("gap") },
        "count" => {
            let size = window.whole("size");
            let slide = if tree.get("slide").is_some() { window.whole("slide") } else { size };
            WindowKind::Count { size, slide }
        }
        "global" => WindowKind::Global,
        _ => {
            let size = window.text("size");
            let zone = tree.text_of("timezone").and_then(|name| TimeZone::get(name).ok());
            // Days are of the calendar only where a zone is named.
            match calendar_step(&size).filter(|_| zone.is_some() || duration_ms(&size).is_none()) {
                Some(step) => WindowKind::Calendar { step, zone: zone.unwrap_or(TimeZone::UTC) },
                None => WindowKind::Sliding { size_ms: time("size"), slide_ms: time("size") },
            }
        }
    };
    WindowSetting {
        kind,
        offset_ms: time("offset"),
        allowed_lateness_ms: time("allowed_lateness"),
        late_to: tree.text_of("late_to").and_then(|name| draft.by_name.get(name)).copied(),
    }
}

/// The triggers of a node.
pub(super) fn triggers(node: &Tree) -> Vec<TriggerSetting> {
    node.get("triggers").map_or(&[][..], Tree::elements).iter().map(trigger).collect()
}

fn trigger(tree: &Tree) -> TriggerSetting {
    let trigger = Settings { tree: Some(tree), section: &TRIGGER };
    let time = |key: &str| i64::try_from(trigger.duration_ms(key)).unwrap_or(i64::MAX);
    let on = match trigger.text("on").as_str() {
        "count" => TriggerOn::Count { every: u64::from(trigger.whole("every")) },
        "interval" => TriggerOn::Interval { every_ms: time("every") },
        "punctuation" => TriggerOn::Punctuation { when: trigger.text("when") },
        "percentile" => {
            let at = tree.get("at").and_then(|at| at.to_json().as_f64());
            TriggerOn::Percentile { at: at.unwrap_or_default() }
        }
        _ => TriggerOn::Watermark { delay_ms: time("delay") },
    };
    let mode = match trigger.text("mode").as_str() {
        "discarding" => TriggerMode::Discarding,
        "retracting" => TriggerMode::Retracting,
        _ => TriggerMode::Accumulating,
    };
    let id = tree.text_of("id").map(str::to_owned);
    TriggerSetting { id, on, fires_all: trigger.text("fire") == "all", mode }
}
