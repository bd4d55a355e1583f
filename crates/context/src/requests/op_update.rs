//! The combined reply to the updates of several entities.

use crate::refusal::{ErrorName, Refusal};

/// Refusals that a reply tells.
const TOLD_MAX: usize = 100;

/// The reply to a batch, from the refusals of its entities.
pub(crate) fn combined(count: usize, refused: Vec<(String, Refusal)>) -> Result<(), Refusal> {
    let Some((_, first)) = refused.first() else { return Ok(()) };
    if count == 1 {
        return Err(first.clone());
    }
    let is_done_in_part = refused.len() < count || refused.iter().any(|(_, why)| why.name == ErrorName::PartialUpdate);
    let of_all = |name: ErrorName| refused.iter().all(|(_, why)| why.name == name);
    let has = |name: ErrorName| refused.iter().any(|(_, why)| why.name == name);
    let name = match () {
        () if is_done_in_part => ErrorName::PartialUpdate,
        () if of_all(ErrorName::NotFound) => ErrorName::NotFound,
        () if has(ErrorName::TooManyResults) => ErrorName::TooManyResults,
        () if has(ErrorName::RequestEntityTooLarge) => ErrorName::RequestEntityTooLarge,
        () if has(ErrorName::NoResourcesAvailable) => ErrorName::NoResourcesAvailable,
        () => ErrorName::Unprocessable,
    };
    let told = refused.iter().take(TOLD_MAX);
    let mut each: Vec<String> = told.map(|(named, why)| format!("{named}: {}", why.description)).collect();
    each.extend(refused.len().checked_sub(TOLD_MAX).filter(|more| *more > 0).map(|more| format!("and {more} more")));
    Err(Refusal::new(name, format!("{} of {count} entities: {}", refused.len(), each.join(" | "))))
}
