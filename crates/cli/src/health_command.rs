//! `millstream health`: asks a server whether it can serve, for containers and scripts.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use hyper::Method;

use crate::client::Server;
use crate::terminal;

/// Arguments of `millstream health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// Ask only whether the process lives, not whether it can serve
    #[arg(long)]
    alive: bool,
    /// Time to wait for the answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    #[command(flatten)]
    server: Server,
}

/// Why a server is not healthy.
#[derive(Debug)]
pub enum Unhealthy {
    /// It answers that it cannot serve.
    NotReady(String),
    /// It does not answer, or what answers is no such server.
    NoAnswer(anyhow::Error),
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(reason) => write!(f, "the server cannot serve: {reason}"),
            Self::NoAnswer(failure) => write!(f, "{failure:#}"),
        }
    }
}

impl std::error::Error for Unhealthy {}

impl Unhealthy {
    /// The exit status by which scripts tell the reasons apart.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NotReady(_) => 1,
            Self::NoAnswer(_) => 2,
        }
    }
}

/// Prints what a healthy server says.
pub(crate) fn run(arguments: &HealthArgs) -> anyhow::Result<()> {
    terminal::run_to_the_end(async {
        let (is_healthy, text) = ask(arguments).await.map_err(Unhealthy::NoAnswer)?;
        if !is_healthy {
            return Err(Unhealthy::NotReady(text.trim_end().to_owned()).into());
        }
        terminal::show(&text)
    })
}

async fn ask(arguments: &HealthArgs) -> anyhow::Result<(bool, String)> {
    let path = if arguments.alive { "/healthz" } else { "/readyz" };
    let limit = Duration::from_secs(arguments.timeout);
    let answered = async {
        let answer = arguments.server.send(Method::GET, path, String::new(), "text/plain").await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.context("the server broke off")?.to_bytes();
        anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let (status, text) =
        tokio::time::timeout(limit, answered).await.with_context(|| format!("no answer within {limit:?}"))??;
    match status {
        200 => Ok((true, text)),
        503 => Ok((false, text)),
        other => bail!("{path} answers with status {other}; --server names the listener of applications"),
    }
}
