//! `millstream job validate`: checks a document by a server, or in this process if none answers.

use std::io;
use std::path::Path;

use millstream_flow::{FlowConfig, Functions, Hooks, TestRunner};
use serde_json::{Value, json};

use crate::client::Server;
use crate::job_client::{refused, send_text};
use crate::job_document::read;
use crate::terminal::{cell, show, show_lines};

const UNCHECKED: &str =
    "; no server answered, so its topics, allowed targets, parameters and bundles are not taken into account";

pub(crate) async fn run(server: &Server, file: &Path, is_json: bool) -> anyhow::Result<()> {
    let text = read(file)?;
    let (told, note) = match send_text(server, "/api/jobs/validate", file, text.clone()).await {
        Err(error) if is_no_server(&error) => (check(file, &text)?, UNCHECKED),
        told => (told?, ""),
    };
    let line = format!("{} is valid; hash {}{note}\n", cell(&told["name"]), cell(&told["hash"]));
    if is_json { show_lines([&told]) } else { show(&line) }
}

fn is_no_server(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
}

/// Checks a document in this process.
fn check(file: &Path, text: &str) -> anyhow::Result<Value> {
    let runner = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
    match runner.read(text) {
        Ok(document) => Ok(json!({"name": document.name, "hash": document.hash})),
        Err(findings) => Err(refused(file, &findings.iter().map(|finding| json!(finding)).collect::<Vec<_>>())),
    }
}
