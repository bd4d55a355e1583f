//! Flow control, `options=flowControl`: replies to updates wait for the notifications of the update.
//!
//! An update's number travels with its changes to the matcher, and a token with each notification. Wherever a
//! notification ends (delivered, given up, throttled, dropped), its token ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::Error;

/// The setting of flow control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FlowControl {
    /// Part of the notifications to wait for: 0 none, 1 all.
    gauge: f64,
    /// The time between two checks.
    step: Duration,
    longest: Duration,
}

impl FlowControl {
    /// Parses `gauge:step:max`, the times in milliseconds; an empty text is `None`. `below_ms` is the
    /// time limit of a request.
    pub(crate) fn read(text: &str, below_ms: u64) -> Result<Option<Self>, Error> {
        if text.is_empty() {
            return Ok(None);
        }
        let parts: Vec<&str> = text.split(':').collect();
        let read = |parts: &[&str]| {
            let [gauge, step_ms, longest_ms] = parts else { return None };
            let (gauge, step_ms, longest_ms): (f64, u64, u64) =
                (gauge.parse().ok()?, step_ms.parse().ok()?, longest_ms.parse().ok()?);
            let is_legal = (0.0..=1.0).contains(&gauge) && (1..=longest_ms).contains(&step_ms) && longest_ms < below_ms;
            let (step, longest) = (Duration::from_millis(step_ms), Duration::from_millis(longest_ms));
            is_legal.then_some(Self { gauge, step, longest })
        };
        read(&parts).map(Some).ok_or_else(|| Error::InvalidSetting {
            setting: "context.notifications.flow_control",
            value: text.to_owned(),
            rule: "use gauge:step:max such as 0.5:100:5000: a gauge from 0 to 1, milliseconds, max below context.timeout_ms",
        })
    }
}

/// An update whose reply waits.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) number: u64,
    counts: Arc<FlowProgress>,
}

#[derive(Debug, Default)]
struct FlowProgress {
    /// Changes that the matcher has processed.
    looked: AtomicUsize,
    /// Notifications that these changes fired.
    fired: AtomicUsize,
    ended: AtomicUsize,
}

/// Ends with its notification. All tokens are equal: they do not take part in comparisons of notifications.
#[derive(Debug, Clone, Default)]
pub(crate) struct Token(Option<Arc<TokenState>>);

impl PartialEq for Token {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Token {}

impl Token {
    /// Ends the token, even if other copies remain.
    pub(crate) fn end(&self) {
        if let Some(held) = &self.0 {
            held.end();
        }
    }
}

#[derive(Debug)]
struct TokenState {
    counts: Arc<FlowProgress>,
    has_ended: AtomicBool,
}

impl TokenState {
    fn end(&self) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.counts.ended.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for TokenState {
    fn drop(&mut self) {
        self.end();
    }
}

/// A change of a waiting update while the matcher processes it.
#[derive(Debug)]
pub(crate) struct Looking(Arc<FlowProgress>);

impl Looking {
    /// A token for one more notification.
    pub(crate) fn token(&self) -> Token {
        self.0.fired.fetch_add(1, Ordering::AcqRel);
        Token(Some(Arc::new(TokenState { counts: self.0.clone(), has_ended: AtomicBool::new(false) })))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looked.fetch_add(1, Ordering::AcqRel);
    }
}

pub(crate) struct Flows {
    control: Option<FlowControl>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Weak<FlowProgress>>>,
}

impl Flows {
    pub(crate) fn new(control: Option<FlowControl>) -> Self {
        // A random start: numbers in records of an earlier process must not match.
        Self { control, next: AtomicU64::new(fastrand::u64(..)), waiting: Mutex::default() }
    }

    /// Registers a waiting update; `None` if flow control is off.
    pub(crate) fn begin(&self) -> Option<Flow> {
        self.control?;
        let (number, counts) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(FlowProgress::default()));
        let mut waiting = self.waiting.lock();
        // Bounded by the running requests: entries of finished ones are removed here.
        waiting.retain(|_, known| known.strong_count() > 0);
        waiting.insert(number, Arc::downgrade(&counts));
        Some(Flow { number, counts })
    }

    pub(crate) fn are_none(&self) -> bool {
        self.control.is_none() || self.waiting.lock().is_empty()
    }

    /// Marks the start of matching a change, if its update waits.
    pub(crate) fn looking(&self, number: Option<u64>) -> Option<Looking> {
        self.waiting.lock().get(&number?)?.upgrade().map(Looking)
    }

    /// Waits until enough notifications of the `changes` changes have ended, or the time is up.
    pub(crate) async fn wait(&self, flow: Flow, changes: usize) {
        let Some(control) = self.control else { return };
        let until = Instant::now() + control.longest;
        while !flow.is_calm(changes, control.gauge) && Instant::now() < until {
            sleep(control.step.min(until.saturating_duration_since(Instant::now()))).await;
        }
        self.waiting.lock().remove(&flow.number);
    }
}

impl Flow {
    fn is_calm(&self, changes: usize, gauge: f64) -> bool {
        let FlowProgress { looked, fired, ended } = &*self.counts;
        let (is_looked_at, fired) = (looked.load(Ordering::Acquire) >= changes, fired.load(Ordering::Acquire));
        let left = fired.saturating_sub(ended.load(Ordering::Acquire));
        is_looked_at && left as f64 <= (1.0 - gauge) * fired as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_a_gauge_and_two_times() {
        assert_eq!(FlowControl::read("", 10_000).unwrap(), None);
        let read = FlowControl::read("0.5:100:5000", 10_000).unwrap().unwrap();
        assert_eq!((read.gauge, read.step.as_millis(), read.longest.as_millis()), (0.5, 100, 5_000));
        for text in
            ["1", "0.5:100", "2:100:5000", "-0.1:1:2", "x:1:2", "0.5:0:100", "0.5:200:100", "0.5:100:10000", "1:1:2:3"]
        {
            assert!(FlowControl::read(text, 10_000).unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn a_flow_is_calm_once_its_part_has_ended() {
        let flows = Flows::new(FlowControl::read("0.5:1:10", 100).unwrap());
        let flow = flows.begin().unwrap();
        assert!(!flow.is_calm(1, 0.0), "nobody has looked yet");
        let looking = flows.looking(Some(flow.number)).unwrap();
        let mut tokens: Vec<Token> = (0..4).map(|_| looking.token()).collect();
        drop(looking);
        tokens[0].end();
        tokens[0].end();
        assert!(!flow.is_calm(1, 0.5), "each ends once");
        for (left, calm) in [(4, [true, false, false]), (3, [true, true, false]), (0, [true, true, true])] {
            tokens.truncate(left);
            assert_eq!([0.0, 0.5, 1.0].map(|gauge| flow.is_calm(1, gauge)), calm, "{left} left");
        }
        assert!(!flow.is_calm(2, 0.0), "another change of it is to come");
        assert!(flows.looking(Some(flow.number.wrapping_add(1))).is_none() && flows.looking(None).is_none());
        drop(flow);
        assert!(!flows.are_none());
        drop(flows.begin());
        assert!(flows.begin().is_some());
        assert_eq!(flows.waiting.lock().len(), 1, "who has left is forgotten");
        assert!(Flows::new(None).begin().is_none());
    }
}
