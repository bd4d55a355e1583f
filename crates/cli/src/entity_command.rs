//! `millstream entity`: entities from the terminal, over the NGSI v2 API of a running server.

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::client::{Server, encoded};
use crate::terminal::{self, aligned, cell, show, show_lines};

/// Arguments of `millstream entity`.
#[derive(Debug, clap::Args)]
pub struct EntityArgs {
    #[command(subcommand)]
    action: EntityAction,
    #[command(flatten)]
    server: Server,
    /// Print JSON, one entity a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum EntityAction {
    /// List entities
    List {
        /// Only entities whose attributes match, such as 'temperature>20;room==kitchen'
        #[arg(short = 'q', long = "query", value_name = "FILTER")]
        filter: Option<String>,
        /// Only entities of this type
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Most entities to list, 1 to 1000
        #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Number of entities to skip
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        offset: u64,
    },
    /// Show an entity's attributes
    Show {
        /// The entity's id
        id: String,
        /// Its type, where several entities have that id
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
    },
    /// Set attributes of an entity; it is created if it does not exist
    Set {
        /// The entity's id
        id: String,
        /// Attributes, such as temperature=21.5 or room=kitchen; a value that is JSON is taken as such, others as text
        #[arg(required = true, value_name = "NAME=VALUE", value_parser = attribute)]
        attributes: Vec<(String, Value)>,
        /// Its type [default: that of the entity; Thing for a new one]
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
    },
    /// Delete an entity
    Delete {
        /// The entity's id
        id: String,
        /// Its type, where several entities have that id
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
    },
}

pub(crate) fn run(arguments: &EntityArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(act(arguments))
}

/// An attribute's name and value.
fn attribute(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
        }
        _ => Err("use NAME=VALUE, such as temperature=21.5".to_owned()),
    }
}

async fn act(arguments: &EntityArgs) -> anyhow::Result<()> {
    let (server, is_json) = (&arguments.server, arguments.json);
    match &arguments.action {
        EntityAction::List { filter, kind, limit, offset } => {
            let mut path = format!("/v2/entities?options=keyValues&limit={limit}&offset={offset}");
            for (name, value) in [("q", filter), ("type", kind)] {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", encoded(value)));
                }
            }
            let entities = server.ask(Method::GET, &path, String::new()).await?;
            let entities = entities.as_array().map(Vec::as_slice).unwrap_or_default();
            if is_json { show_lines(entities) } else { show(&table(entities)) }
        }
        EntityAction::Show { id, kind } => {
            let entity = server.ask(Method::GET, &path(id, kind.as_deref()), String::new()).await?;
            if is_json { show_lines([&entity]) } else { show(&described(&entity)) }
        }
        EntityAction::Set { id, attributes, kind } => {
            let mut entity: Map<String, Value> = attributes.iter().cloned().collect();
            entity.insert("id".to_owned(), id.as_str().into());
            if let Some(kind) = kind {
                entity.insert("type".to_owned(), kind.as_str().into());
            }
            let body = json!({"actionType": "append", "entities": [entity]});
            server.answered(Method::POST, "/v2/op/update?options=keyValues", body.to_string()).await?;
            done(is_json, id, "is set")
        }
        EntityAction::Delete { id, kind } => {
            server.answered(Method::DELETE, &path(id, kind.as_deref()), String::new()).await?;
            done(is_json, id, "is deleted")
        }
    }
}

fn done(is_json: bool, id: &str, what: &str) -> anyhow::Result<()> {
    if is_json { show_lines([&json!({ "id": id })]) } else { show(&format!("entity {id} {what}\n")) }
}

fn path(id: &str, kind: Option<&str>) -> String {
    let kind = kind.map(|kind| format!("?type={}", encoded(kind)));
    format!("/v2/entities/{}{}", encoded(id), kind.unwrap_or_default())
}

/// One entity a row: its attributes as `name=value`.
fn table(entities: &[Value]) -> String {
    let mut rows = vec![["ENTITY", "TYPE", "ATTRIBUTES"].map(str::to_owned)];
    for entity in entities {
        let attributes = attributes(entity).map(|(name, value)| format!("{name}={}", cell(value)));
        rows.push([cell(&entity["id"]), cell(&entity["type"]), attributes.collect::<Vec<_>>().join(" ")]);
    }
    aligned(&rows)
}

fn described(entity: &Value) -> String {
    let mut rows = vec![["ATTRIBUTE", "TYPE", "VALUE"].map(str::to_owned)];
    let cells = |(name, told): (&String, &Value)| [name.clone(), cell(&told["type"]), cell(&told["value"])];
    rows.extend(attributes(entity).map(cells));
    format!("entity {} of type {}\n{}", cell(&entity["id"]), cell(&entity["type"]), aligned(&rows))
}

fn attributes(entity: &Value) -> impl Iterator<Item = (&String, &Value)> {
    entity.as_object().into_iter().flatten().filter(|(name, _)| !matches!(name.as_str(), "id" | "type"))
}
