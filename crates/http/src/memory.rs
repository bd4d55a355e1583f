//! The memory that a listener takes from the budget for connections, heads, bodies and answers.
//!
//! | use | size | held |
//! | --- | --- | --- |
//! | connection | [`CONNECTION_BYTES`] | from its acceptance to its end |
//! | head over [`HEAD_FREE_BYTES`] | the largest head's buffer | from its arrival until the answer is sent |
//! | body | its length, or its route's limit; of a stream, what its handler holds at most | from before it is read until the request is answered |
//! | answer over [`ANSWER_FREE_BYTES`] | its length, or the handler's [`AnswerMemory`] | from rendering until the
//! client has it |
//!
//! A request that does not fit is answered 503; others are not affected: the bodies of one tenant take no more than they
//! leave free. Public routes answer even without memory, so
//! that an operator can find out why it is used up.

use std::sync::Arc;

use axum::response::Response;
use millstream_types::{ErrorCode, Grant, MemoryBudget, TenantId};

use crate::{Problem, Reason};

/// Memory of a connection: its read buffer and its state.
pub const CONNECTION_BYTES: u64 = 16 << 10;
/// The connection's memory covers a head of this size, and one more read.
pub(crate) const HEAD_FREE_BYTES: usize = 8 << 10;
/// The connection's memory covers an answer of this size.
pub(crate) const ANSWER_FREE_BYTES: u64 = 4 << 10;

/// An extractor that takes memory for an answer while the handler renders it. The handler reports the answer's size as
/// it grows and finally attaches the memory to the response.
#[derive(Debug)]
pub struct AnswerMemory {
    /// `None` on a listener without a budget.
    budget: Option<MemoryBudget>,
    grant: Option<Grant>,
    covered_bytes: u64,
}

impl AnswerMemory {
    pub(crate) fn new(budget: Option<MemoryBudget>) -> Self {
        Self { budget, grant: None, covered_bytes: 0 }
    }

    /// Takes more memory so that it covers an answer of `size_bytes`.
    ///
    /// # Errors
    /// A [`Problem`] (503) that names the budget's setting; the handler stops rendering then.
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

    /// Holds the memory until the client has the answer.
    pub fn hold_for(self, response: &mut Response) {
        if let Some(grant) = self.grant {
            response.extensions_mut().insert::<ResponseMemory>(Arc::new(grant));
        }
    }
}

/// The memory of an answer, as an extension of the response.
pub(crate) type ResponseMemory = Arc<Grant>;

/// Builds the refusal of a body for which its tenant gets no memory.
pub(crate) fn no_memory_for(tenant: &TenantId, size_bytes: u64, memory: &MemoryBudget) -> Problem {
    if memory.left_bytes() < size_bytes {
        return no_memory("a body", size_bytes, memory);
    }
    let detail = format!("no memory for a body of {size_bytes} bytes now: tenant '{tenant}' has its share in use");
    Problem::new(Reason::Code(ErrorCode::Overloaded), detail)
        .value(size_bytes)
        .rule(format!(
            "the bodies of a tenant take no more than they leave free of {} = {}",
            memory.setting(),
            memory.limit_bytes()
        ))
        .remedy("send it once others of the tenant are done, or raise the budget")
}

/// Builds the refusal of `what` for lack of memory.
pub(crate) fn no_memory(what: &str, size_bytes: u64, memory: &MemoryBudget) -> Problem {
    let (used, limit) = (memory.used_bytes(), memory.limit_bytes());
    let detail = format!("no memory for {what} of {size_bytes} bytes now: {used} of {limit} bytes are in use");
    Problem::new(Reason::Code(ErrorCode::Overloaded), detail)
        .value(size_bytes)
        .rule(format!("{} = {limit}", memory.setting()))
        .remedy("send it again later, or raise the budget")
}
