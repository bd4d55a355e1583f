//! `millstream job new`: prints a job to start from.

use anyhow::bail;
use millstream_flow::{FlowConfig, Functions, Hooks, TestRunner};

use crate::job_document::fault;
use crate::terminal::show;

/// A document in which each part that most jobs need stands once.
const STARTER: &str = include_str!("job_starter.yaml");
/// The name of the job in [`STARTER`].
const NAME_LINE: &str = "name: starter";

pub(crate) fn run(name: Option<&str>) -> anyhow::Result<()> {
    show(&document(name)?)
}

fn document(name: Option<&str>) -> anyhow::Result<String> {
    let Some(name) = name else { return Ok(STARTER.to_owned()) };
    let quoted = serde_json::Value::from(name);
    let text = STARTER.replacen(NAME_LINE, &format!("name: {quoted}"), 1);
    let runner = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
    match runner.read(&text) {
        Ok(_) => Ok(text.replacen(&format!("name: {quoted}"), &format!("name: {name}"), 1)),
        Err(findings) => {
            let faults: Vec<String> = findings.iter().map(|finding| fault(&serde_json::json!(finding))).collect();
            bail!("the name cannot be taken: {}", faults.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_keeps_all_rules_and_passes_its_tests() {
        let runner = TestRunner::new(Functions::default(), Hooks::default(), &FlowConfig::default());
        for (name, text) in [("starter", document(None).unwrap()), ("my-job", document(Some("my-job")).unwrap())] {
            for batch in [None, Some(1)] {
                let report = runner.run(&text, batch).unwrap_or_else(|findings| panic!("{findings:#?}"));
                assert!(report.passed() && !report.tests.is_empty(), "{report:#?}");
                assert_eq!(report.job, name);
            }
        }
    }

    #[test]
    fn a_name_that_breaks_the_rule_is_refused() {
        let refused = document(Some("my job: x")).unwrap_err().to_string();
        assert!(refused.contains("name"), "{refused}");
    }
}
