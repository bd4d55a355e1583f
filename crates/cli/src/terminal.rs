//! Shared parts of the subcommands that talk to a running server: they end when interrupted, and print tables.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context as _;
use serde_json::Value;

use crate::query_command::printable;

/// Runs a subcommand until it is done or interrupted.
///
/// # Errors
/// Those of the work.
pub fn run_until_interrupted(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    run_to_the_end(async {
        tokio::select! {
            ended = work => ended,
            interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot listen for SIGINT"),
        }
    })
}

/// The same for a subcommand that listens for interrupts itself.
pub(crate) fn run_to_the_end(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// True of what a write says after the reader of the output has gone.
pub fn is_broken_pipe(failure: &anyhow::Error) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes text that ends with a line break.
///
/// # Errors
/// Standard output cannot be written, see [`is_broken_pipe`].
pub fn show(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes each value as one line of JSON.
pub(crate) fn show_lines<'a>(values: impl IntoIterator<Item = &'a Value>) -> anyhow::Result<()> {
    show(&values.into_iter().map(|value| format!("{value}\n")).collect::<String>())
}

/// Standard output, buffered. On a terminal, control characters are shown by their codes.
pub(crate) struct LineOutput {
    out: io::BufWriter<io::Stdout>,
    is_terminal: bool,
}

impl LineOutput {
    pub(crate) fn new() -> Self {
        let out = io::stdout();
        Self { is_terminal: out.is_terminal(), out: io::BufWriter::new(out) }
    }

    pub(crate) fn line(&mut self, text: &str) -> anyhow::Result<()> {
        let shown = if self.is_terminal { printable(text) } else { text.to_owned() };
        self.out.write_all(shown.as_bytes())?;
        Ok(self.out.write_all(b"\n")?)
    }

    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }
}

/// Text without quotes; a value that is not set is `none`.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    }
}

/// Columns as wide as their widest cell.
pub fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Bytes in the largest binary unit of which there is at least one.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((name, shift)) if bytes.is_multiple_of(1 << shift) => format!("{} {name}", bytes >> shift),
        Some((name, shift)) => format!("{:.1} {name}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_in_the_largest_unit_of_which_there_is_one() {
        for (bytes, expected) in
            [(1023, "1023 B"), (1536, "1.5 KiB"), (65_536, "64 KiB"), ((1 << 20) + 1, "1.0 MiB"), (1 << 30, "1 GiB")]
        {
            assert_eq!(size(bytes), expected);
        }
    }
}
