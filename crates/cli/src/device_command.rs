//! `millstream device`: the registry's devices and their passwords, from the terminal.

use std::io;

use anyhow::{Context as _, bail};
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Server, encoded};
use crate::terminal::{self, aligned, cell, show, show_lines};

/// Devices in one answer of the registry.
const PAGE: u64 = 200;

/// Arguments of `millstream device`.
#[derive(Debug, clap::Args)]
pub struct DeviceArgs {
    #[command(subcommand)]
    action: DeviceAction,
    #[command(flatten)]
    server: Server,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum DeviceAction {
    /// Register a device
    Add {
        /// The device's id
        device: String,
        /// A gateway that may send for it; may be repeated
        #[arg(long, value_name = "GATEWAY")]
        via: Vec<String>,
        /// Its password; it logs in as DEVICE@TENANT [default: none, it cannot log in]
        #[arg(long, env = "MILLSTREAM_DEVICE_PASSWORD", hide_env_values = true)]
        password: Option<String>,
    },
    /// List the tenant's devices
    List,
    /// Show a device and its credentials, without secrets
    Show {
        /// The device's id
        device: String,
    },
    /// Set the password of a device
    Password {
        /// The device's id
        device: String,
        /// The password [default: a line from standard input]
        #[arg(env = "MILLSTREAM_DEVICE_PASSWORD", hide_env_values = true)]
        password: Option<String>,
        /// The name by which it logs in [default: the device's id]
        #[arg(long, value_name = "NAME")]
        auth_id: Option<String>,
    },
    /// Remove a device and its credentials
    Remove {
        /// The device's id
        device: String,
    },
}

pub(crate) fn run(arguments: &DeviceArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(act(arguments))
}

async fn act(arguments: &DeviceArgs) -> anyhow::Result<()> {
    let (server, is_json) = (&arguments.server, arguments.json);
    match &arguments.action {
        DeviceAction::Add { device, via, password } => {
            let body = if via.is_empty() { json!({}) } else { json!({ "via": via }) };
            server.answered(Method::POST, &path(server, "devices", device), body.to_string()).await?;
            if let Some(password) = password {
                set_password(server, device, device, password).await.with_context(|| {
                    format!("device {device} is registered, but has no password; 'millstream device password {device}' sets it")
                })?;
            }
            done(is_json, device, "is registered")
        }
        DeviceAction::List => list(server, is_json).await,
        DeviceAction::Show { device } => {
            let mut known = server.ask(Method::GET, &path(server, "devices", device), String::new()).await?;
            let credentials = server.ask(Method::GET, &path(server, "credentials", device), String::new()).await?;
            known["id"] = device.as_str().into();
            known["credentials"] = credentials;
            if is_json { show_lines([&known]) } else { show(&described(device, &known)) }
        }
        DeviceAction::Password { device, password, auth_id } => {
            let password = password.clone().map_or_else(typed_password, Ok)?;
            set_password(server, device, auth_id.as_deref().unwrap_or(device), &password).await?;
            done(is_json, device, "has a new password")
        }
        DeviceAction::Remove { device } => {
            server.answered(Method::DELETE, &path(server, "devices", device), String::new()).await?;
            done(is_json, device, "and its credentials are removed")
        }
    }
}

fn done(is_json: bool, device: &str, what: &str) -> anyhow::Result<()> {
    if is_json { show_lines([&json!({ "id": device })]) } else { show(&format!("device {device} {what}\n")) }
}

fn path(server: &Server, collection: &str, device: &str) -> String {
    format!("/v1/{collection}/{}/{}", encoded(server.tenant()), encoded(device))
}

fn typed_password() -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("cannot read the password from standard input")?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        bail!("the password is empty; write it on one line of standard input, or as the argument behind the device");
    }
    Ok(password.to_owned())
}

/// Gives a login a password; the device's other credentials stay.
async fn set_password(server: &Server, device: &str, auth_id: &str, password: &str) -> anyhow::Result<()> {
    let path = path(server, "credentials", device);
    let known = server.ask(Method::GET, &path, String::new()).await?;
    let mut credentials = known.as_array().cloned().unwrap_or_default();
    let is_same = |known: &&mut Value| known["type"] == "hashed-password" && known["auth-id"] == auth_id;
    let secrets = json!([{ "pwd-plain": password }]);
    match credentials.iter_mut().find(is_same) {
        Some(login) => login["secrets"] = secrets,
        None => credentials.push(json!({"type": "hashed-password", "auth-id": auth_id, "secrets": secrets})),
    }
    server.answered(Method::PUT, &path, Value::Array(credentials).to_string()).await?;
    Ok(())
}

async fn list(server: &Server, is_json: bool) -> anyhow::Result<()> {
    let mut devices = Vec::new();
    loop {
        let path = format!("/v1/devices/{}?pageSize={PAGE}&pageOffset={}", encoded(server.tenant()), devices.len());
        // The registry answers 404 where it finds nothing.
        let Some(page) = server.ask_if_any(&path).await? else { break };
        let found = page["result"].as_array().map(Vec::as_slice).unwrap_or_default();
        devices.extend_from_slice(found);
        if found.is_empty() || devices.len() as u64 >= page["total"].as_u64().unwrap_or_default() {
            break;
        }
    }
    if is_json { show_lines(&devices) } else { show(&table(&devices)) }
}

fn table(devices: &[Value]) -> String {
    let mut rows = vec![["DEVICE", "ENABLED", "CONNECTED", "VIA", "CREATED"].map(str::to_owned)];
    for device in devices {
        let via: Vec<String> = device["via"].as_array().into_iter().flatten().map(cell).collect();
        let is_enabled = device["enabled"].as_bool().unwrap_or(true);
        rows.push([
            cell(&device["id"]),
            is_enabled.to_string(),
            cell(&device["status"]["connected"]),
            if via.is_empty() { "none".to_owned() } else { via.join(",") },
            cell(&device["status"]["created"]),
        ]);
    }
    aligned(&rows)
}

fn described(device: &str, known: &Value) -> String {
    let mut text = format!("device {device}\n");
    for (name, value) in known.as_object().into_iter().flatten().filter(|(name, _)| *name != "id") {
        match value.as_array().filter(|_| name == "credentials") {
            Some(credentials) => {
                let mut rows = vec![["LOGIN", "TYPE", "ENABLED", "SECRETS"].map(str::to_owned)];
                rows.extend(credentials.iter().map(|login| {
                    let secrets = login["secrets"].as_array().map_or(0, Vec::len);
                    let is_enabled = login["enabled"].as_bool().unwrap_or(true);
                    [cell(&login["auth-id"]), cell(&login["type"]), is_enabled.to_string(), secrets.to_string()]
                }));
                text.push_str(&aligned(&rows));
            }
            None => text.push_str(&format!("  {name:18}{}\n", cell(value))),
        }
    }
    text
}
