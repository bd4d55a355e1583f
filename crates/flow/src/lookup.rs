//! Tables that lookups join records with.
//!
//! ```text
//!  a topic or a file ── TableFeed, one task of the job ──► LookupTable ◄── the lookup's operator, in all instances of the node
//! ```
//!
//! Always true
//! - A job has one table for each lookup, whatever the number of its instances.
//! - A table is whole before an instance of its node starts; afterwards it follows its topic. A table of a file stays as it is.
//! - A table is no state of the job: every run loads it again, and epochs know nothing of it.

mod feed;
mod file_feed;
mod table;
mod topic_feed;

pub(crate) use self::feed::{FeedContext, FeedStep, TableFeed};
use self::file_feed::FileFeed;
pub(crate) use self::table::LookupTable;
use self::topic_feed::TopicFeed;
use crate::Error;

/// The feed of the table that a lookup names.
///
/// # Errors
/// The topic does not exist or is of another tenant; the file's name is none.
pub(crate) fn open(context: FeedContext<'_>) -> Result<Box<dyn TableFeed>, Error> {
    if context.node.config.contains_key("topic") {
        Ok(Box::new(TopicFeed::open(context)?))
    } else {
        Ok(Box::new(FileFeed::open(context)?))
    }
}
