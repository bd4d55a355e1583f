//! Limits the rate of log lines that requests can cause.
//!
//! A failing disk or a reached limit fails every request, and a line for each would fill the disk of the log file.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use millstream_types::{MonotonicClock, WallClock, iso_time};
use parking_lot::Mutex;
use serde_json::json;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::config::LogFormat;

/// Limit of warnings and errors per second and place in the program.
const LINES_A_SECOND: u32 = 20;

/// Writes log lines, with at most [`LINES_A_SECOND`] warnings and errors per place; the next line of a place reports
/// the number of suppressed ones. Lines of lower levels are not limited.
pub(crate) struct Sparing<W, C> {
    lines: W,
    format: LogFormat,
    clock: Arc<C>,
    counts: Mutex<HashMap<Identifier, LineCount>>,
}

#[derive(Default)]
struct LineCount {
    second: u64,
    written: u32,
    left_out: u64,
}

impl LineCount {
    /// Returns the number of lines suppressed since the last written one; `None` if this line is suppressed, too.
    fn admit(&mut self, second: u64) -> Option<u64> {
        if self.second != second {
            (self.second, self.written) = (second, 0);
        }
        if self.written == LINES_A_SECOND {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl<W, C> Sparing<W, C> {
    pub(crate) fn new(lines: W, format: LogFormat, clock: Arc<C>) -> Self {
        Self { lines, format, clock, counts: Mutex::default() }
    }
}

impl<'w, W: MakeWriter<'w>, C: MonotonicClock + WallClock> MakeWriter<'w> for Sparing<W, C> {
    type Writer = LimitedLine<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        LimitedLine(Some(self.lines.make_writer()))
    }

    fn make_writer_for(&'w self, line: &Metadata<'_>) -> Self::Writer {
        if *line.level() > Level::WARN {
            return self.make_writer();
        }
        let second = self.clock.now().as_secs();
        let admitted = self.counts.lock().entry(line.callsite()).or_default().admit(second);
        let Some(left_out) = admitted else { return LimitedLine(None) };
        let mut writer = self.lines.make_writer_for(line);
        if left_out > 0 {
            let told = told(self.format, &iso_time(self.clock.now_ms()), line, left_out);
            // There is no other place to report a failed write.
            drop(writeln!(writer, "{told}"));
        }
        LimitedLine(Some(writer))
    }
}

fn told(format: LogFormat, time: &str, line: &Metadata<'_>, left_out: u64) -> String {
    const WHAT: &str = "lines like the next one were suppressed";
    let (level, target) = (line.level(), line.target());
    match format {
        LogFormat::Text => format!("{time} {level:>5} {target}: {WHAT} left_out={left_out}"),
        LogFormat::Json => {
            let fields = json!({"message": WHAT, "left_out": left_out});
            json!({"timestamp": time, "level": level.as_str(), "fields": fields, "target": target}).to_string()
        }
    }
}

/// A log line, or nothing if it is suppressed.
pub(crate) struct LimitedLine<W>(Option<W>);

impl<W: Write> Write for LimitedLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Ok(bytes.len()), |lines| lines.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), W::flush)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_types::ManualClock;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn take(&self) -> Vec<String> {
            let bytes = std::mem::take(&mut *self.0.lock());
            String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
        }
    }

    fn fail(times: usize) {
        (0..times).for_each(|nth| tracing::error!(nth, "failed"));
    }

    #[test]
    fn log_lines_of_each_kind_are_limited_and_the_others_counted() {
        let (lines, clock) = (Lines::default(), Arc::new(ManualClock::default()));
        let sparing = |format| {
            let lines = lines.clone();
            Sparing::new(move || lines.clone(), format, clock.clone())
        };
        let text = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(sparing(LogFormat::Text));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(text), || {
            fail(50);
            (0..50).for_each(|_| tracing::info!("asked for"));
            tracing::warn!("another");
            let written = lines.take();
            let count = |what: &str| written.iter().filter(|line| line.contains(what)).count();
            assert_eq!((count("failed"), count("asked for"), count("another")), (LINES_A_SECOND as usize, 50, 1));
            clock.advance(Duration::from_secs(1));
            fail(1);
            let written = lines.take();
            assert_eq!(written.len(), 2);
            assert!(written[0].ends_with("lines like the next one were suppressed left_out=30"), "{written:?}");
            clock.advance(Duration::from_secs(1));
            fail(1);
            assert_eq!(lines.take().len(), 1);
        });
        let json = tracing_subscriber::fmt::layer().json().with_writer(sparing(LogFormat::Json));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(json), || {
            fail(21);
            clock.advance(Duration::from_secs(1));
            fail(1);
            let told: serde_json::Value = serde_json::from_str(&lines.take()[20]).unwrap();
            assert_eq!(told["fields"]["left_out"], 1);
        });
    }
}
