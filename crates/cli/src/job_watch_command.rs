//! `millstream job submit --watch`: submits a document again whenever its file changes.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use crate::client::Server;
use crate::job_client::send_text;
use crate::job_document::read;
use crate::terminal::{cell, show, show_lines};

/// Pause between two looks at the file.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Submits until it is interrupted. What is refused is printed, and the job that runs goes on.
pub(crate) async fn run(server: &Server, path: &str, file: &Path, is_json: bool) -> anyhow::Result<()> {
    if file == Path::new("-") {
        bail!("standard input does not change; name a file to watch");
    }
    let mut text = read(file)?;
    loop {
        match send_text(server, path, file, text.clone()).await {
            Ok(told) if is_json => show_lines([&told])?,
            Ok(told) => show(&format!("{}\n", cell(&told["id"])))?,
            Err(refusal) => eprintln!("millstream: {refusal:#}"),
        }
        text = changed(file, &text).await;
    }
}

/// The text of the file once it is another one. Editors remove a file for a moment while they write it.
async fn changed(file: &Path, known: &str) -> String {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        if let Ok(text) = read(file)
            && text != known
            && !text.trim().is_empty()
        {
            return text;
        }
    }
}
