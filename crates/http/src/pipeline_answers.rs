//! The refusals that the pipeline and the extractors answer for a route, as its declaration implies them. A route
//! documents only its own answers; these are added.

use crate::Access;

/// A refusal that routes have in common.
#[derive(Debug)]
pub(crate) struct PipelineAnswer {
    pub(crate) status: u16,
    pub(crate) text: &'static str,
    applies_to: Affected,
}

/// The routes that a refusal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Affected {
    Every,
    /// Routes that log their caller in.
    Authenticated,
    /// Routes that document a body.
    TakingBody,
}

const fn row(status: u16, applies_to: Affected, text: &'static str) -> PipelineAnswer {
    PipelineAnswer { status, text, applies_to }
}

static PIPELINE_ANSWERS: [PipelineAnswer; 12] = [
    row(400, Affected::Every, "The head, a parameter or the body is malformed or breaks a rule."),
    row(401, Affected::Authenticated, "The credentials are missing, wrong, expired or revoked."),
    row(
        403,
        Affected::Authenticated,
        "The caller lacks the role, the tenant, the topic or the type; or a page of another origin asks.",
    ),
    row(408, Affected::TakingBody, "The body was not complete before the deadline; nothing was done."),
    row(413, Affected::Every, "The body is over the route's limit, which is 0 for a route without a body."),
    row(414, Affected::Every, "Path and query are over `http.uri_max_bytes`."),
    row(415, Affected::TakingBody, "The route does not take a body of this media type."),
    row(
        429,
        Affected::Authenticated,
        "Too many logins from this address have failed, or a rate or quota is used up; nothing was done.",
    ),
    row(431, Affected::Every, "The headers are over `http.head_max_bytes`."),
    row(500, Affected::Every, "A fault of the server, or stored bytes that are damaged; its log says why."),
    row(
        501,
        Affected::Every,
        "A transfer coding other than `chunked`, or a part of the protocol that is not supported.",
    ),
    row(503, Affected::Every, "Overloaded, stopping, or no verdict before the deadline."),
];

/// The refusals of a route with this access, in the order of their statuses.
pub(crate) fn pipeline_answers(access: Access, takes_body: bool) -> impl Iterator<Item = &'static PipelineAnswer> {
    PIPELINE_ANSWERS.iter().filter(move |answer| match answer.applies_to {
        Affected::Every => true,
        Affected::Authenticated => access != Access::Public,
        Affected::TakingBody => takes_body,
    })
}
