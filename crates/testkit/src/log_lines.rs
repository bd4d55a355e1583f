//! The log lines of this process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The lines that were logged since the first call of [`LogLines::of_this_process`].
#[derive(Debug)]
pub struct LogLines {
    text: Arc<Mutex<Vec<u8>>>,
    grown: watch::Sender<usize>,
}

struct Writer(&'static LogLines);

impl LogLines {
    /// The lines of this process, from the first call on.
    pub fn of_this_process() -> &'static Self {
        static LINES: OnceLock<LogLines> = OnceLock::new();
        static LOGGING: OnceLock<()> = OnceLock::new();
        let lines = LINES.get_or_init(|| Self { text: Arc::default(), grown: watch::Sender::new(0) });
        LOGGING.get_or_init(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Writer(lines)).init());
        lines
    }

    /// The next line that has `part`, or the one that was logged already.
    pub async fn with(&self, part: &str) -> String {
        self.grown.subscribe().wait_for(|_| !self.all_with(part).is_empty()).await.unwrap();
        self.all_with(part).remove(0)
    }

    /// The lines so far that have `part`.
    pub fn all_with(&self, part: &str) -> Vec<String> {
        let text = String::from_utf8(self.text.lock().clone()).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.text.lock().extend_from_slice(bytes);
        self.0.grown.send_modify(|bytes_ever| *bytes_ever += bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
