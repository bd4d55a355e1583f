//! Tables that lookups join records with.
//!
//! ```text
//!  a topic, bucket or file ── TableFeed, one task of the job ──► LookupTable ◄── the lookup's operator, in all instances of the node
//!                                     entities, by EntityReader ◄──────┘
//! ```
//!
//! Always true
//! - A job has one table for each lookup, whatever the number of its instances.
//! - A table is whole before an instance of its node starts; afterwards it follows its topic. A table of a file stays as it is.
//! - Entities are no rows of the table: each is read as it is when a record asks for it.
//! - A table is no state of the job: every run loads it again, and epochs know nothing of it.

mod entity_feed;
mod feed;
mod file_feed;
mod table;
mod topic_feed;

use serde_json::{Map, Value};

use self::entity_feed::EntityFeed;
pub(crate) use self::feed::{FeedContext, FeedStep, TableFeed};
use self::file_feed::FileFeed;
pub(crate) use self::table::{Found, LookupTable};
use self::topic_feed::TopicFeed;
use crate::Error;
use crate::document::Node;

/// The `entities` of a lookup.
pub(crate) fn entities_of(node: &Node) -> Option<&Map<String, Value>> {
    node.config.get("entities").and_then(Value::as_object)
}

/// The feed of the table that a lookup names.
///
/// # Errors
/// The topic or bucket cannot be read, or is of another tenant; the file's name is none; the process has no entities.
pub(crate) fn open(context: FeedContext<'_>) -> Result<Box<dyn TableFeed>, Error> {
    if let Some(config) = entities_of(context.node) {
        Ok(Box::new(EntityFeed::open(context, config)?))
    } else if ["topic", "bucket"].iter().any(|key| context.node.config.contains_key(*key)) {
        Ok(Box::new(TopicFeed::open(context)?))
    } else {
        Ok(Box::new(FileFeed::open(context)?))
    }
}
