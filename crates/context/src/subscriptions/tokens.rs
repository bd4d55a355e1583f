//! Clients' `X-Auth-Token`s on their way to receivers: in memory only, so that no reader of the log gets one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

/// Tokens that are kept; the oldest go.
const KEPT_MAX: usize = 65_536;

/// See the module.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    tokens: HashMap<u64, Arc<str>>,
    order: VecDeque<u64>,
}

impl Tokens {
    /// Keeps a token for the changes of one request; under which number.
    pub(crate) fn keep(&self, token: &str) -> u64 {
        let number = fastrand::u64(..);
        let mut kept = self.0.lock();
        if kept.order.len() >= KEPT_MAX
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.tokens.remove(&oldest);
        }
        kept.tokens.insert(number, token.into());
        kept.order.push_back(number);
        number
    }

    /// The token of that number, if it is still there.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<str>> {
        self.0.lock().tokens.get(&number).cloned()
    }
}
