//! `millstream job test`: runs the tests of job documents in this process, without a server.

use std::path::{Path, PathBuf};

use anyhow::bail;
use millstream_flow::{FlowConfig, Functions, Hooks, TestReport, TestRunner};
use serde_json::{Value, json};

use crate::job_document::{fault, read};
use crate::query_command::printable;
use crate::terminal::{aligned, show, show_lines};

#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    /// The documents, YAML or JSON; - reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Run with batches of this size, in place of those of the document
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: Option<u32>,
    /// Take flow.params and flow.bundles from this configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The results of one file.
enum Tested {
    Report(TestReport),
    /// The faults of a document that cannot be run.
    Refused(Vec<Value>),
}

/// Runs the tests; `settings` reads those of jobs from a configuration file.
pub(crate) fn run(
    arguments: &TestArgs,
    settings: impl FnOnce(&Path) -> anyhow::Result<FlowConfig>,
    is_json: bool,
) -> anyhow::Result<()> {
    let flow = arguments.config.as_deref().map_or_else(|| Ok(FlowConfig::default()), settings)?;
    let runner = TestRunner::new(Functions::default(), Hooks::default(), &flow);
    let mut tested = Vec::new();
    for file in &arguments.files {
        let result = match runner.run(&read(file)?, arguments.batch) {
            Ok(report) => Tested::Report(report),
            Err(findings) => Tested::Refused(findings.iter().map(|finding| json!(finding)).collect()),
        };
        tested.push((file.as_path(), result));
    }
    if is_json {
        show_lines(&tested.iter().map(|(file, tested)| as_json(file, tested)).collect::<Vec<_>>())?;
    } else {
        show(&as_text(&tested))?;
    }
    ended(&tested)
}

/// An error if a test failed or a document was refused.
fn ended(tested: &[(&Path, Tested)]) -> anyhow::Result<()> {
    let refused = tested.iter().filter(|(_, tested)| matches!(tested, Tested::Refused(_))).count();
    let results = || tested.iter().filter_map(|(_, tested)| report(tested)).flat_map(|report| &report.tests);
    let failed = results().filter(|test| !test.passed).count();
    match (failed, refused) {
        (0, 0) => Ok(()),
        (0, _) => bail!("{refused} of {} documents cannot be tested, as they have faults", tested.len()),
        _ => bail!("{failed} of {} tests failed", results().count()),
    }
}

fn report(tested: &Tested) -> Option<&TestReport> {
    match tested {
        Tested::Report(report) => Some(report),
        Tested::Refused(_) => None,
    }
}

fn as_json(file: &Path, tested: &Tested) -> Value {
    let file = file.display().to_string();
    match tested {
        Tested::Report(report) => {
            json!({"file": file, "job": report.job, "passed": report.passed(), "tests": report.tests})
        }
        Tested::Refused(findings) => json!({"file": file, "passed": false, "findings": findings}),
    }
}

/// A table with a line for each test, and then the differences of those that failed.
fn as_text(tested: &[(&Path, Tested)]) -> String {
    let mut rows = vec![["FILE", "LINE", "RESULT", "TEST"].map(str::to_owned)];
    let mut details = String::new();
    for (file, tested) in tested {
        let name = file.display().to_string();
        match tested {
            Tested::Refused(findings) => {
                rows.push([name.clone(), String::new(), "refused".to_owned(), String::new()]);
                let lines = findings.iter().map(|finding| format!("\n{name}:{}", fault(finding)));
                details.push_str(&lines.collect::<String>());
            }
            Tested::Report(report) if report.tests.is_empty() => {
                rows.push([name, String::new(), "no tests".to_owned(), String::new()]);
            }
            Tested::Report(report) => {
                for test in &report.tests {
                    let result = if test.passed { "ok" } else { "FAILED" };
                    rows.push([name.clone(), test.line.to_string(), result.to_owned(), printable(&test.name)]);
                    if !test.passed {
                        details.push_str(&format!("\n{name}:{}: {}", test.line, printable(&test.name)));
                    }
                    for difference in &test.differences {
                        let node = difference.node.as_ref().map_or_else(String::new, |node| format!("{node}: "));
                        details.push_str(&format!("\n  {}", printable(&format!("{node}{}", difference.message))));
                    }
                }
            }
        }
    }
    let mut text = aligned(&rows);
    if !details.is_empty() {
        text.push_str(&details);
        text.push('\n');
    }
    text
}
