//! What a listener's work takes of the memory budget: connections, heads, bodies, answers.
//!
//! | what | how much | from when until when |
//! | --- | --- | --- |
//! | connection | [`CONNECTION_BYTES`] | it is accepted … it ends |
//! | head over [`HEAD_FREE_BYTES`] | the largest head's buffer | its bytes arrive … the answer is handed over |
//! | body | its length, or its route's limit | before it is read … the request is answered |
//! | answer over [`ANSWER_FREE_BYTES`] | its length, or what its handler took for it | it is rendered … the client has it |
//!
//! What does not fit is answered 503, and nothing else is disturbed. Public routes answer even so: whoever looks why
//! memory is used up must be able to.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use millstream_types::{ErrorCode, Grant, MemoryBudget};

use crate::context::context;
use crate::{Problem, Reason};

/// What a connection counts as: its read buffer and its state.
pub const CONNECTION_BYTES: u64 = 16 << 10;
/// So much of a head, and as much again that arrives with its end, fit into what the connection counts as.
pub(crate) const HEAD_FREE_BYTES: usize = 8 << 10;
/// So large an answer fits into what the connection counts as.
pub(crate) const ANSWER_FREE_BYTES: u64 = 4 << 10;

/// Memory for an answer that is large already while it is rendered. An extractor; the handler says how large the answer
/// has become, and puts this on the response when it is done.
#[derive(Debug)]
pub struct AnswerMemory {
    /// None on a listener without a budget.
    budget: Option<MemoryBudget>,
    grant: Option<Grant>,
    covered_bytes: u64,
}

impl AnswerMemory {
    /// Takes what is lacking for an answer of `size_bytes`.
    ///
    /// # Errors
    /// A [`Problem`] (503) that names the budget's setting; then the answer is not to be rendered any further.
    pub fn cover(&mut self, size_bytes: usize) -> Result<(), Problem> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let size_bytes = size_bytes as u64;
        let lacking = size_bytes.saturating_sub(self.covered_bytes);
        let taken = match &mut self.grant {
            Some(grant) => grant.grow(lacking),
            None => {
                self.grant = budget.take(lacking);
                self.grant.is_some()
            }
        };
        if !taken {
            return Err(no_memory("an answer", size_bytes, budget));
        }
        self.covered_bytes += lacking;
        Ok(())
    }

    /// Keeps what was taken until the client has the answer.
    pub fn hold_for(self, response: &mut Response) {
        if let Some(grant) = self.grant {
            response.extensions_mut().insert::<Held>(Arc::new(grant));
        }
    }
}

impl<S: Sync> FromRequestParts<S> for AnswerMemory {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self { budget: context(parts)?.memory.clone(), grant: None, covered_bytes: 0 })
    }
}

/// What an answer takes until it is gone: an extension of the response.
pub(crate) type Held = Arc<Grant>;

/// The refusal of `what`, for which there is no room.
pub(crate) fn no_memory(what: &str, size_bytes: u64, memory: &MemoryBudget) -> Problem {
    let (used, limit) = (memory.used_bytes(), memory.limit_bytes());
    let detail = format!("no memory for {what} of {size_bytes} bytes now: {used} of {limit} bytes are in use");
    Problem::new(Reason::Code(ErrorCode::Overloaded), detail)
        .value(size_bytes)
        .rule(format!("{} = {limit}", memory.setting()))
        .remedy("send it again later, or raise the budget")
}
