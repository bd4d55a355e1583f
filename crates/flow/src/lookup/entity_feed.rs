//! Entities in place of a table: there is nothing to load.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::feed::{FeedContext, FeedStep, TableFeed};
use super::table::LookupTable;
use crate::Error;
use crate::entities::{EntitySelection, LookupEntities};

/// Connects a lookup with the entities once, and has nothing to do from then on.
pub(super) struct EntityFeed {
    table: Arc<LookupTable>,
    is_loaded: bool,
}

impl EntityFeed {
    pub(super) fn open(context: FeedContext<'_>, config: &Map<String, Value>) -> Result<Self, Error> {
        let FeedContext { services, tenant, node, table, memory, .. } = context;
        let reader = services.entities.clone();
        let reader = reader.ok_or_else(|| Error::connector(&node.name, "this process has no entities".to_owned()))?;
        let selection =
            EntitySelection::new(config).map_err(|fault| Error::plan(&node.name, "config.entities", fault))?;
        table.begin(memory, "connects with the entities".to_owned());
        table.read_entities(LookupEntities { reader, tenant: tenant.clone(), selection });
        Ok(Self { table: Arc::clone(table), is_loaded: false })
    }
}

impl TableFeed for EntityFeed {
    fn step(&mut self) -> Result<FeedStep, Error> {
        if self.is_loaded {
            return Ok(FeedStep::Wait);
        }
        self.is_loaded = true;
        self.table.set_waits(None);
        Ok(FeedStep::Loaded)
    }
}
