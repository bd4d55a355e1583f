//! `millstream token`: API tokens, from the terminal, over the HTTP API of a running server.

use hyper::Method;
use serde_json::{Map, Value};

use crate::client::{Server, encoded};
use crate::terminal::{self, aligned, cell, show};

/// Arguments of `millstream token`.
#[derive(Debug, clap::Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    action: TokenAction,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum TokenAction {
    /// Create a token and print its secret, which is shown this once
    Create(CreateArgs),
    /// List the tokens that were made, without secrets
    List,
    /// Revoke a token: it is refused at once, and connections that use it end
    Revoke {
        /// The token's name
        name: String,
        /// Stop the jobs and kept queries that it has submitted, too
        #[arg(long)]
        and_stop: bool,
    },
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// The token's name, by which Kafka and Redis clients log in
    name: String,
    /// Its roles: reader, writer, admin; may be repeated
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<String>,
    /// Good for all tenants instead of that of --tenant
    #[arg(long)]
    every_tenant: bool,
    /// Only topics whose names begin like this, such as telemetry.; may be repeated
    #[arg(long = "topics", value_name = "PREFIX")]
    topics: Vec<String>,
    /// Only entities whose types begin like this; may be repeated
    #[arg(long = "types", value_name = "PREFIX")]
    types: Vec<String>,
    /// Only keys that begin like this behind their bucket, such as shop/img/ or shop/ for all; may be repeated
    #[arg(long = "keys", value_name = "BUCKET/PREFIX")]
    keys: Vec<String>,
    /// With --topics: only consumer groups whose ids begin like this, instead of all of the tenant; may be repeated
    #[arg(long = "groups", value_name = "PREFIX")]
    groups: Vec<String>,
    /// With --topics: only transactional ids that begin like this, instead of all of the tenant; may be repeated
    #[arg(long = "transactional-ids", value_name = "PREFIX")]
    transactional_ids: Vec<String>,
    /// Time after which it is refused, such as 30d [default: never]
    #[arg(long, value_name = "DURATION")]
    lifetime: Option<String>,
}

pub(crate) fn run(arguments: &TokenArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(act(arguments))
}

async fn act(arguments: &TokenArgs) -> anyhow::Result<()> {
    let server = &arguments.server;
    match &arguments.action {
        TokenAction::Create(create) => {
            let made = server.ask(Method::POST, "/api/tokens", create.body(server.tenant()).to_string()).await?;
            show(&format!("{}\n", cell(&made["token"])))
        }
        TokenAction::List => show(&table(&server.ask(Method::GET, "/api/tokens", String::new()).await?)),
        TokenAction::Revoke { name, and_stop } => {
            let path = format!("/api/tokens/{}?stop={and_stop}", encoded(name));
            let told = server.answered(Method::DELETE, &path, String::new()).await?;
            show(&format!("token {name} is revoked\n{}", left_by(&told)))
        }
    }
}

/// The jobs and kept queries that a revoked token has left, a line each; nothing for an empty answer.
fn left_by(answer: &[u8]) -> String {
    let told: Value = serde_json::from_slice(answer).unwrap_or_default();
    let list = |name: &str| told[name].as_array().cloned().unwrap_or_default();
    let end = |how: &str| match told["stopped"] == true {
        true => "is stopped".to_owned(),
        false => format!("goes on; --and-stop or {how} ends it"),
    };
    let job = |job: Value| format!("its job {} ({}) {}\n", cell(&job["name"]), cell(&job["id"]), end("'job stop'"));
    let query = |query: Value| {
        let how = end("DELETE /api/queries/{id}");
        format!("its kept query {} ({}) {how}\n", cell(&query["text"]), cell(&query["id"]))
    };
    list("jobs").into_iter().map(job).chain(list("queries").into_iter().map(query)).collect()
}

impl CreateArgs {
    fn body(&self, tenant: &str) -> Value {
        let tenant = if self.every_tenant { "*" } else { tenant };
        let mut body = Map::new();
        body.insert("name".to_owned(), self.name.clone().into());
        body.insert("tenant".to_owned(), tenant.into());
        body.insert("roles".to_owned(), self.roles.clone().into());
        for (member, prefixes) in [
            ("topics", &self.topics),
            ("types", &self.types),
            ("keys", &self.keys),
            ("groups", &self.groups),
            ("transactional_ids", &self.transactional_ids),
        ] {
            if !prefixes.is_empty() {
                body.insert(member.to_owned(), prefixes.clone().into());
            }
        }
        if let Some(lifetime) = &self.lifetime {
            body.insert("lifetime".to_owned(), lifetime.clone().into());
        }
        Value::Object(body)
    }
}

fn table(tokens: &Value) -> String {
    let head = ["NAME", "TENANT", "ROLES", "LIMITS", "EXPIRES"].map(str::to_owned);
    let list = |value: &Value| value.as_array().map(|all| all.iter().map(cell).collect::<Vec<_>>().join(","));
    let rows = tokens.as_array().into_iter().flatten().map(|token| {
        let limits = ["topics", "types", "keys", "groups", "transactional_ids"];
        let limits = limits.map(|member| (member, list(&token[member])));
        let limits: Vec<String> =
            limits.into_iter().filter_map(|(name, prefixes)| Some(format!("{name}={}", prefixes?))).collect();
        let limits = if limits.is_empty() { "-".to_owned() } else { limits.join(" ") };
        let expires = token["expires"].as_str().unwrap_or("never").to_owned();
        let roles = list(&token["roles"]).unwrap_or_default();
        [cell(&token["name"]), cell(&token["tenant"]), roles, limits, expires]
    });
    aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}
