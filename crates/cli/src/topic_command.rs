//! `millstream topic`: topics and their records, from the terminal, over the HTTP API of a running server.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use hyper::Method;
use millstream_types::{TAIL_PARTITIONS_MAX, TenantId, TopicName};
use serde_json::{Map, Value};

use crate::append_command::{self, AppendArgs};
use crate::client::{Events, Server, encoded, refusal};
use crate::query_command::printable;
use crate::terminal::{self, aligned, cell, show, size};

/// Arguments of `millstream topic`.
#[derive(Debug, clap::Args)]
pub struct TopicArgs {
    #[command(subcommand)]
    action: TopicAction,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum TopicAction {
    /// List the tenant's topics
    List,
    /// Create a topic
    Create(CreateArgs),
    /// Describe a topic: its configuration, its partitions, and how far consumer groups have read them
    Describe {
        /// The topic
        topic: String,
    },
    /// Change a topic's settings
    Alter {
        /// The topic
        topic: String,
        /// Settings such as retention=7d, cleanup=compact or retention_bytes=none
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, Value)>,
    },
    /// Append lines of standard input or of a file, as they come
    Append(AppendArgs),
    /// Delete a topic and its records
    Delete {
        /// The topic
        topic: String,
    },
    /// Print records as they arrive, one a line
    Tail(TailArgs),
    /// Print all records that are there now, one JSON object a line, in a form that may be appended again
    Export {
        /// The topic
        topic: String,
        /// These partitions only, such as 0, 0,2 or 0-127 [default: all]
        #[arg(long, value_name = "PARTITIONS")]
        partition: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// The topic
    topic: String,
    /// Number of partitions [default: 4]
    #[arg(long, value_name = "COUNT")]
    partitions: Option<u32>,
    /// Time that records are kept, such as 7d or 12h; none keeps them for ever [default: 7d]
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// Bytes kept in each partition, such as 1GiB [default: no bound]
    #[arg(long, value_name = "SIZE")]
    retention_bytes: Option<String>,
    /// Cleanup of old records: delete, compact (the last of each key stays), or compact,delete [default: delete]
    #[arg(long, value_name = "HOW")]
    cleanup: Option<String>,
    /// Place of the records: disk, or memory (a ring, gone with the server) [default: disk]
    #[arg(long, value_name = "WHERE")]
    storage: Option<String>,
    /// Level of acknowledged records: memory, written (survives kill -9) or synced
    /// (survives power loss) [default: synced]
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    /// none, gzip, snappy, lz4 or zstd [default: none]
    #[arg(long, value_name = "CODEC")]
    compression: Option<String>,
}

#[derive(Debug, clap::Args)]
struct TailArgs {
    /// The topic
    topic: String,
    /// earliest, latest, an ISO time such as 2026-01-31T12:00:00Z, or partition:offset pairs such as 0:17,1:4
    #[arg(long, value_name = "PLACE", default_value = "latest")]
    from: String,
    /// These partitions only, such as 0, 0,2 or 0-127 [default: all]
    #[arg(long, value_name = "PARTITIONS")]
    partition: Option<String>,
    /// End after so many records
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Only records whose key is like this: * stands for any characters, ? for one
    #[arg(long, value_name = "PATTERN")]
    key: Option<String>,
    /// Only records with such a header, such as qos=1 or content-type=text/*; may be repeated, all must match
    #[arg(long, value_name = "NAME=PATTERN", value_parser = header)]
    header: Vec<(String, String)>,
    /// Print values only, JSON on one line, others as they are
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(arguments: &TopicArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(act(arguments))
}

async fn act(arguments: &TopicArgs) -> anyhow::Result<()> {
    let server = &arguments.server;
    match &arguments.action {
        TopicAction::List => show(&table(&server.ask(Method::GET, "/api/streams", String::new()).await?)),
        TopicAction::Create(create) => {
            let path = path(server, &create.topic)?;
            let created = server.ask(Method::PUT, &path, create.settings().to_string()).await?;
            show(&described(&created))
        }
        TopicAction::Describe { topic } => {
            let path = format!("{}/info", path(server, topic)?);
            show(&described(&server.ask(Method::GET, &path, String::new()).await?))
        }
        TopicAction::Alter { topic, settings } => {
            let changes: Map<_, _> = settings.iter().cloned().collect();
            let body = Value::Object(changes).to_string();
            show(&described(&server.ask(Method::PATCH, &path(server, topic)?, body).await?))
        }
        TopicAction::Append(append) => append_command::append(server, &path(server, &append.topic)?, append).await,
        TopicAction::Delete { topic } => {
            server.answered(Method::DELETE, &path(server, topic)?, String::new()).await?;
            show(&format!("topic {topic} and its records are deleted\n"))
        }
        TopicAction::Tail(tail) => {
            let path = format!("{}?{}", path(server, &tail.topic)?, tail.query());
            follow(server, &path, tail.raw).await
        }
        TopicAction::Export { topic, partition } => export(server, topic, partition.as_deref()).await,
    }
}

impl CreateArgs {
    fn settings(&self) -> Value {
        let texts = [
            ("retention", &self.retention),
            ("retention_bytes", &self.retention_bytes),
            ("cleanup", &self.cleanup),
            ("storage", &self.storage),
            ("level", &self.level),
            ("compression", &self.compression),
        ];
        let given = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.as_deref()?.into())));
        let partitions = self.partitions.map(|count| ("partitions".to_owned(), count.into()));
        Value::Object(given.chain(partitions).collect::<Map<_, _>>())
    }
}

