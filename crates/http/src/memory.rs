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
//! A request that does not fit is answered 503; others are not affected: bodies and answers of one tenant take no more than
//! they leave free. Public routes answer even without memory, so that an operator can find out why it is used up.

use std::sync::Arc;

use axum::response::Response;
use millstream_types::{ErrorCode, Grant, MemoryBudget};

use crate::{Identity, Problem, Reason};

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
    /// Memory of the caller's tenant; of the whole budget on a public route.
    pub(crate) fn new(budget: Option<&MemoryBudget>, caller: Option<&Identity>) -> Self {
        let of_caller = |budget: &MemoryBudget| {
            caller.map_or_else(|| budget.clone(), |caller| budget.for_tenant(&caller.principal.tenant))
        };
        Self { budget: budget.map(of_caller), grant: None, covered_bytes: 0 }
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

/// Builds the refusal of `what` for lack of memory, in the whole budget or in the part of a tenant.
pub(crate) fn no_memory(what: &str, size_bytes: u64, memory: &MemoryBudget) -> Problem {
    let (setting, limit) = (memory.setting(), memory.limit_bytes());
    let refusal = |why| {
        let detail = format!("no memory for {what} of {size_bytes} bytes now: {why}");
        Problem::new(Reason::Code(ErrorCode::Overloaded), detail).value(size_bytes)
    };
    match memory.tenant() {
        Some((tenant, whole)) if whole.left_bytes() >= size_bytes => {
            refusal(format!("tenant '{tenant}' has its share in use"))
                .rule(format!("what a tenant takes is no more than what it leaves free of {setting} = {limit}"))
                .remedy("send it once other requests of the tenant are done, or raise the budget")
        }
        of_tenant => {
            let used = of_tenant.map_or(memory, |(_, whole)| whole).used_bytes();
            refusal(format!("{used} of {limit} bytes are in use"))
                .rule(format!("{setting} = {limit}"))
                .remedy("send it again later, or raise the budget")
        }
    }
}
