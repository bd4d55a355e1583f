//! Tell me now, and whenever it changes: questions about records that have not arrived yet.
//!
//! A query is a text ([`parse`] gives its [`Plan`]), sees the records of one stream that are appended after it was
//! taken, and sends those that match as rows until it ends. [`Engine`] reads the streams that have queries, each record
//! once for all of them; [`Matcher`] finds the queries that a record concerns; a [`Subscription`] is what the client
//! reads.
//!
//! ```
//! use std::sync::Arc;
//!
//! use millstream_log::{AckLevel, Done, Embedded, Log, LogConfig, SystemFiles, TopicConfig};
//! use millstream_query::{Config, Delivery, Engine, QueryRequest};
//! use millstream_types::{Kind, MemoryBudget, Record, SystemClock, TenantId, TopicName, TopicPartition};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let clock = Arc::new(SystemClock::default());
//! let config = LogConfig { dir: dir.path().to_owned(), ..LogConfig::default() };
//! let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
//! let tenant = TenantId::default();
//! let telemetry = TopicName::reserved(Kind::Telemetry, &tenant);
//! log.create_topic(&telemetry, &TopicConfig::default())?;
//!
//! let memory = MemoryBudget::new("memory.budget_bytes", 1 << 30);
//! let engine = Engine::start(log.clone(), Config::default(), &memory, clock.clone(), clock)?;
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
//! # What a query can say
//!
//! ```text
//! SELECT [DISTINCT] * | value [AS name], …
//! FROM STREAM() | STREAM(milliseconds | MAX, TIME) | "topic"
//! [WHERE condition] [GROUP BY value, …] [HAVING condition] [ORDER BY value [ASC | DESC], …]
//! [WINDOWING TUMBLING(n, TIME | RECORD) | EVERY(n, TIME | RECORD, ALL | FIRST, n, TIME | RECORD)]
//! [LIMIT rows]
//! ```
//!
//! Words are read in any case. A condition compares (`= == != <> < <= > >=`, also with ANY or ALL of a list), tests
//! `[NOT] BETWEEN a AND b` or `BETWEEN (a, b)`, `[NOT] IN (…)`, `[NOT] RLIKE [ANY] 'whole-text pattern'` and
//! `IS [NOT] NULL`, and joins with `NOT`, `AND`, `XOR`, `OR` (in this order) and parentheses. Values are numbers,
//! `'texts'`, `TRUE`, `FALSE`, `NULL`, `NOW` (milliseconds), `[lists]`, and what `+ - * / %`, `CAST(a AS LONG)` and the
//! functions ([`Function`]) make of them. `a.b:LONG` is the value if it is of that type, else NULL.
//!
//! A text that begins with `{` is a query as a JSON document: `filters`, `projection`, `aggregation`, `duration`, `window`,
//! `postAggregations`.
//!
//! | field | is |
//! | --- | --- |
//! | `a`, `a.b`, `a['b c']`, `a[0]`, `"odd name"` | a value in the JSON payload; of members with one name the first |
//! | `$key` | the record's key, as text |
//! | `$timestamp` | its event time, milliseconds since 1970-01-01T00:00:00Z |
//! | `$offset`, `$partition` | where it stands in its stream |
//! | `$header['name']` | a header, as text; the last of that name |
//!
//! A missing field is NULL, and so is a comparison of different types; only TRUE passes. Numbers compare by their exact
//! value, whether integer or double; an integer beyond 64 bits is a double. Suffixes L and F are allowed. Texts
//! compare by code point. A payload that is not JSON has no fields and is counted. Rows keep the bytes of the values.
//!
//! Not here: who wrote the records (`connect`, jobs, Kafka clients), HTTP (`server`), state that is kept (`context`).

mod aggregate;
mod catalogue;
mod chunk;
mod compiled;
mod conditions;
mod config;
mod cover;
mod deliveries;
mod ends;
mod engine;
mod error;
mod eval;
mod few;
mod fields;
mod finder;
mod hash;
mod hints;
mod index;
mod json;
mod keeper;
mod keeping;
mod kept;
mod literals;
mod live;
mod many;
mod matcher;
mod meta;
mod meta_names;
mod moment;
mod outbox;
mod outboxes;
mod parser;
mod passage;
mod past;
mod plan;
mod pool;
mod price;
mod progress;
mod rate;
mod reader;
mod registry;
mod replay;
mod request;
mod requests;
mod resume;
mod rows;
mod schema;
mod seeker;
mod shelf;
mod sieve;
mod sink;
mod slab;
mod stream;
mod subscription;
mod tailed;
mod trail;
mod wheel;
mod window;

pub use aggregate::{Bounds, SketchMeta};
pub use catalogue::EntryId;
pub use compiled::Compiled;
pub use config::{BulletConfig, Config};
pub use deliveries::{Asker, Deliveries, Delivering};
pub use engine::Engine;
pub use error::Error;
pub use finder::{Tally, Yield};
pub use many::Many;
pub use matcher::Matcher;
pub use meta::{Cause, Clamped, Covered, Meta, QueryId, Trouble};
pub use meta_names::MetaNames;
pub use millstream_columns::{
    Aggregate, Comparison, Diagnostic, Expr, Field, Function, Item, Limits, Literal, Operator, Pattern, Place, Points,
    Statistic, Step, Summary, Type,
};
pub use outbox::Delivery;
pub use parser::parse;
pub use plan::{Extent, Order, Plan, Select, Source, StreamDuration, Window};
pub use request::{Deliver, Language, OnSlow, QueryRequest, Start};
pub use requests::Requests;
pub use rows::RowBatch;
pub use schema::{Schema, SchemaConfig, SchemaField};
pub use subscription::{Answer, Opening, Subscription};
pub use trail::{NoResultId, ResultId};
pub use window::{WindowMeta, WindowResult};
