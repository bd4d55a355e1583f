//! `millstream query`: sends a query to a running server and prints its rows.

use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use hyper::Method;
use jiff::Timestamp;
use millstream_types::{Place, SystemClock, WallClock as _, parse_duration};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::{Events, Server};

/// Narrowest column of the table.
const COLUMN_MIN_CHARS: usize = 8;
/// Widest column of the table; a longer value shifts the rest of its line.
const COLUMN_MAX_CHARS: usize = 40;

/// Arguments of `millstream query`.
#[derive(Debug, clap::Args)]
pub struct QueryArgs {
    /// The query, such as: SELECT temp FROM STREAM(30000, TIME) WHERE temp > 20 LIMIT 10
    query: String,
    /// Output format [default: table on a terminal, else ndjson]
    #[arg(long, value_enum)]
    output: Option<Output>,
    /// Lifetime, such as 30s or 5m, unless the query's text sets it [default: until it is ended]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Its first record: earliest, now, how long ago (2h, 7d), a time, or partition:offset pairs [default: now]
    #[arg(long, value_name = "PLACE", value_parser = parse_place)]
    from: Option<Value>,
    /// End of a query over past records: now, never, how long ago, a time, or partition:offset pairs [default: now,
    /// unless it has a lifetime]
    #[arg(long, value_name = "PLACE", value_parser = parse_until)]
    until: Option<Value>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Aligned columns
    Table,
    /// One JSON object a line
    Ndjson,
    /// Values with commas between them, below a line of names; columns as the query or its first row names them
    Csv,
}

pub(crate) fn run(arguments: &QueryArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(ask(arguments))
}

/// Parses a position in a stream into its request form.
fn parse_place(text: &str) -> Result<Value, &'static str> {
    if let Ok(ago) = parse_duration(text) {
        let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        return Ok(json!({"time_ms": SystemClock::default().now_ms().saturating_sub(ago_ms)}));
    }
    let rule =
        "use earliest, now, how long ago such as 2h, a time such as 2026-01-31T12:00:00Z, or partition:offset pairs";
    match text.parse() {
        _ if text == "now" => Ok(json!("now")),
        Ok(Place::Earliest) => Ok(json!("earliest")),
        Ok(Place::Latest) => Ok(json!("now")),
        Ok(Place::Time(time_ms)) => Ok(json!({"time_ms": time_ms})),
        Ok(Place::At(position)) => {
            let offsets = position.0.iter().map(|(partition, offset)| (partition.to_string(), json!(offset.0)));
            Ok(json!({"offsets": offsets.collect::<Map<_, _>>()}))
        }
        Err(_) => Err(rule),
    }
}

fn parse_until(text: &str) -> Result<Value, &'static str> {
    match text {
        "never" => Ok(json!("never")),
        "earliest" => {
            Err("a query ends after it has begun; use now, never, how long ago, a time, or partition:offset pairs")
        }
        place => parse_place(place),
    }
}

async fn ask(arguments: &QueryArgs) -> anyhow::Result<()> {
    let mut body = json!({"query": arguments.query, "deliver": "sse"});
    if let Some(duration) = arguments.duration {
        body["duration_ms"] = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).into();
    }
    for (member, place) in [("from", &arguments.from), ("until", &arguments.until)] {
        if let Some(place) = place {
            body[member] = place.clone();
        }
    }
    let output =
        arguments.output.unwrap_or(if std::io::stdout().is_terminal() { Output::Table } else { Output::Ndjson });
    // The table shows the device of each row; other formats print rows unchanged.
    body["with_device"] = (output == Output::Table).into();
    let interrupted = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let answer = arguments.server.post("/api/queries", body.to_string(), "text/event-stream").await?;
    if !answer.status().is_success() {
        let status = answer.status();
        let problem = answer.into_body().collect().await?.to_bytes();
        bail!("{}", refusal(&arguments.query, status.as_u16(), &problem));
    }
    // The query is already live, so no rows are lost meanwhile.
    for hint in hints(arguments).await {
        eprintln!("{hint}");
    }
    let printer = Printer { output, columns: Vec::new(), has_header: false, out: std::io::stdout() };
    print_to_the_end(&arguments.server, Events::of(answer), printer, interrupted).await
}

