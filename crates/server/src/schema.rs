//! The observed schema of a stream, for completion and tables.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Caller, Content, Limits, Path, Problem, Query, Route, Routes};
use millstream_query::{Diagnostic, Engine, Error, Schema};
use millstream_types::{Role, TenantId};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::query_problem::problem;

pub(crate) const LOOK_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(10) };

/// Description of the parameter `stream`.
pub(crate) const STREAM: &str = "The topic; the default is the topic of `STREAM()`.";

/// Inspects one stream at a time on a blocking thread, so all requests together use at most one core.
pub(crate) struct Schemas {
    engine: Arc<Engine>,
    turn: Arc<Semaphore>,
}

impl Schemas {
    pub(crate) fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self { engine, turn: Arc::new(Semaphore::new(1)) })
    }

    pub(crate) async fn look(&self, tenant: &TenantId, stream: Option<String>) -> Result<Arc<Schema>, Problem> {
        let tenant = tenant.clone();
        self.wait(move |engine| engine.schema(&tenant, stream.as_deref())).await.map_err(problem)
    }

    /// Returns warnings about the text of a query.
    pub(crate) async fn hints(&self, tenant: &TenantId, text: String) -> Result<Vec<Diagnostic>, Error> {
        let tenant = tenant.clone();
        self.wait(move |engine| engine.hints(&tenant, &text)).await
    }

    async fn wait<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let engine = Arc::clone(&self.engine);
        let turn = Arc::clone(&self.turn).acquire_owned().await.map_err(|_| Error::Stopped)?;
        let looked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            look(&engine)
        });
        looked.await.unwrap_or(Err(Error::Stopped))
    }
}

pub(crate) fn routes(schemas: &Arc<Schemas>) -> Routes {
    let reader = Access::Role(Role::Reader);
    let described =
        "Fields with path, observed types, share of records and examples; and the number of inspected records.";
    let schema = || Content::json(json!({"type": "object", "required": ["stream", "records", "fields"]}));
    Routes::new("schema")
        .route(
            Route::get(
                "/api/streams/{stream}/schema",
                reader,
                LOOK_LIMITS,
                "Describe the fields of a stream's records",
            )
            .param("stream", "The topic's name.")
            .answers_with(200, described, schema())
            .answers(404, "The topic does not exist.")
            .to(of_stream, Arc::clone(schemas)),
        )
        .route(
            Route::get("/api/queries/columns", reader, LOOK_LIMITS, "List the fields that a query can select")
                .query("stream", STREAM)
                .answers_with(200, described, schema())
                .answers(404, "The topic does not exist.")
                .to(of_queries, Arc::clone(schemas)),
        )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SchemaParameters {
    pub(crate) stream: Option<String>,
}

async fn of_stream(
    State(schemas): State<Arc<Schemas>>,
    caller: Caller,
    Path(stream): Path<String>,
) -> Result<Response, Problem> {
    Ok(axum::Json(&*schemas.look(&caller.tenant, Some(stream)).await?).into_response())
}

async fn of_queries(
    State(schemas): State<Arc<Schemas>>,
    caller: Caller,
    Query(SchemaParameters { stream }): Query<SchemaParameters>,
) -> Result<Response, Problem> {
    Ok(axum::Json(&*schemas.look(&caller.tenant, stream).await?).into_response())
}
