//! Ends queries that a matching thread must end.

use std::error::Error as _;
use std::sync::Arc;

use crate::live::LiveQuery;
use crate::outbox::PutOutcome;
use crate::read_error::ReadError;
use crate::registry::QueryRegistry;
use crate::stream_batch::FinishedQuery;
use crate::{Cause, Trouble};

impl QueryRegistry {
    /// Ends queries that have all their rows, or exceed a limit.
    pub(crate) fn finish(&self, finished: Vec<FinishedQuery>) {
        for (query, put) in finished {
            match put {
                PutOutcome::Taken => {}
                PutOutcome::Full => self.end(&query, Cause::Size, None),
                PutOutcome::TooSlow => self.end(&query, Cause::Limit, Some(too_slow())),
                PutOutcome::TooFast => self.end(&query, Cause::Limit, query.outbox.too_fast()),
                PutOutcome::TooLarge => self.end(&query, Cause::Limit, Some(too_large())),
            }
        }
    }

    /// Ends a query whose stream cannot be read.
    pub(crate) fn end_broken(&self, query: &Arc<LiveQuery>, broken: &ReadError) {
        let trouble = Trouble {
            error: broken.source().map_or_else(|| broken.to_string(), |source| format!("{broken}: {source}")),
            resolution: "ask again once the stream can be read".to_owned(),
        };
        let cause = if broken.is_stop() { Cause::Shutdown } else { Cause::Error };
        self.end(query, cause, Some(trouble).filter(|_| !broken.is_stop()));
    }
}

fn too_large() -> Trouble {
    Trouble {
        error: "the states of queries take more than query.states_max_bytes or memory.budget_bytes allow".to_owned(),
        resolution: "group by fewer or shorter values, count fewer different ones, or raise the limit".to_owned(),
    }
}

fn too_slow() -> Trouble {
    Trouble {
        error:
            "more rows wait for clients than query.queue_max_bytes, query.queues_max_bytes or memory.budget_bytes allow"
                .to_owned(),
        resolution: "read faster, select fewer fields or records, or ask with on_slow = drop_oldest".to_owned(),
    }
}
