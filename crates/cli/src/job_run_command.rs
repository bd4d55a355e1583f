//! `millstream job run`: submits a job, follows it, and stops it when interrupted.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::{Server, encoded};
use crate::job_client::{count, rate, send_document};
use crate::terminal::{cell, show, show_lines};

/// Pause between two status lines.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) async fn run(server: &Server, file: &Path, is_json: bool) -> anyhow::Result<()> {
    let interrupted = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let submitted = send_document(server, "/api/jobs", file).await?;
    let id = cell(&submitted["id"]);
    let mut printer = StatusPrinter { is_json, is_terminal: std::io::stdout().is_terminal(), last: String::new() };
    if !is_json {
        show(&format!("job {id} called {}\n", cell(&submitted["name"])))?;
    }
    let job = follow(server, &id, &mut printer, interrupted).await?;
    printer.finish()?;
    match job["state"].as_str() {
        Some("completed" | "stopped") => Ok(()),
        Some(state) => bail!("job {id} is {state}: {}", job["reason"].as_str().unwrap_or("no reason is known")),
        None => bail!("the server sent no state of job {id}"),
    }
}

/// Prints the status until the job has ended. The first Ctrl-C stops the job, the second one leaves it.
async fn follow(
    server: &Server,
    id: &str,
    printer: &mut StatusPrinter,
    mut interrupted: Signal,
) -> anyhow::Result<Value> {
    let path = format!("/api/jobs/{}", encoded(id));
    let mut is_stopping = false;
    loop {
        let job = server.ask(Method::GET, &format!("{path}/wait?timeout=1ms"), String::new()).await?;
        printer.print(&job)?;
        if !matches!(job["state"].as_str(), Some("starting" | "running")) {
            return Ok(job);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            _ = interrupted.recv() => {
                if std::mem::replace(&mut is_stopping, true) {
                    bail!("job {id} still stops; 'millstream job kill {id}' ends it at once");
                }
                let mode = json!({"mode": "graceful"}).to_string();
                server.answered(Method::POST, &format!("{path}/stop"), mode).await?;
            }
        }
    }
}

/// Prints a line for each change of the status; on a terminal in place of the line before.
struct StatusPrinter {
    is_json: bool,
    is_terminal: bool,
    last: String,
}

impl StatusPrinter {
    fn print(&mut self, job: &Value) -> anyhow::Result<()> {
        if self.is_json {
            return show_lines([job]);
        }
        let line = status_line(job);
        if line == self.last {
            return Ok(());
        }
        self.last = line;
        // Erases the line before.
        let text = if self.is_terminal { format!("\r\x1b[K{}", self.last) } else { format!("{}\n", self.last) };
        show(&text)
    }

    fn finish(&self) -> anyhow::Result<()> {
        if self.is_terminal && !self.is_json { show("\n") } else { Ok(()) }
    }
}

fn status_line(job: &Value) -> String {
    let mut line = cell(&job["state"]);
    for word in ["in", "out"] {
        let (records, pace) = (&job[format!("records_{word}")], &job[format!("rate_{word}")]);
        if !records.is_null() {
            line.push_str(&format!("  {word} {} ({})", count(records), rate(pace)));
        }
    }
    for word in ["errors", "lag", "restarts"] {
        if job[word].as_u64().is_some_and(|number| number > 0) {
            line.push_str(&format!("  {word} {}", count(&job[word])));
        }
    }
    if let Some(reason) = job["reason"].as_str() {
        line.push_str(&format!("  {}", crate::query_command::printable(reason)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_has_what_is_known() {
        let job = json!({"state": "running", "records_in": 5, "rate_in": 2.5, "records_out": 4, "rate_out": 2.0,
            "errors": 1, "lag": 0, "restarts": 0});
        assert_eq!(status_line(&job), "running  in 5 (2.5/s)  out 4 (2.0/s)  errors 1");
        let job = json!({"state": "starting", "reason": "in waits for topic 't'"});
        assert_eq!(status_line(&job), "starting  in waits for topic 't'");
    }
}
