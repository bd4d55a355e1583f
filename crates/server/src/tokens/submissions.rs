//! The running jobs that a token has submitted. They go on after its end, unless the caller who revokes it stops them.

use millstream_flow::{Jobs, StopMode};
use millstream_types::TenantId;
use serde_json::{Value, json};

pub(super) struct Submissions(Vec<(TenantId, Value)>);

impl Submissions {
    /// Those of the token `name` in `tenant`; in all tenants if `None`.
    pub(super) fn of(jobs: &Jobs, tenant: Option<&TenantId>, name: &str) -> Self {
        Self(jobs.running_of(tenant, name))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks all of them to stop, as the caller of `POST /api/jobs/{id}/stop` does.
    pub(super) async fn stop(&self, jobs: &Jobs) {
        for (tenant, job) in &self.0 {
            let id = job["id"].as_str().unwrap_or_default();
            if let Err(error) = jobs.stop(tenant, id, StopMode::Graceful).await {
                tracing::warn!(job = id, error = &error as &dyn std::error::Error, "a job of a revoked token goes on");
            }
        }
    }

    pub(super) fn shown(&self, are_stopped: bool) -> Value {
        let shown = |(tenant, job): &(TenantId, Value)| json!({"tenant": tenant.as_str(), "id": job["id"], "name": job["name"], "submitted": job["submitted"]});
        json!({"jobs": self.0.iter().map(shown).collect::<Vec<_>>(), "stopped": are_stopped})
    }
}
