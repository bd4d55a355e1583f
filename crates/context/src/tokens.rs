//! Clients' `X-Auth-Token`s on their way to receivers: in memory only, so that no reader of the log sees one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

/// Tokens that are kept; the oldest are dropped.
const KEPT_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Tokens(Mutex<TokenTable>);

#[derive(Default)]
struct TokenTable {
    tokens: HashMap<u64, Arc<str>>,
    order: VecDeque<u64>,
}

impl Tokens {
    /// Stores a token for the changes of one request; returns its number.
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

    /// The token with this number, if it is still kept.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<str>> {
        self.0.lock().tokens.get(&number).cloned()
    }
}
