//! Live queries: questions about records that have not arrived yet.
//!
//! A query is a text; [`parse`] returns its [`QueryPlan`]. It sees the records of one stream that are appended after its
//! request, and sends the matching ones as rows until it ends. [`Engine`] reads each record of the queried streams once
//! for all queries; [`Matcher`] finds the queries that a record matches; a [`Subscription`] is the client's end.
//!
//! ```
//! use std::sync::Arc;
//!
//! use millstream_log::{AckLevel, Done, Embedded, Log, LogConfig, SystemFiles, TopicConfig};
//! use millstream_query::{Config, Delivery, Engine, QueryRequest, QueryRuntime};
//! use millstream_types::{MemoryBudget, Record, ShortLives, SystemClock, TenantId, TopicKind, TopicName, TopicPartition};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let clock = Arc::new(SystemClock::default());
//! let config = LogConfig { dir: dir.path().to_owned(), ..LogConfig::default() };
//! let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
//! let tenant = TenantId::default();
//! let telemetry = TopicName::reserved(TopicKind::Telemetry, &tenant);
//! log.create_topic(&telemetry, &TopicConfig::default())?;
//!
//! let memory = MemoryBudget::new("memory.budget_bytes", 1 << 30);
//! let short_lives = ShortLives::default();
//! let runtime = QueryRuntime { log: log.clone(), memory, monotonic: clock.clone(), wall: clock, short_lives };
//! let engine = Engine::start(runtime, Config::default())?;
//! let request = QueryRequest::new("SELECT temp FROM STREAM() WHERE temp > 30 LIMIT 1");
//! let mut hot = engine.submit(&tenant, request).await?;
//!
//! let partition = log.partition(&TopicPartition::new(telemetry, 0))?;
//! for payload in [r#"{"temp": 29}"#, r#"{"temp": 31.5}"#] {
//!     let record = Record { value: Some(payload.as_bytes()), ..Record::default() };
//!     partition.append(&[record], AckLevel::Memory, Done::ignore())?;
//! }
//! let Some(Delivery::Rows(rows)) = hot.next().await else { panic!("rows come first") };
//! assert_eq!(rows.to_json(), br#"{"records":[{"temp":31.5}]}"#);
//! # engine.stop();
//! # log.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The query language
//!
//! ```text
//! SELECT [DISTINCT] *, value [AS name], …
//! FROM STREAM() | STREAM(milliseconds | MAX, TIME) | "topic"
//! [WHERE condition] [GROUP BY value, …] [HAVING condition] [ORDER BY value [ASC | DESC], …]
//! [WINDOWING TUMBLING(n, TIME | RECORD) | EVERY(n, TIME | RECORD, ALL | LAST, n, TIME | RECORD)
//!          | TUMBLING(n, DAY | WEEK | MONTH | QUARTER | YEAR [, 'time zone']) | SESSION(n, TIME) [ON value [DELAY n]]]
//! [LIMIT rows]
//! ```
//!
//! Words are read in any case. A condition compares (`= == != <> < <= > >=`, also with ANY or ALL of a list), tests
//! `[NOT] BETWEEN a AND b` or `BETWEEN (a, b)`, `[NOT] IN (…)`, `[NOT] RLIKE [ANY] 'whole-text pattern'` and
//! `IS [NOT] NULL`, and joins with `NOT`, `AND`, `XOR`, `OR` (in this order) and parentheses. Values are numbers,
//! `'texts'`, `TRUE`, `FALSE`, `NULL`, `NOW` (milliseconds), `[lists]`, and the results of `+ - * / %`, `CAST(a AS LONG)`
//! and the functions ([`Function`]). `a.b:LONG` is the value if it is of that type, else NULL.
//!
//! A text that begins with `{` is a query as a JSON document: `filters`,
//! `projection`, `aggregation`, `duration`, `window`, `postAggregations`.
//!
//! | field | is |
//! | --- | --- |
//! | `a`, `a.b`, `a['b c']`, `a[0]`, `"odd name"` | a value in the JSON payload; of members with one name the first |
//! | `$key` | the record's key, as text |
//! | `$timestamp` | its event time, milliseconds since 1970-01-01T00:00:00Z |
//! | `$offset`, `$partition` | its position in its stream |
//! | `$header['name']` | a header, as text; the last of that name |
//!
//! A missing field is NULL, and so is a comparison of different types; only TRUE passes. Numbers compare by their exact
//! value, whether integer or double; an integer beyond 64 bits is a double. Suffixes L and F are allowed. Texts
//! compare by code point. A payload that is not JSON has no fields and is counted. Rows keep the bytes of the values.
//!
//! Not here: the writers of the records (`connect`, jobs, Kafka clients), HTTP (`server`), entities (`context`).

mod access_path;
mod batch_matcher;
mod bql;
mod candidates;
mod catalogue;
mod checkpoint;
mod checkpointer;
mod checkpointer_inbox;
mod clocks;
mod compiled;
mod conditions;
mod config;
mod copies;
mod cost;
mod deliveries;
mod durable_state;
mod ends;
mod engine;
mod error;
mod eval;
mod event_time;
mod few;
mod filter_id;
mod hints;
mod index;
mod json;
mod literals;
mod live;
mod matcher;
mod meta;
mod meta_names;
mod moment;
mod multiplexer;
mod outbox;
mod outboxes;
mod parser;
mod past;
mod past_end;
mod plan;
mod pool;
mod prefilter;
mod progress;
mod query_id;
mod query_store;
mod rate;
mod read_error;
mod reader;
mod registry;
mod replay;
mod request;
mod requests;
mod resume;
mod resume_buffer;
mod rows;
mod runtime;
mod schema;
mod sink;
mod sink_progress;
mod stream;
mod stream_batch;
mod stream_tail;
mod subscription;
mod timer_wheel;
mod window;

pub use batch_matcher::{Matches, Tally};
pub use catalogue::EntryId;
pub use compiled::Compiled;
pub use config::{BulletConfig, Config, SchemaConfig};
pub use copies::CopyMemory;
pub use deliveries::{Deliveries, Requester, RunningDeliveries};
pub use engine::Engine;
pub use error::Error;
pub use matcher::Matcher;
pub use meta::{Cause, Clamped, Covered, Meta, Trouble};
pub use meta_names::MetaNames;
pub use millstream_columns::{
    Aggregate, Bounds, Comparison, Diagnostic, Expr, Field, Function, Item, Literal, Operator, ParserLimits, PathStep,
    Pattern, Points, SketchMeta, Statistic, Summary, TextPosition, Type,
};
pub use multiplexer::Multiplexer;
pub use outbox::Delivery;
pub use parser::parse;
pub use plan::{EventTime, Extent, Order, QueryPlan, RecordSource, Select, StreamDuration, Window};
pub use query_id::QueryId;
pub use request::{Deliver, Language, OnSlow, QueryRequest, Start, Until};
pub use requests::Requests;
pub use resume_buffer::{InvalidResultId, ResultId};
pub use rows::RowBatch;
pub use runtime::QueryRuntime;
pub use schema::{Schema, SchemaField};
pub use subscription::{Opening, QueryAnswer, Subscription};
pub use window::{WindowMeta, WindowResult};
