//! The entities of the context plane, for lookups of jobs.

use millstream_context::EntityReader;
use millstream_flow::{EntityMatch, EntityQuery};

/// Reads the entities that lookups ask for.
#[derive(Debug)]
pub(crate) struct JobEntities(pub(crate) EntityReader);

impl millstream_flow::EntityReader for JobEntities {
    fn read(&self, query: &EntityQuery<'_>, out: &mut String) -> Result<EntityMatch, String> {
        let EntityQuery { tenant, id, kind, service_path, attributes } = *query;
        let query = millstream_context::EntityQuery { tenant, id, kind, service_path, attributes };
        match self.0.read(&query, out).map_err(|error| error.to_string())? {
            millstream_context::EntityMatch::None => Ok(EntityMatch::None),
            millstream_context::EntityMatch::One => Ok(EntityMatch::One),
            millstream_context::EntityMatch::Several => Ok(EntityMatch::Several),
        }
    }
}
