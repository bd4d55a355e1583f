//! `millstream group`: consumer groups and how far they have read, from the terminal.

use std::collections::BTreeMap;

use anyhow::bail;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Server, encoded};
use crate::terminal::{self, aligned, cell, show, show_lines};

/// Arguments of `millstream group`.
#[derive(Debug, clap::Args)]
pub struct GroupArgs {
    #[command(subcommand)]
    action: GroupAction,
    #[command(flatten)]
    server: Server,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum GroupAction {
    /// List the tenant's consumer groups with their topics and lags
    List,
    /// Show the positions of a consumer group in each partition
    Show {
        /// The group
        group: String,
    },
}

/// The progress of a group in a topic.
struct ReadTopic {
    topic: String,
    /// `group`, `lag` and `partitions`, as the server tells them.
    progress: Value,
}

pub(crate) fn run(arguments: &GroupArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(act(arguments))
}

async fn act(arguments: &GroupArgs) -> anyhow::Result<()> {
    let groups = groups(&arguments.server).await?;
    match &arguments.action {
        GroupAction::List if arguments.json => {
            show_lines(&groups.iter().map(|(group, read)| summed(group, read)).collect::<Vec<_>>())
        }
        GroupAction::List => show(&table(&groups)),
        GroupAction::Show { group } => {
            let Some(read) = groups.get(group) else {
                bail!(
                    "no group '{group}' has a position in a topic of this tenant; 'millstream group list' names those that have"
                );
            };
            if arguments.json { show_lines([&detailed(group, read)]) } else { show(&positions(group, read)) }
        }
    }
}

/// The groups that have a position in a topic, by name.
async fn groups(server: &Server) -> anyhow::Result<BTreeMap<String, Vec<ReadTopic>>> {
    let mut groups: BTreeMap<String, Vec<ReadTopic>> = BTreeMap::new();
    let topics = server.ask(Method::GET, "/api/streams", String::new()).await?;
    for name in topics.as_array().into_iter().flatten().filter_map(|topic| topic["name"].as_str()) {
        // Nothing there: the topic was deleted meanwhile.
        let Some(topic) = server.ask_if_any(&format!("/api/streams/{}/info", encoded(name))).await? else { continue };
        for progress in topic["groups"].as_array().into_iter().flatten() {
            let read = ReadTopic { topic: name.to_owned(), progress: progress.clone() };
            groups.entry(cell(&progress["group"])).or_default().push(read);
        }
    }
    Ok(groups)
}

fn lag(read: &[ReadTopic]) -> u64 {
    read.iter().filter_map(|read| read.progress["lag"].as_u64()).sum()
}

fn summed(group: &str, read: &[ReadTopic]) -> Value {
    let topics: Vec<&str> = read.iter().map(|read| read.topic.as_str()).collect();
    json!({"group": group, "topics": topics, "lag": lag(read)})
}

fn detailed(group: &str, read: &[ReadTopic]) -> Value {
    let topics = read.iter().map(
        |read| json!({"topic": read.topic, "lag": read.progress["lag"], "partitions": read.progress["partitions"]}),
    );
    json!({"group": group, "lag": lag(read), "topics": topics.collect::<Vec<_>>()})
}

fn table(groups: &BTreeMap<String, Vec<ReadTopic>>) -> String {
    let mut rows = vec![["GROUP", "TOPICS", "LAG"].map(str::to_owned)];
    for (group, read) in groups {
        let topics: Vec<&str> = read.iter().map(|read| read.topic.as_str()).collect();
        rows.push([group.clone(), topics.join(","), lag(read).to_string()]);
    }
    aligned(&rows)
}

fn positions(group: &str, read: &[ReadTopic]) -> String {
    let mut rows = vec![["TOPIC", "PARTITION", "POSITION", "LAG"].map(str::to_owned)];
    for ReadTopic { topic, progress } in read {
        for partition in progress["partitions"].as_array().into_iter().flatten() {
            let text = |name: &str| cell(&partition[name]);
            rows.push([topic.clone(), text("partition"), text("position"), text("lag")]);
        }
    }
    format!("group {group}\n{}", aligned(&rows))
}
