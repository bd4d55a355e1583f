//! `millstream job parallelism`: another number of instances for the nodes of a running job.

use anyhow::bail;
use hyper::Method;
use serde_json::{Map, Value};

use crate::client::{Server, encoded};
use crate::job_client::path;
use crate::terminal::{cell, show, show_lines};

#[derive(Debug, clap::Args)]
pub(crate) struct ParallelismArgs {
    /// The job's id, or the name of its latest run
    job: String,
    /// A number for all nodes that have a parallelism, or NODE=NUMBER for each; null is that of the document again
    #[arg(required = true, value_name = "NUMBER|NODE=NUMBER")]
    values: Vec<String>,
    /// The time for the job to finish what it has read, such as 30s; at most 2m, then it goes on as before
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: String,
}

pub(crate) async fn run(server: &Server, arguments: &ParallelismArgs, is_json: bool) -> anyhow::Result<()> {
    let ParallelismArgs { job, values, timeout } = arguments;
    let body = body(values)?.to_string();
    let path = path(server, job, &format!("/parallelism?timeout={}", encoded(timeout))).await?;
    let told = server.ask(Method::PATCH, &path, body).await?;
    if is_json {
        return show_lines([&told]);
    }
    let given = told["parallelism"].as_object().into_iter().flatten();
    let given: Vec<String> = given.map(|(node, value)| format!(" {node}={}", cell(value))).collect();
    let given = if given.is_empty() { " the parallelism of its document".to_owned() } else { given.concat() };
    show(&format!("job {job} goes on with{given}\n"))
}

/// The body of the request: one value for all, or an object by node.
fn body(values: &[String]) -> anyhow::Result<Value> {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    match values {
        [one] if !one.contains('=') => Ok(value(one)),
        several => {
            let mut of_nodes = Map::new();
            for one in several {
                let Some((node, number)) = one.split_once('=') else {
                    bail!("'{one}' is no NODE=NUMBER, such as counts=3")
                };
                of_nodes.insert(node.to_owned(), value(number));
            }
            Ok(of_nodes.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_body_is_one_value_for_all_or_has_one_for_each_node() {
        let body = |values: &[&str]| body(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
        assert_eq!(body(&["3"]).unwrap(), json!(3));
        assert_eq!(body(&["null"]).unwrap(), Value::Null);
        assert_eq!(body(&["in=2", r#"out={"min":1,"max":4}"#]).unwrap(), json!({"in": 2, "out": {"min": 1, "max": 4}}));
        assert_eq!(body(&["in=two", "out=null"]).unwrap(), json!({"in": "two", "out": null}));
        assert!(body(&["in=2", "3"]).unwrap_err().to_string().contains("'3' is no NODE=NUMBER"));
    }
}
