//! The epochs of a job, and the state that it had at the last one.

use std::sync::Arc;

use millstream_types::{TenantId, iso_time};
use serde_json::{Value, json};

use super::Jobs;
use super::earlier::earlier_job;
use super::record::JobRecord;
use crate::Error;
use crate::document::Document;
use crate::operator::{self, KeyedNode};
use crate::runtime::{StateRequest, last_epoch, stored_state};
use crate::state::StateMemory;

impl Jobs {
    /// The nodes that keep state, and the last epochs, newest first: those of the present run, or else the one that is stored. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// [`Error::UnknownJob`]; [`Error::Log`] or [`Error::Connector`] if the state cannot be read.
    pub fn checkpoints(&self, tenant: &TenantId, id: &str) -> Result<Value, Error> {
        let record = self.record(tenant, id)?;
        let epochs = match self.supervisor.run(&record.key()) {
            Some(run) => run.checkpoints(),
            None => last_epoch(&*self.services.log, tenant, id)?.into_iter().collect(),
        };
        let nodes: Vec<String> = earlier_job(&record, self.planner.context()).with_state().map(str::to_owned).collect();
        Ok(json!({"at": iso_time(self.now_ms()), "id": id, "nodes": nodes, "checkpoints": epochs}))
    }

    /// The keys of a node that have state as of the job's last epoch, at most `limit`, with their values and the sizes of these; only
    /// `key`, as text or JSON, if it is given. Values have about 4 MiB together. Reads what is stored, and blocks on the disk.
    ///
    /// # Errors
    /// [`Error::UnknownJob`]; [`Error::UnknownNode`] for a node without state; [`Error::Log`] or [`Error::Connector`] if the state cannot
    /// be read.
    pub fn state(
        &self,
        tenant: &TenantId,
        id: &str,
        node: &str,
        key: Option<&str>,
        limit: usize,
    ) -> Result<Value, Error> {
        let record = self.record(tenant, id)?;
        let job = earlier_job(&record, self.planner.context());
        if !job.with_state().any(|name| name == node) {
            let nodes = job.with_state().map(str::to_owned).collect();
            return Err(Error::UnknownNode { id: id.to_owned(), node: node.to_owned(), nodes });
        }
        let operator = self.operator_of(&record, node);
        let request = StateRequest { node, key, limit };
        stored_state(&*self.services.log, tenant, id, request, operator.as_ref())
    }

    /// The operator that can read the values of a node; `None` if this process no longer takes the document.
    fn operator_of(&self, record: &JobRecord, node: &str) -> Option<KeyedNode> {
        let document = Document::read(&record.document.to_string(), self.planner.context()).ok()?;
        let node = document.nodes.iter().find(|known| known.name == node)?;
        operator::keyed(node, StateMemory::unbounded(&node.name), &Arc::default()).ok()?
    }
}
