//! Why a query is refused.

use millstream_columns::Diagnostic;
use millstream_types::{BatchError, ErrorCode, NameError, TenantId, TopicName};

use crate::{Language, QueryId, ResultId};

/// The errors of requests about queries.
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
        /// The language that the request names.
        asked: Language,
    },
    /// The stream's name is not a valid topic name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The stream belongs to another tenant.
    #[error("stream '{stream}' is none of tenant '{tenant}'; a tenant's queries see its own streams only")]
    ForeignStream {
        /// The name of the requested stream.
        stream: TopicName,
        /// The tenant of the request.
        tenant: TenantId,
    },
    /// The requested stream does not exist.
    #[error("stream '{stream}' does not exist; create its topic first")]
    UnknownStream {
        /// The name of the requested stream.
        stream: TopicName,
    },
    /// The requested query does not exist.
    #[error("query {id} does not exist or has ended")]
    UnknownQuery {
        /// The id of the requested query.
        id: QueryId,
    },
    /// Results of windows cannot travel in one answer.
    #[error(
        "a query with WINDOWING gives a result for each window and cannot be answered once; ask for events ('deliver': 'sse'), or leave WINDOWING out"
    )]
    WindowedAnswer,
    /// Rows are to be sorted, and the query never has all of them.
    #[error(
        "ORDER BY sorts all rows of a result, and this query has neither an end nor windows; say how long it lives (STREAM(30000, TIME) \
         or 'duration_ms'), where it ends ('from' and 'until'), or when it gives results (WINDOWING)"
    )]
    EndlessOrder,
    /// The window that a request names.
    #[error("the request's window is refused: {what}")]
    Window {
        /// The rule that it breaks.
        what: String,
    },
    /// The configured names of the meta's members are not valid.
    #[error("query.bullet.meta_names is refused: {what}")]
    MetaName {
        /// The rule that they break.
        what: String,
    },
    /// The place where a query is to begin or to end.
    #[error("the query cannot begin or end there ('{member}'): {what}")]
    Start {
        /// The member of the request: `from` or `until`.
        member: &'static str,
        /// The rule that is broken.
        what: String,
    },
    /// Too many queries read past records.
    #[error(
        "query.reading_past_max = {limit} queries read what was appended before they were asked; try again when one of them has, or \
         begin with what comes ('from': 'now')"
    )]
    TooManyInThePast {
        /// The limit that was reached.
        limit: usize,
    },
    /// Results have nowhere to go.
    #[error("the request names no topic for its results; name one of your own ('deliver': {{'topic': name}})")]
    NoTopic,
    /// The topic cannot take the results of a query.
    #[error("results cannot go into topic '{topic}': {rule}")]
    UnfitTopic {
        /// The name of the requested topic.
        topic: TopicName,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// A record that asks for nothing.
    #[error(
        "the record is no request: {what}; a request is {{\"query\": text, \"deliver\": {{\"topic\": name}}, …}} or {{\"kill\": id}}"
    )]
    NoRequest {
        /// The rule that it breaks.
        what: String,
    },
    /// A query of a stream in memory cannot survive a crash.
    #[error(
        "'keep' needs a stream whose records survive a crash, and '{stream}' is of level memory; create its topic with level written \
         or synced, or ask without 'keep'"
    )]
    VolatileStream {
        /// The name of the requested stream.
        stream: TopicName,
    },
    /// The request must go to a part of the server that delivers into topics.
    #[error(
        "a query that is kept and gives its results to a topic is asked through those who deliver: Deliveries::begin"
    )]
    NobodyDelivers,
    /// The tenant has too many kept queries.
    #[error(
        "query.kept_per_tenant_max = {limit} queries of tenant '{tenant}' are kept; end one of them, and read its end, first"
    )]
    TooManyKept {
        /// The tenant of the request.
        tenant: TenantId,
        /// The limit that was reached.
        limit: usize,
    },
    /// It could not be written down.
    #[error("the query cannot be kept: {why}")]
    NotKept {
        /// The message of the log.
        why: String,
    },
    /// Another client reads the query's results.
    #[error(
        "query {id} has a client or gives its results to a topic, and only one at a time can read them; leave with the other one first"
    )]
    HasClient {
        /// The id of the requested query.
        id: QueryId,
    },
    /// No result ever had this number.
    #[error(
        "no result of query {id} had the number '{result}'; name the id of the last event that you have (Last-Event-ID), or none"
    )]
    UnknownResult {
        /// The id of the requested query.
        id: QueryId,
        /// The number of the result in the request.
        result: ResultId,
    },
    /// A duration or size of zero.
    #[error("{setting} = 0: a query needs at least 1; leave it out for the default")]
    Zero {
        /// The setting that is zero.
        setting: &'static str,
    },
    /// The server has too many live queries.
    #[error("query.live_max = {limit} queries are live; try again when one has ended")]
    TooMany {
        /// The limit that was reached.
        limit: usize,
    },
    /// The tenant has too many live queries.
    #[error("query.live_per_tenant_max = {limit} queries of tenant '{tenant}' are live; end one of them first")]
    TooManyOfTenant {
        /// The tenant of the request.
        tenant: TenantId,
        /// The limit that was reached.
        limit: usize,
    },
    /// No index finds the query's records, and the live queries of this kind cost too much already.
    #[error(
        "no index finds the records for which '{filter}' is TRUE: each of the stream's would take {price_ns} ns more, and \
         {taken_ns} ns of query.residual_ns_per_record_max = {limit_ns} are taken; join it by AND to an equality, a list, a range \
         with both ends or an RLIKE that begins with plain text, or end another query"
    )]
    TooCostly {
        /// The condition of the query.
        filter: String,
        /// The cost of the query for each record.
        price_ns: u64,
        /// The cost of the other queries.
        taken_ns: u64,
        /// The limit that would be exceeded.
        limit_ns: u64,
    },
    /// The log refused to be read.
    #[error("stream '{stream}' cannot be read")]
    Log {
        /// The name of the stream.
        stream: TopicName,
        /// The error of the log.
        source: Box<millstream_log::Error>,
    },
    /// A batch of the stream cannot be read.
    #[error("a batch of stream '{stream}' cannot be read")]
    Batch {
        /// The name of the stream.
        stream: TopicName,
        /// The error in the batch.
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
            | Self::WindowedAnswer
            | Self::EndlessOrder => ErrorCode::Invalid,
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
