//! Updates whose answers wait until those who are told of them keep up: `options=flowControl`.
//!
//! The number of such an update goes with its changes to the matcher, and a token with each notification that they lead
//! to. Wherever a notification ends (delivered, given up, throttled, dropped), its token ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::Error;

/// How answers wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FlowControl {
    /// Which part of the notifications is waited for: 0 none, 1 all.
    gauge: f64,
    /// Time between two looks.
    step: Duration,
    longest: Duration,
}

impl FlowControl {
    /// Reads `gauge:step:max`, the times in milliseconds; empty is none. `below_ms`: what a request may take.
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

/// An update whose answer waits.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) number: u64,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Changes that the matcher has looked at.
    looked: AtomicUsize,
    /// Notifications that they led to.
    fired: AtomicUsize,
    /// Of these, how many have come to their end.
    ended: AtomicUsize,
}

/// Ends when its notification does, and at the latest with it. All are equal: a notification is the same with and without.
#[derive(Debug, Clone, Default)]
pub(crate) struct Token(Option<Arc<Held>>);

impl PartialEq for Token {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Token {}

impl Token {
    /// The notification has come to its end, whoever still holds it.
    pub(crate) fn end(&self) {
        if let Some(held) = &self.0 {
            held.end();
        }
    }
}

#[derive(Debug)]
struct Held {
    counts: Arc<Counts>,
    has_ended: AtomicBool,
}

impl Held {
    fn end(&self) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.counts.ended.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

/// A change of an update that waits, while the matcher looks at it.
#[derive(Debug)]
pub(crate) struct Looking(Arc<Counts>);

impl Looking {
    /// For one more notification.
    pub(crate) fn token(&self) -> Token {
        self.0.fired.fetch_add(1, Ordering::AcqRel);
        Token(Some(Arc::new(Held { counts: self.0.clone(), has_ended: AtomicBool::new(false) })))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looked.fetch_add(1, Ordering::AcqRel);
    }
}

/// All updates that wait.
pub(crate) struct Flows {
    control: Option<FlowControl>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Weak<Counts>>>,
}

impl Flows {
    pub(crate) fn new(control: Option<FlowControl>) -> Self {
        // Numbers in records of an earlier process mean nothing now.
        Self { control, next: AtomicU64::new(fastrand::u64(..)), waiting: Mutex::default() }
    }

    /// Begins an update that waits; none if answers do not.
    pub(crate) fn begin(&self) -> Option<Flow> {
        self.control?;
        let (number, counts) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(Counts::default()));
        let mut waiting = self.waiting.lock();
        // As many as there are requests under way: those of others that ended are forgotten here.
        waiting.retain(|_, known| known.strong_count() > 0);
        waiting.insert(number, Arc::downgrade(&counts));
        Some(Flow { number, counts })
    }

    /// Whether nobody waits.
    pub(crate) fn are_none(&self) -> bool {
        self.control.is_none() || self.waiting.lock().is_empty()
    }

    /// A look at a change of this update, if anybody waits for it.
    pub(crate) fn looking(&self, number: Option<u64>) -> Option<Looking> {
        self.waiting.lock().get(&number?)?.upgrade().map(Looking)
    }

    /// Resolves when enough of what `changes` changes led to has come to its end, or the time is up.
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
        let Counts { looked, fired, ended } = &*self.counts;
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
