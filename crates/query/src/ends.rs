//! How queries end of which a thread finds that they must.

use std::error::Error as _;
use std::sync::Arc;

use crate::live::Live;
use crate::outbox::Put;
use crate::registry::Registry;
use crate::tailed::{Broken, Finished};
use crate::{Cause, Trouble};

impl Registry {
    /// Ends those that have got enough, or more than they may.
    pub(crate) fn finish(&self, finished: Vec<Finished>) {
        for (query, put) in finished {
            match put {
                Put::Taken => {}
                Put::Full => self.end(&query, Cause::Size, None),
                Put::TooSlow => self.end(&query, Cause::Limit, Some(too_slow())),
                Put::TooFast => self.end(&query, Cause::Limit, query.outbox.too_fast()),
                Put::TooLarge => self.end(&query, Cause::Limit, Some(too_large())),
            }
        }
    }

    /// Ends a query that cannot see what it is to see.
    pub(crate) fn end_broken(&self, query: &Arc<Live>, broken: &Broken) {
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