impl TailArgs {
    fn query(&self) -> String {
        let given = |name: &str, value: &Option<String>| value.clone().map(|value| (name.to_owned(), value));
        let headers = self.header.iter().map(|(name, pattern)| (format!("header.{name}"), pattern.clone()));
        let limit = self.limit.map(|limit| limit.to_string());
        [("from".to_owned(), self.from.clone())]
            .into_iter()
            .chain(given("partition", &self.partition))
            .chain(given("limit", &limit))
            .chain(given("key", &self.key))
            .chain(headers)
            .map(|(name, value)| format!("{}={}", encoded(&name), encoded(&value)))
            .collect::<Vec<_>>()
            .join("&")
    }
}

/// A setting's name and value; `none` takes its bound away.
fn setting(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, "none")) if name.starts_with("retention") => Ok((name.to_owned(), Value::Null)),
        Some((name, value)) if !name.is_empty() => {
            Ok((name.to_owned(), value.parse::<u64>().map_or_else(|_| value.into(), Value::from)))
        }
        _ => Err("use KEY=VALUE, such as retention=7d".to_owned()),
    }
}

/// A header's name and a pattern for its value.
fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, pattern)) if !name.is_empty() => Ok((name.to_owned(), pattern.to_owned())),
        _ => Err("use NAME=PATTERN, such as qos=1".to_owned()),
    }
}

/// The topic's path; what is no name is not asked for.
fn path(server: &Server, topic: &str) -> anyhow::Result<String> {
    TopicName::parse(topic, &TenantId::new(server.tenant())?)?;
    Ok(format!("/api/streams/{topic}"))
}

/// Prints all there is, of so many partitions at a time as one tail reads.
async fn export(server: &Server, topic: &str, partition: Option<&str>) -> anyhow::Result<()> {
    let path = path(server, topic)?;
    let turns = match partition {
        Some(named) => vec![named.to_owned()],
        None => {
            let described = server.ask(Method::GET, &format!("{path}/info"), String::new()).await?;
            let count = partitions(&described).count();
            let firsts = (0..count).step_by(TAIL_PARTITIONS_MAX as usize);
            firsts.map(|first| format!("{first}-{}", (first + TAIL_PARTITIONS_MAX as usize).min(count) - 1)).collect()
        }
    };
    for turn in turns {
        let query = format!("from=earliest&until=latest&partition={}", encoded(&turn));
        follow(server, &format!("{path}?{query}"), false).await?;
    }
    Ok(())
}

/// Prints records until the server says that there are no more.
async fn follow(server: &Server, path: &str, raw: bool) -> anyhow::Result<()> {
    let answer = server.send(Method::GET, path, String::new(), "text/event-stream").await?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        bail!("{}", refusal(status, &answer.into_body().collect().await?.to_bytes()));
    }
    let mut events = Events::of(answer);
    let out = io::stdout();
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "record" if raw => line(&out, &value(&event.data)?)?,
            "record" => line(&out, event.data.as_bytes())?,
            "gap" => eprintln!("millstream: records are gone, going on behind them: {}", event.data),
            "end" => return Ok(()),
            "failed" => bail!("{}", serde_json::from_str::<Value>(&event.data)?["cause"].as_str().unwrap_or_default()),
            _ => {}
        }
    }
    bail!("the server ended the answer: it stops, or the connection broke")
}

/// A line; on a terminal, control characters by their codes.
fn line(out: &io::Stdout, bytes: &[u8]) -> io::Result<()> {
    let mut locked = out.lock();
    if out.is_terminal() {
        locked.write_all(printable(&String::from_utf8_lossy(bytes)).as_bytes())?;
    } else {
        locked.write_all(bytes)?;
    }
    locked.write_all(b"\n")?;
    locked.flush()
}

