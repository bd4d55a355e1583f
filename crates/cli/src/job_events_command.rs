//! `millstream job events`: prints what has happened to jobs, one event a line.

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::Value;

use crate::client::{Events, Server, encoded, refusal};
use crate::terminal::{cell, show};

/// Events of one request.
const PAGE: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Only events of the job with this id [default: all jobs]
    job: Option<String>,
    /// The number of an event, earliest, latest or an ISO time
    #[arg(long, value_name = "PLACE", default_value = "earliest")]
    from: String,
    /// Wait for further events, until Ctrl-C
    #[arg(long)]
    follow: bool,
}

pub(crate) async fn run(server: &Server, arguments: &EventsArgs, is_json: bool) -> anyhow::Result<()> {
    let EventsArgs { job, from, follow } = arguments;
    let job = job.as_ref().map_or_else(String::new, |job| format!("&job={}", encoded(job)));
    let mut next = from.clone();
    loop {
        let path = format!("/api/jobs/events?from={}&until=latest&limit={PAGE}{job}", encoded(&next));
        let page = server.ask(Method::GET, &path, String::new()).await?;
        let records = page["records"].as_array().map(Vec::as_slice).unwrap_or_default();
        show(&records.iter().map(|record| line(record, is_json)).collect::<String>())?;
        let before = std::mem::replace(&mut next, cell(&page["next"]));
        if next == before {
            break;
        }
    }
    if *follow {
        print_further(server, &format!("/api/jobs/events?from={}{job}", encoded(&next)), is_json).await
    } else {
        Ok(())
    }
}

/// Prints events as they come.
async fn print_further(server: &Server, path: &str, is_json: bool) -> anyhow::Result<()> {
    let answer = server.send(Method::GET, path, String::new(), "text/event-stream").await?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        bail!("{}", refusal(status, &answer.into_body().collect().await?.to_bytes()));
    }
    let mut events = Events::of(answer);
    loop {
        let event = events.next().await?.context("the server ended the events")?;
        match event.name.as_str() {
            "record" => {
                let record = serde_json::from_str(&event.data).context("the server sent no JSON")?;
                show(&line(&record, is_json))?;
            }
            "failed" => bail!("{}", event.data),
            _ => {}
        }
    }
}

/// An event on a line: number, time, what, the job's name and id, and what belongs to it.
fn line(record: &Value, is_json: bool) -> String {
    if is_json {
        return format!("{record}\n");
    }
    let value = &record["value"];
    let [number, time] = ["offset", "timestamp"].map(|key| cell(&record[key]));
    let [event, name, job] = ["event", "name", "job"].map(|key| cell(&value[key]));
    let is_more = |(key, _): &(&String, &Value)| !matches!(key.as_str(), "event" | "name" | "job");
    let more = value.as_object().into_iter().flatten().filter(is_more);
    let more: String = more.map(|(key, value)| format!("  {key}={}", cell(value))).collect();
    format!("{number:>6}  {time}  {event:<10}  {name}  {job}{more}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let value = json!({"event": "failed", "job": "d1", "name": "doubling", "reason": "no room\u{1b}"});
        let record = json!({"offset": 7, "timestamp": "2026-01-01T00:00:00.000Z", "value": value});
        let told = line(&record, false);
        assert!(
            told.starts_with("     7  2026-01-01T00:00:00.000Z  failed      doubling  d1  reason=no room"),
            "{told}"
        );
        assert!(!told.contains('\u{1b}'));
    }
}
