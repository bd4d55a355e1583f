//! The running jobs and kept queries that a token has submitted. They go on after its end, unless the caller who revokes it
//! stops them.

use millstream_flow::{Jobs, StopMode};
use millstream_query::{Engine, Meta};
use millstream_types::TenantId;
use serde_json::{Value, json};

pub(super) struct Submissions {
    jobs: Vec<(TenantId, Value)>,
    queries: Vec<(TenantId, Meta)>,
}

impl Submissions {
    /// Those of the token `name` in `tenant`; in all tenants if `None`.
    pub(super) fn of(jobs: &Jobs, queries: &Engine, tenant: Option<&TenantId>, name: &str) -> Self {
        Self { jobs: jobs.running_of(tenant, name), queries: queries.kept_by(tenant, name) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.queries.is_empty()
    }

    /// Asks the jobs to stop, as the caller of `POST /api/jobs/{id}/stop` does, and ends the queries.
    pub(super) async fn stop(&self, jobs: &Jobs, queries: &Engine) {
        for (tenant, query) in &self.queries {
            // One that is unknown by now has ended.
            let _ = queries.kill(tenant, query.id);
        }
        for (tenant, job) in &self.jobs {
            let id = job["id"].as_str().unwrap_or_default();
            if let Err(error) = jobs.stop(tenant, id, StopMode::Graceful).await {
                tracing::warn!(job = id, error = &error as &dyn std::error::Error, "a job of a revoked token goes on");
            }
        }
    }

    pub(super) fn shown(&self, are_stopped: bool) -> Value {
        let shown = |(tenant, job): &(TenantId, Value)| json!({"tenant": tenant.as_str(), "id": job["id"], "name": job["name"], "submitted": job["submitted"]});
        let jobs: Vec<Value> = self.jobs.iter().map(shown).collect();
        let shown = |(tenant, query): &(TenantId, Meta)| json!({"tenant": tenant.as_str(), "id": query.id, "text": query.text, "received_ms": query.received_ms});
        let queries: Vec<Value> = self.queries.iter().map(shown).collect();
        json!({"jobs": jobs, "queries": queries, "stopped": are_stopped})
    }
}