/// The value in a record, as its bytes were; none for a record without.
fn value(record: &str) -> anyhow::Result<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Shown<'a> {
        #[serde(borrow)]
        value: Option<&'a serde_json::value::RawValue>,
        value_text: Option<String>,
        value_base64: Option<String>,
    }
    let shown: Shown<'_> = serde_json::from_str(record).context("the server sent no record")?;
    Ok(match (shown.value, shown.value_text, shown.value_base64) {
        (Some(json), _, _) => json.get().as_bytes().to_vec(),
        (_, Some(text), _) => text.into_bytes(),
        (_, _, Some(encoded)) => STANDARD.decode(encoded).context("the server sent no base64")?,
        _ => Vec::new(),
    })
}

fn table(topics: &Value) -> String {
    let head = ["TOPIC", "PARTITIONS", "STORAGE", "LEVEL", "CLEANUP", "RETENTION", "OFFSETS", "SIZE", "SEGMENTS"];
    let mut rows = vec![head.map(str::to_owned)];
    for topic in topics.as_array().into_iter().flatten() {
        let text = |setting: &str| cell(&topic["config"][setting]);
        let span: u64 =
            partitions(topic).map(|partition| number(partition, "stable") - number(partition, "first")).sum();
        rows.push([
            cell(&topic["name"]),
            text("partitions"),
            text("storage"),
            text("level"),
            text("cleanup"),
            text("retention"),
            span.to_string(),
            size(number(topic, "bytes")),
            cell(&topic["segments"]),
        ]);
    }
    aligned(&rows)
}

fn described(topic: &Value) -> String {
    let mut text = format!("topic {}\n", cell(&topic["name"]));
    for (setting, value) in topic["config"].as_object().into_iter().flatten() {
        let shown = match value.as_u64().filter(|_| setting.ends_with("_bytes")) {
            Some(bytes) => size(bytes),
            None => cell(value),
        };
        text.push_str(&format!("  {setting:18}{shown}\n"));
    }
    let mut rows = vec![["PARTITION", "FIRST", "STABLE", "TAIL", "SIZE", "SEGMENTS"].map(str::to_owned)];
    for partition in partitions(topic) {
        let text = |name: &str| cell(&partition[name]);
        let bytes = size(number(partition, "bytes"));
        rows.push([text("partition"), text("first"), text("stable"), text("tail"), bytes, text("segments")]);
    }
    text + &aligned(&rows) + &groups(topic)
}

/// Formats the positions of the consumer groups; empty if there are none.
fn groups(topic: &Value) -> String {
    let mut rows = vec![["GROUP", "PARTITION", "POSITION", "LAG"].map(str::to_owned)];
    for group in topic["groups"].as_array().into_iter().flatten() {
        for partition in partitions(group) {
            let text = |name: &str| cell(&partition[name]);
            rows.push([cell(&group["group"]), text("partition"), text("position"), text("lag")]);
        }
    }
    if rows.len() == 1 { String::new() } else { aligned(&rows) }
}

fn partitions(topic: &Value) -> impl Iterator<Item = &Value> {
    topic["partitions"].as_array().into_iter().flatten()
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_printed_as_its_bytes_were() {
        for (record, expected) in [
            (r#"{"value":{"a":1.50}}"#, &b"{\"a\":1.50}"[..]),
            (r#"{"value_text":"x\ty"}"#, b"x\ty"),
            (r#"{"value_base64":"/w=="}"#, b"\xff"),
            (r#"{"value":null}"#, b""),
        ] {
            assert_eq!(value(record).unwrap(), expected, "{record}");
        }
    }

    #[test]
    fn the_list_is_aligned_and_sizes_are_for_people() {
        let config = |retention: Value| json!({"partitions": 2, "storage": "disk", "level": "synced", "cleanup": "delete", "retention": retention});
        let partition = json!({"partition": 0, "first": 5, "stable": 12, "tail": 12});
        let topics = json!([
            {"name": "a", "config": config(json!("7d")), "bytes": 1536, "segments": 2, "partitions": [partition, partition]},
            {"name": "orders", "config": config(Value::Null), "bytes": 5, "segments": 1, "partitions": []},
        ]);
        assert_eq!(
            table(&topics),
            "TOPIC   PARTITIONS  STORAGE  LEVEL   CLEANUP  RETENTION  OFFSETS  SIZE     SEGMENTS\n\
             a       2           disk     synced  delete   7d         14       1.5 KiB  2\n\
             orders  2           disk     synced  delete   none       0        5 B      1\n"
        );
    }
}