/// Prints rows until the end. The first Ctrl-C ends the query and prints its last results;
/// the second ends this program.
async fn print_to_the_end(
    server: &Server,
    mut events: Events,
    mut printer: Printer<std::io::Stdout>,
    mut interrupted: Signal,
) -> anyhow::Result<()> {
    let (mut id, mut is_interrupted, mut noted) = (String::new(), false, Vec::new());
    loop {
        let event = tokio::select! {
            event = events.next() => event?.context("the server ended the answer before the query had ended")?,
            _ = interrupted.recv() => {
                if std::mem::replace(&mut is_interrupted, true) {
                    bail!("interrupted before the query had ended");
                }
                if !id.is_empty() {
                    end_query(server, &id).await?;
                }
                continue;
            }
        };
        let data: Value = serde_json::from_str(&event.data).context("the server sent no JSON")?;
        match event.name.as_str() {
            "meta" => {
                printer.columns = named_columns(&data);
                data["id"].as_str().unwrap_or_default().clone_into(&mut id);
                if is_interrupted {
                    end_query(server, &id).await?;
                }
            }
            "rows" => printer.print_all(&data)?,
            "window" => {
                printer.print_window(&data)?;
                let told = notes(&data["meta"]["window"]);
                if told != noted {
                    told.iter().for_each(|note| eprintln!("{note}"));
                    noted = told;
                }
            }
            "end" => {
                notes(&data).iter().for_each(|note| eprintln!("{note}"));
                eprintln!("{}", summary(&data));
                return Ok(());
            }
            _ => {}
        }
    }
}

async fn end_query(server: &Server, id: &str) -> anyhow::Result<()> {
    server.send(Method::DELETE, &format!("/api/queries/{id}"), String::new(), "*/*").await?;
    Ok(())
}

/// Returns hints about fields that no inspected record has, with the likely names; none if the server cannot tell.
async fn hints(arguments: &QueryArgs) -> Vec<String> {
    let body = json!({"query": arguments.query}).to_string();
    let Ok(answer) = arguments.server.post("/api/queries/validate", body, "application/json").await else {
        return Vec::new();
    };
    let Ok(body) = answer.into_body().collect().await else { return Vec::new() };
    let told: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let hints = told["hints"].as_array().into_iter().flatten();
    hints.map(|hint| format!("hint:{}", pointed_at(&arguments.query, hint))).collect()
}

/// Returns the columns that the query names; none for `SELECT *`.
fn named_columns(meta: &Value) -> Vec<(String, usize)> {
    let names = meta["columns"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| (name.to_owned(), name.len())).collect()
}

/// Explains a refusal and points at the position in the query.
fn refusal(query: &str, status: u16, problem: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(problem).unwrap_or_default();
    let mut text = problem["detail"].as_str().map_or_else(|| format!("refused with status {status}"), str::to_owned);
    for error in problem["errors"].as_array().into_iter().flatten() {
        text.push_str(&pointed_at(query, error));
    }
    text
}

/// Renders a diagnostic with its position and a suggestion.
fn pointed_at(query: &str, error: &Value) -> String {
    let number = |name: &str| error[name].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1).max(1);
    let (line, column, length) = (number("line"), number("column"), number("length"));
    let mut text = format!("\n  {line}:{column} {}", error["message"].as_str().unwrap_or_default());
    if let Some(shown) = query.lines().nth(line - 1) {
        let width = shown.chars().count();
        let (indent, marks) = (" ".repeat((column - 1).min(width)), "^".repeat(length.min(width.max(1))));
        text.push_str(&format!("\n    {shown}\n    {indent}{marks}"));
    }
    if let Some(suggestion) = error["suggestion"].as_str() {
        text.push_str(&format!("\n  did you mean {suggestion}?"));
    }
    text
}

