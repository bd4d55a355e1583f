//! Runs the `tests:` of a document: records go in, and those that come out are compared.
//!
//! A test is a run of the same plan by the same runtime as a job's, with lists in place of connectors. One thread gives
//! all turns, and time stands still unless everything waits for it, so a test always gives the same result.

mod capture;
mod compare;
mod isolate;
mod trace;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::{ManualClock, MonotonicClock as _, TenantId};
use parking_lot::Mutex;
use serde::Serialize;

use self::capture::Capture;
pub use self::compare::{Difference, DifferenceKind};
use crate::Error;
use crate::config::FlowConfig;
use crate::document::{Document, DocumentContext, Finding, TestCase};
use crate::expression::Params;
use crate::function::Functions;
use crate::hook::Hooks;
use crate::runtime::{JobSetting, Run, RunOutcome, TurnStep, Workers};

/// The time at which every test begins: 2026-01-01T00:00:00Z.
const START_MS: i64 = 1_767_225_600_000;
/// Time that may pass in a test before it counts as stuck.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Records that the nodes of a test may make together.
const RECORDS_MAX: u64 = 1_000_000;

/// Runs the tests of documents. Needs no server.
#[derive(Debug)]
pub struct TestRunner {
    context: DocumentContext,
    functions: Functions,
    hooks: Hooks,
}

/// The results of a document's tests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestReport {
    /// The name of the job.
    pub job: String,
    /// The results of the tests, in the order of the document.
    pub tests: Vec<TestResult>,
}

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestResult {
    /// The name of the test.
    pub name: String,
    /// The line of the document in which the test begins.
    pub line: usize,
    /// `true` without a difference.
    pub passed: bool,
    /// The differences from what the test expects.
    pub differences: Vec<Difference>,
}

impl TestReport {
    /// `true` if all tests have passed.
    pub fn passed(&self) -> bool {
        self.tests.iter().all(|test| test.passed)
    }
}

impl TestRunner {
    /// A runner for documents that name these functions and hooks, under this configuration of the process.
    pub fn new(functions: Functions, hooks: Hooks, config: &FlowConfig) -> Self {
        Self { context: config.document_context(&functions, &hooks), functions, hooks }
    }

    /// Reads and checks a document.
    ///
    /// # Errors
    /// All faults of the document.
    pub fn read(&self, text: &str) -> Result<Document, Vec<Finding>> {
        Document::read(text, &self.context)
    }

    /// Runs all tests of a document in the calling thread, with batches
    /// of `batch` records instead of those that the document asks for.
    ///
    /// # Errors
    /// All faults of the document.
    pub fn run(&self, text: &str, batch: Option<u32>) -> Result<TestReport, Vec<Finding>> {
        let document = self.read(text)?;
        let result = |test: &TestCase| {
            let differences = self.run_one(text, &document, test, batch);
            TestResult { name: test.name.clone(), line: test.line, passed: differences.is_empty(), differences }
        };
        Ok(TestReport { job: document.name.clone(), tests: document.tests.iter().map(result).collect() })
    }

    fn run_one(&self, text: &str, document: &Document, test: &TestCase, batch: Option<u32>) -> Vec<Difference> {
        let mut context = self.context.clone();
        for (node, params) in &test.params {
            context.params.entry(node.clone()).or_default().extend(params.clone());
        }
        // Only other parameters make another document.
        let read = if test.params.is_empty() { Ok(document.clone()) } else { Document::read(text, &context) };
        let mut document = match read {
            Ok(document) => document,
            Err(findings) => return findings.iter().map(Difference::of_finding).collect(),
        };
        isolate::isolate(&mut document, test, batch);
        let capture = Arc::new(Capture::new(&document));
        let (functions, hooks) = (self.functions.clone(), self.hooks.clone());
        let run = match ManualRun::start(&document, functions, hooks, context.params, &capture) {
            Ok(run) => run,
            Err(error) => return vec![Difference::failed(&error.to_string())],
        };
        let mut differences: Vec<Difference> = run.finish(&capture, TIME_MAX + test.tick).into_iter().collect();
        for (node, expected) in &test.expect {
            differences.extend(compare::compare(node, expected, &capture.records(node)));
        }
        for (hook, expected) in &test.trace {
            let in_order = run.is_hook_in_order(hook, &document, &capture);
            differences.extend(trace::compare(hook, expected, &run.run.trace.lines(hook), in_order));
        }
        differences
    }
}

/// A run whose turns the caller gives, in time that moves when everything waits.
struct ManualRun {
    run: Arc<Run>,
    clock: Arc<ManualClock>,
    workers: Arc<Workers>,
    outcome: Arc<Mutex<Option<RunOutcome>>>,
}

impl ManualRun {
    fn start(
        document: &Document,
        functions: Functions,
        hooks: Hooks,
        fixed_params: BTreeMap<String, Params>,
        capture: &Arc<Capture>,
    ) -> Result<Self, Error> {
        let clock = Arc::new(ManualClock::at(START_MS));
        let workers = Workers::by_hand(Arc::clone(&clock) as _);
        let outcome = Arc::new(Mutex::new(None));
        let ended = Arc::clone(&outcome);
        let setting = JobSetting {
            tenant: TenantId::default(),
            id: String::new(),
            wall: Arc::clone(&clock) as _,
            clock: Arc::clone(&clock) as _,
            services: None,
            places: None,
            observer: Some(Arc::clone(capture) as _),
            workers: Arc::clone(&workers),
            metrics: None,
            functions,
            hooks,
            fixed_params,
            over: Box::new(move |outcome| *ended.lock() = Some(outcome)),
        };
        Ok(Self { run: Run::start(document, setting)?, clock, workers, outcome })
    }

    /// Gives turns until the run has ended, at the latest after `time_max`; the reason if it has failed or does not end.
    fn finish(&self, capture: &Capture, time_max: Duration) -> Option<Difference> {
        let fault = loop {
            match self.workers.step() {
                TurnStep::Turn if capture.total() > RECORDS_MAX => {
                    break format!("the nodes have made more than {RECORDS_MAX} records; inject fewer");
                }
                TurnStep::Turn => {}
                TurnStep::Idle(deadline) => {
                    // All tasks have had their last turn.
                    if let Some(outcome) = self.outcome.lock().take() {
                        return match outcome {
                            RunOutcome::Failed(failure, _) => Some(Difference::of_failure(&failure)),
                            RunOutcome::Completed | RunOutcome::Stopped => None,
                        };
                    }
                    let Some(deadline) = deadline.filter(|deadline| *deadline <= time_max) else {
                        let reason = self.run.waits_for().unwrap_or_else(|| "no node has anything to do".to_owned());
                        break format!("the job does not end: {reason}");
                    };
                    self.clock.advance(deadline.saturating_sub(self.clock.now()));
                }
            }
        };
        self.run.kill();
        while self.workers.step() == TurnStep::Turn {}
        Some(Difference::failed(&fault))
    }

    /// `true` if the order of a hook's lines is that of the records.
    fn is_hook_in_order(&self, hook: &str, document: &Document, capture: &Capture) -> bool {
        let tasks = document.hooks.iter().filter(|known| known.call == hook).filter_map(|known| known.task);
        let mut nodes = tasks.map(|node| &document.nodes[node.0]);
        nodes.all(|node| node.parallelism.max == 1 && capture.is_ordered(&node.name))
    }
}
