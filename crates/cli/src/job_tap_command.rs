//! `millstream job tap`: prints samples of the records that pass an edge of a running job, one JSON object a line.

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::Value;

use crate::client::{Events, Server, encoded, refusal};
use crate::job_client::path;
use crate::terminal::show;

#[derive(Debug, clap::Args)]
pub(crate) struct TapArgs {
    /// The job's id, or the name of its latest run
    job: String,
    /// Two nodes with a comma between them, such as readings,celsius; millstream job graph shows the edges
    edge: String,
    /// Records a second, 0.1 to 1000; further ones pass unseen
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    rate: f64,
}

pub(crate) async fn run(server: &Server, arguments: &TapArgs) -> anyhow::Result<()> {
    let TapArgs { job, edge, rate } = arguments;
    let path = path(server, job, &format!("/tap?edge={}&rate={rate}", encoded(edge))).await?;
    let answer = server.send(Method::GET, &path, String::new(), "text/event-stream").await?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        bail!("{}", refusal(status, &answer.into_body().collect().await?.to_bytes()));
    }
    let mut events = Events::of(answer);
    loop {
        let event = events.next().await?.context("the server ended the tap before the job had ended")?;
        match event.name.as_str() {
            "record" => show(&format!("{}\n", event.data))?,
            "end" => {
                let end: Value = serde_json::from_str(&event.data).context("the server sent no JSON")?;
                eprintln!(
                    "the job is {}: {} of {} records shown, {} dropped",
                    end["reason"].as_str().unwrap_or("over"),
                    end["sent"],
                    end["seen"],
                    end["dropped"],
                );
                return Ok(());
            }
            _ => {}
        }
    }
}
