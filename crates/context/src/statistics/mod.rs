//! Counts, timing, alarms and log lines about requests and notifications, as operators of FIWARE Orion know them.
//!
//! The other modules report to [`observers::Observers`]. Not here: the routes that show the counts (`orion`).

pub(crate) mod alarms;
pub(crate) mod observers;
pub(crate) mod request_counts;
pub(crate) mod request_observer;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod timing;
pub(crate) mod traffic;
