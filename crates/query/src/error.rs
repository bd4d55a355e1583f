//! Why a query is refused.

use millstream_columns::Diagnostic;
use millstream_types::{BatchError, ErrorCode, NameError, TenantId, TopicName};

use crate::{Language, QueryId, ResultId};

/// What can go wrong with a request about queries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a query.
    #[error("the query is refused: {}", .diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused {
        /// Everything that is wrong with it.
        diagnostics: Vec<Diagnostic>,
    },
    /// The text is written otherwise than the request says.
    #[error("the query is not what 'language' says, {}; write it so, or leave 'language' out", .asked.described())]
    OtherLanguage {
        /// What it says.
        asked: Language,
    },
    /// Not a topic's name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The stream belongs to somebody else.
    #[error("stream '{stream}' is none of tenant '{tenant}'; a tenant's queries see its own streams only")]
    ForeignStream {
        /// The stream asked for.
        stream: TopicName,
        /// Who asked.
        tenant: TenantId,
    },
    /// There is no such stream.
    #[error("stream '{stream}' does not exist; create its topic first")]
    UnknownStream {
        /// The stream asked for.
        stream: TopicName,
    },
    /// There is no such query.
    #[error("query {id} does not exist or has ended")]
    UnknownQuery {
        /// The id asked for.
        id: QueryId,
    },
    /// Results of windows cannot travel in one answer.
    #[error(
        "a query with WINDOWING gives a result for each window and cannot be answered once; ask for events ('deliver': 'sse'), or leave WINDOWING out"
    )]
    WindowedAnswer,
    /// The window that a request names.
    #[error("the request's window is refused: {what}")]
    Window {
        /// What is wrong with it.
        what: String,
    },
    /// What members of a meta are to be called.
    #[error("query.bullet.meta_names is refused: {what}")]
    MetaName {
        /// What is wrong.
        what: String,
    },
    /// The place where a query is to begin.
    #[error("the query cannot begin there ('from'): {what}")]
    Start {
        /// Why.
        what: String,
    },
    /// As many queries read what is old as may.
    #[error(
        "query.reading_past_max = {limit} queries read what was appended before they were asked; try again when one of them has, or \
         begin with what comes ('from': 'now')"
    )]
    TooManyInThePast {
        /// The limit.
        limit: usize,
    },
    /// Results have nowhere to go.
    #[error("the request names no topic for its results; name one of your own ('deliver': {{'topic': name}})")]
    NoTopic,
    /// Results cannot go there.
    #[error("results cannot go into topic '{topic}': {rule}")]
    UnfitTopic {
        /// The topic asked for.
        topic: TopicName,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// A record that asks for nothing.
    #[error(
        "the record is no request: {what}; a request is {{\"query\": text, \"deliver\": {{\"topic\": name}}, …}} or {{\"kill\": id}}"
    )]
    NoRequest {
        /// What is wrong with it.
        what: String,
    },
    /// Nothing can go on after a crash whose records are gone.
    #[error(
        "'keep' needs a stream whose records survive a crash, and '{stream}' is of level memory; create its topic with level written \
         or synced, or ask without 'keep'"
    )]
    VolatileStream {
        /// The stream asked for.
        stream: TopicName,
    },
    /// Somebody who delivers into topics has to be asked.
    #[error(
        "a query that is kept and gives its results to a topic is asked through those who deliver: Deliveries::begin"
    )]
    NobodyDelivers,
    /// The tenant has as many queries over restarts as it may have.
    #[error(
        "query.kept_per_tenant_max = {limit} queries of tenant '{tenant}' are kept; end one of them, and read its end, first"
    )]
    TooManyKept {
        /// Who asked.
        tenant: TenantId,
        /// The limit.
        limit: usize,
    },
    /// It could not be written down.
    #[error("the query cannot be kept: {why}")]
    NotKept {
        /// What the log said.
        why: String,
    },
    /// Somebody else reads the query's results.
    #[error(
        "query {id} has a client or gives its results to a topic, and only one at a time can read them; leave with the other one first"
    )]
    HasClient {
        /// The id asked for.
        id: QueryId,
    },
    /// No result ever had this number.
    #[error(
        "no result of query {id} had the number '{result}'; name the id of the last event that you have (Last-Event-ID), or none"
    )]
    UnknownResult {
        /// The query.
        id: QueryId,
        /// What was named.
        result: ResultId,
    },
    /// A duration of nothing.
    #[error("{setting} = 0: a query needs at least 1; leave it out for the default")]
    Zero {
        /// The setting.
        setting: &'static str,
    },
    /// The server has as many queries as it may have.
    #[error("query.live_max = {limit} queries are live; try again when one has ended")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The tenant has as many queries as it may have.
    #[error("query.live_per_tenant_max = {limit} queries of tenant '{tenant}' are live; end one of them first")]
    TooManyOfTenant {
        /// Who asked.
        tenant: TenantId,
        /// The limit.
        limit: usize,
    },
    /// No index finds the query's records, and too many such queries are live.
    #[error(
        "no index finds the records for which '{filter}' is TRUE: each of the stream's would take {price_ns} ns more, and \
         {taken_ns} ns of query.residual_ns_per_record_max = {limit_ns} are taken; join it by AND to an equality, a list, a range \
         with both ends or an RLIKE that begins with plain text, or end another query"
    )]
    TooCostly {
        /// The condition.
        filter: String,
        /// What it would cost a record.
        price_ns: u64,
        /// What other queries cost it.
        taken_ns: u64,
        /// The limit.
        limit_ns: u64,
    },
    /// The log refused to be read.
    #[error("stream '{stream}' cannot be read")]
    Log {
        /// The stream.
        stream: TopicName,
        /// What the log said.
        source: Box<millstream_log::Error>,
    },
    /// A batch of the stream cannot be read.
    #[error("a batch of stream '{stream}' cannot be read")]
    Batch {
        /// The stream.
        stream: TopicName,
        /// What is wrong with it.
        source: BatchError,
    },
    /// A thread could not be started.
    #[error("cannot start a thread of live queries")]
    Thread(#[source] std::io::Error),
    /// The engine is shutting down.
    #[error("live queries have stopped")]
    Stopped,
}

impl Error {
    /// The kind of failure, from which every door takes its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { .. }
            | Self::OtherLanguage { .. }
            | Self::Name(_)
            | Self::Zero { .. }
            | Self::UnknownResult { .. }
            | Self::Window { .. }
            | Self::Start { .. }
            | Self::MetaName { .. }
            | Self::WindowedAnswer => ErrorCode::Invalid,
            Self::NoTopic | Self::UnfitTopic { .. } | Self::NoRequest { .. } => ErrorCode::Invalid,
            Self::VolatileStream { .. } | Self::NobodyDelivers => ErrorCode::Invalid,
            Self::HasClient { .. } => ErrorCode::Conflict,
            Self::ForeignStream { .. } => ErrorCode::Forbidden,
            Self::UnknownStream { .. } | Self::UnknownQuery { .. } => ErrorCode::NotFound,
            Self::TooMany { .. } | Self::TooManyInThePast { .. } => ErrorCode::Overloaded,
            Self::TooManyOfTenant { .. } | Self::TooManyKept { .. } => ErrorCode::RateLimited,
            Self::TooCostly { .. } => ErrorCode::Overloaded,
            Self::Log { source, .. } => source.code(),
            Self::Batch { .. } => ErrorCode::Corrupt,
            Self::Thread(_) | Self::NotKept { .. } => ErrorCode::Internal,
            Self::Stopped => ErrorCode::Unavailable,
        }
    }
}
