//! Reads the documents of stored jobs with the settings of this process, and plans their runs.

use millstream_types::TenantId;

use super::record::JobRecord;
use crate::Error;
use crate::document::{Document, DocumentContext};
use crate::function::Functions;
use crate::hook::Hooks;
use crate::plan::Plan;

pub(super) struct JobPlanner {
    functions: Functions,
    hooks: Hooks,
    context: DocumentContext,
    workers: u32,
}

impl JobPlanner {
    /// A planner for this number of worker threads.
    pub(super) fn new(functions: Functions, hooks: Hooks, context: DocumentContext, workers: usize) -> Self {
        Self { functions, hooks, context, workers: workers as u32 }
    }

    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// The settings in which documents are read.
    pub(super) fn context(&self) -> &DocumentContext {
        &self.context
    }

    /// The document of a stored job, with the parallelism that its nodes have by now.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a document that this process no longer takes.
    pub(super) fn read(&self, record: &JobRecord) -> Result<(Document, TenantId), Error> {
        let document = Document::read(&record.document_to_run().to_string(), &self.context);
        let document = document.map_err(|findings| Error::Invalid { findings })?;
        let tenant = TenantId::new(&record.tenant).map_err(millstream_log::Error::from)?;
        Ok((document, tenant))
    }

    /// The plan of a document.
    ///
    /// # Errors
    /// [`Error::Plan`] for what this program cannot do.
    pub(super) fn plan(&self, document: &Document) -> Result<Plan, Error> {
        Plan::new(document, &self.functions, &self.hooks, self.workers)
    }

    /// Checks that this program can run a document.
    pub(super) fn check(&self, document: &Document) -> Result<(), Error> {
        self.plan(document).map(drop)
    }

    /// The plan of a stored job.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::Plan`] for a document that this process cannot run.
    pub(super) fn plan_of(&self, record: &JobRecord) -> Result<Plan, Error> {
        let (document, _) = self.read(record)?;
        self.plan(&document)
    }

    /// `true` for a stored job that commits epochs.
    ///
    /// # Errors
    /// Those of [`Self::plan_of`].
    pub(super) fn has_epochs(&self, record: &JobRecord) -> Result<bool, Error> {
        let (document, _) = self.read(record)?;
        Ok(self.plan(&document)?.has_epochs(document.delivery))
    }
}
