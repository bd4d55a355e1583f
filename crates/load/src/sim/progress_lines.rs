//! The lines that a running simulation prints, one a second.

use std::time::Duration;

use super::SimProgress;

/// Makes a line of the first progress in each second.
#[derive(Debug, Default)]
pub(super) struct ProgressLines {
    /// The time and the acknowledged messages of the last line.
    last: (Duration, u64),
}

impl ProgressLines {
    /// Returns the line, if a second has begun since the last one.
    pub(super) fn of(&mut self, progress: &SimProgress) -> Option<String> {
        let SimProgress { elapsed, sent, accepted, backlog } = *progress;
        let (before, accepted_before) = self.last;
        if elapsed.as_secs() <= before.as_secs() {
            return None;
        }
        self.last = (elapsed, accepted);
        let rate = (accepted - accepted_before) as f64 / (elapsed - before).as_secs_f64();
        let failed = sent - accepted;
        let late = if backlog > 0 { format!(", {backlog} late") } else { String::new() };
        let seconds = elapsed.as_secs();
        Some(format!("{seconds} s: {sent} sent, {accepted} acknowledged, {failed} failed, {rate:.0} per second{late}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_one_line_with_the_rate_since_the_one_before() {
        let mut lines = ProgressLines::default();
        let mut line = |elapsed_ms, sent, accepted, backlog| {
            lines.of(&SimProgress { elapsed: Duration::from_millis(elapsed_ms), sent, accepted, backlog })
        };
        assert_eq!(line(900, 90, 90, 0), None);
        assert_eq!(line(1_000, 100, 100, 0).unwrap(), "1 s: 100 sent, 100 acknowledged, 0 failed, 100 per second");
        assert_eq!(line(1_100, 110, 110, 0), None);
        assert_eq!(
            line(3_000, 310, 300, 7).unwrap(),
            "3 s: 310 sent, 300 acknowledged, 10 failed, 100 per second, 7 late"
        );
    }
}
