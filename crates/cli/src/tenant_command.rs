//! `millstream tenant`: the registry's tenants, from the terminal.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use serde_json::{Map, Value, json};

use crate::client::{Server, accepted, encoded};
use crate::terminal::{self, aligned, cell, show, show_lines};

/// Tenants in one answer of the registry.
const PAGE: u64 = 200;

/// Arguments of `millstream tenant`.
#[derive(Debug, clap::Args)]
pub struct TenantArgs {
    #[command(subcommand)]
    action: TenantAction,
    #[command(flatten)]
    server: Server,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum TenantAction {
    /// Create a tenant
    Create {
        /// The tenant's id
        #[arg(id = "named_tenant", value_name = "TENANT")]
        tenant: String,
        /// A file with its settings in JSON; - is standard input [default: no settings]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// A setting such as enabled=false or resource-limits='{"max-connections": 5}'; may be repeated
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, Value)>,
    },
    /// List the tenants
    List,
    /// Show a tenant and its settings
    Show {
        /// The tenant's id
        #[arg(id = "named_tenant", value_name = "TENANT")]
        tenant: String,
    },
    /// Change settings of a tenant; the others stay
    Update {
        /// The tenant's id
        #[arg(id = "named_tenant", value_name = "TENANT")]
        tenant: String,
        /// Settings such as enabled=false or ext='{"site": "north"}'; null takes one away
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, Value)>,
    },
    /// Delete a tenant with its devices and credentials
    Delete {
        /// The tenant's id
        #[arg(id = "named_tenant", value_name = "TENANT")]
        tenant: String,
    },
}

impl TenantAction {
    fn tenant(&self) -> Option<&str> {
        match self {
            Self::List => None,
            Self::Create { tenant, .. }
            | Self::Show { tenant }
            | Self::Update { tenant, .. }
            | Self::Delete { tenant } => Some(tenant),
        }
    }
}

/// A key and its value: JSON, or else a text.
fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("use KEY=VALUE, such as enabled=false")?;
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
}

pub(crate) fn run(arguments: &TenantArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(act(arguments))
}

async fn act(arguments: &TenantArgs) -> anyhow::Result<()> {
    let is_json = arguments.json;
    let server = match arguments.action.tenant() {
        Some(tenant) => &arguments.server.acting_in(tenant)?,
        None => &arguments.server,
    };
    match &arguments.action {
        TenantAction::Create { tenant, file, settings } => {
            let mut body = file.as_deref().map_or_else(|| Ok(Map::new()), read_settings)?;
            merge(&mut body, settings);
            server.answered(Method::POST, &path(tenant), Value::from(body).to_string()).await?;
            done(is_json, tenant, "is created")
        }
        TenantAction::List => list(server, is_json).await,
        TenantAction::Show { tenant } => {
            let mut known = server.ask(Method::GET, &path(tenant), String::new()).await?;
            known["id"] = tenant.as_str().into();
            if is_json { show_lines([&known]) } else { show(&described(tenant, &known)) }
        }
        TenantAction::Update { tenant, settings } => {
            update(server, tenant, settings).await?;
            done(is_json, tenant, "is changed")
        }
        TenantAction::Delete { tenant } => {
            server.answered(Method::DELETE, &path(tenant), String::new()).await?;
            done(is_json, tenant, "with its devices and credentials is deleted")
        }
    }
}

/// Changes settings, unless somebody else has changed the tenant meanwhile.
async fn update(server: &Server, tenant: &str, settings: &[(String, Value)]) -> anyhow::Result<()> {
    let answer = server.send(Method::GET, &path(tenant), String::new(), "application/json").await?;
    let version = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let mut body: Map<String, Value> =
        serde_json::from_slice(&accepted(answer).await?).context("the server sent no JSON")?;
    merge(&mut body, settings);
    let condition = version.iter().map(|version| (IF_MATCH.as_str(), version.as_str()));
    let headers: Vec<_> = [(CONTENT_TYPE.as_str(), "application/json")].into_iter().chain(condition).collect();
    let body = Value::from(body).to_string();
    accepted(server.request(Method::PUT, &path(tenant), body.into(), &headers).await?).await?;
    Ok(())
}

fn path(tenant: &str) -> String {
    format!("/v1/tenants/{}", encoded(tenant))
}

fn done(is_json: bool, tenant: &str, what: &str) -> anyhow::Result<()> {
    if is_json { show_lines([&json!({ "id": tenant })]) } else { show(&format!("tenant {tenant} {what}\n")) }
}

fn read_settings(file: &Path) -> anyhow::Result<Map<String, Value>> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    match serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))? {
        Value::Object(settings) => Ok(settings),
        _ => bail!("{} is no JSON object; write the settings as {{\"enabled\": true, …}}", file.display()),
    }
}

/// Puts settings over those that are there; `null` takes one away.
fn merge(into: &mut Map<String, Value>, settings: &[(String, Value)]) {
    for (key, value) in settings {
        match value {
            Value::Null => drop(into.remove(key)),
            value => drop(into.insert(key.clone(), value.clone())),
        }
    }
}

async fn list(server: &Server, is_json: bool) -> anyhow::Result<()> {
    let mut tenants = Vec::new();
    loop {
        let path = format!("/v1/tenants?pageSize={PAGE}&pageOffset={}", tenants.len());
        // The registry answers 404 where it finds nothing.
        let Some(page) = server.ask_if_any(&path).await? else { break };
        let found = page["result"].as_array().map(Vec::as_slice).unwrap_or_default();
        tenants.extend_from_slice(found);
        if found.is_empty() || tenants.len() as u64 >= page["total"].as_u64().unwrap_or_default() {
            break;
        }
    }
    if is_json { show_lines(&tenants) } else { show(&table(&tenants)) }
}

fn table(tenants: &[Value]) -> String {
    let mut rows = vec![["TENANT", "ENABLED", "ALIAS", "AUTHORITIES"].map(str::to_owned)];
    for tenant in tenants {
        let authorities = tenant["trusted-ca"].as_array().map_or(0, Vec::len);
        let alias = tenant.get("alias").map_or_else(|| "none".to_owned(), cell);
        let is_enabled = tenant["enabled"].as_bool().unwrap_or(true);
        rows.push([cell(&tenant["id"]), is_enabled.to_string(), alias, authorities.to_string()]);
    }
    aligned(&rows)
}

fn described(tenant: &str, known: &Value) -> String {
    let members = known.as_object().into_iter().flatten().filter(|(name, _)| *name != "id");
    let lines: String = members.map(|(name, value)| format!("  {name:18}{}\n", cell(value))).collect();
    format!("tenant {tenant}\n{lines}")
}