/// Returns notes about estimated results.
fn notes(meta: &Value) -> Vec<String> {
    let notes = meta["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    notes.map(|note| format!("note: {note}")).collect()
}

fn summary(meta: &Value) -> String {
    let count = |name: &str| meta[name].as_u64().unwrap_or_default();
    let late = match count("late") {
        0 => String::new(),
        late => format!(", {late} came after the windows of their times"),
    };
    format!(
        "ended by {}: {} of {} records matched, {} dropped, {} errors{late}",
        meta["cause"].as_str().unwrap_or("unknown"),
        count("matched"),
        count("records_seen"),
        count("dropped"),
        count("evaluation_errors"),
    )
}

/// The bounds of a window that has some.
fn bounds(window: &Value) -> Option<String> {
    let time = |name: &str| Timestamp::from_millisecond(window[name].as_i64()?).ok();
    Some(format!("{} to {}", time("start_ms")?, time("end_ms")?))
}

/// Prints rows, with the header before the first one.
struct Printer<W> {
    output: Output,
    columns: Vec<(String, usize)>,
    has_header: bool,
    out: W,
}

impl<W: Write> Printer<W> {
    fn print_all(&mut self, data: &Value) -> std::io::Result<()> {
        data["records"].as_array().into_iter().flatten().try_for_each(|record| self.print(record))
    }

    /// Prints the rows of a window; the table gets a separator line.
    fn print_window(&mut self, data: &Value) -> std::io::Result<()> {
        if self.output == Output::Table {
            if let Some(Value::Object(first)) = data["records"].get(0) {
                self.print_header(first)?;
            }
            let window = &data["meta"]["window"];
            let records = window["records"].as_u64().unwrap_or_default();
            let unit = if records == 1 { "record" } else { "records" };
            let bounds = bounds(window).map(|bounds| format!(", {bounds}")).unwrap_or_default();
            writeln!(self.out, "── window {}{bounds}: {records} {unit}", window["number"])?;
            self.out.flush()?;
        }
        self.print_all(data)
    }

    /// Prints the column names once.
    fn print_header(&mut self, first: &Map<String, Value>) -> std::io::Result<()> {
        if std::mem::replace(&mut self.has_header, true) {
            return Ok(());
        }
        self.settle_columns(first);
        let names = self.columns.iter();
        let header = match self.output {
            Output::Table => {
                names.map(|(name, width)| format!("{:width$}", printable(name))).collect::<Vec<_>>().join("  ")
            }
            _ => names.map(|(name, _)| quoted(name)).collect::<Vec<_>>().join(","),
        };
        writeln!(self.out, "{}", header.trim_end())
    }

    fn print(&mut self, record: &Value) -> std::io::Result<()> {
        match (self.output, record) {
            (Output::Table, Value::Object(members)) => {
                self.print_header(members)?;
                let line = self.line(members);
                writeln!(self.out, "{line}")?;
            }
            (Output::Csv, Value::Object(members)) => {
                self.print_header(members)?;
                let values = self.columns.iter().map(|(name, _)| match members.get(name) {
                    None | Some(Value::Null) => String::new(),
                    Some(Value::String(text)) => quoted(text),
                    Some(other) => quoted(&other.to_string()),
                });
                let line = values.collect::<Vec<_>>().join(",");
                writeln!(self.out, "{line}")?;
            }
            _ => writeln!(self.out, "{record}")?,
        }
        self.out.flush()
    }

    /// Takes the columns from the query, or else from the first row, and their widths from the first row.
    fn settle_columns(&mut self, first: &Map<String, Value>) {
        if self.columns.is_empty() {
            self.columns = first.keys().map(|name| (name.clone(), name.len())).collect();
        }
        for (name, width) in &mut self.columns {
            let shown = first.get(name).map_or(0, |value| cell(value).chars().count());
            *width = (*width).max(shown).clamp(COLUMN_MIN_CHARS, COLUMN_MAX_CHARS);
        }
    }

    fn line(&self, members: &Map<String, Value>) -> String {
        let cells = self.columns.iter().map(|(name, width)| {
            let value = members.get(name).unwrap_or(&Value::Null);
            format!("{:width$}", cell(value))
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

/// Escapes control characters, so that device data cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Quotes a CSV value (RFC 4180) if needed.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Formats a table value: strings without quotes, null as nothing.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_values_with_separators_quotes_and_line_breaks() {
        for (text, expected) in
            [("a", "a"), ("a,b", "\"a,b\""), ("say \"x\"", "\"say \"\"x\"\"\""), ("a\nb", "\"a\nb\"")]
        {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn a_refusal_points_at_the_place_in_the_text() {
        let problem = json!({"detail": "the query has 1 error", "errors":
            [{"message": "expected FROM", "line": 1, "column": 8, "length": 4, "suggestion": "FROM"}]});
        let text = refusal("SELECT FORM STREAM()", 422, problem.to_string().as_bytes());
        assert_eq!(
            text,
            "the query has 1 error\n  1:8 expected FROM\n    SELECT FORM STREAM()\n           ^^^^\n  did you mean FROM?"
        );
    }

    #[test]
    fn places_outside_the_text_are_marked_within_it() {
        let problem =
            json!({"detail": "no", "errors": [{"message": "m", "line": 0, "column": 99, "length": u64::MAX}]});
        assert_eq!(refusal("abc", 422, problem.to_string().as_bytes()), "no\n  1:99 m\n    abc\n       ^^^");
    }

    #[test]
    fn control_characters_of_devices_do_not_reach_the_terminal() {
        assert_eq!(cell(&json!("a\u{1b}[2Jb\nc")), "a\\u{1b}[2Jb\\u{a}c");
        assert_eq!(cell(&json!("Zürich")), "Zürich");
    }

    fn printer(output: Output) -> Printer<Vec<u8>> {
        Printer { output, columns: Vec::new(), has_header: false, out: Vec::new() }
    }

    #[test]
    fn windows_are_set_apart_in_the_table_only() {
        let window = |number: u64, records: Value| {
            json!({"meta": {"window": {"number": number,
            "records": records.as_array().map_or(0, Vec::len)}}, "records": records})
        };
        let windows = [
            window(1, json!([{"mm": 8, "n": 2}, {"mm": "a,b", "n": null}])),
            window(2, json!([])),
            window(3, json!([{"mm": 30, "n": 1}])),
        ];
        let table = "mm        n\n── window 1: 2 records\n8         2\na,b\n── window 2: 0 records\n\
            ── window 3: 1 record\n30        1\n";
        let csv = "mm,n\n8,2\n\"a,b\",\n30,1\n";
        let ndjson = "{\"mm\":8,\"n\":2}\n{\"mm\":\"a,b\",\"n\":null}\n{\"mm\":30,\"n\":1}\n";
        for (output, expected) in [(Output::Table, table), (Output::Csv, csv), (Output::Ndjson, ndjson)] {
            let mut printer = printer(output);
            windows.iter().for_each(|window| printer.print_window(window).unwrap());
            assert_eq!(String::from_utf8(printer.out).unwrap(), expected);
        }
    }

    #[test]
    fn a_window_that_lies_on_time_is_told_with_its_bounds() {
        let window =
            json!({"number": 1, "records": 2, "start_ms": 1_767_225_600_000_i64, "end_ms": 1_767_225_660_500_i64});
        let mut printer = printer(Output::Table);
        printer.print_window(&json!({"meta": {"window": window}, "records": [{"n": 2}]})).unwrap();
        let expected = "n\n── window 1, 2026-01-01T00:00:00Z to 2026-01-01T00:01:00.5Z: 2 records\n2\n";
        assert_eq!(String::from_utf8(printer.out).unwrap(), expected);
    }

    #[test]
    fn columns_follow_the_query_and_missing_values_stay_blank() {
        let mut printer = printer(Output::Table);
        printer.columns = vec![("temp".into(), 4), ("name".into(), 4)];
        let first = json!({"temp": 21.5, "name": "a long name of a station"});
        let first = first.as_object().unwrap();
        printer.settle_columns(first);
        assert_eq!(printer.line(first), "21.5      a long name of a station");
        let second = json!({"name": "JFK", "temp": null});
        assert_eq!(printer.line(second.as_object().unwrap()), "          JFK");
    }
}
