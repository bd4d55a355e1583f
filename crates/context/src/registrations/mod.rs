//! Registrations of context providers, and the requests that are forwarded to them.
//!
//! ```text
//!  /v2/registrations ──► owner of the tenant ──► _registrations
//!                                                     │ those that have what is asked for
//!  query:  local entities first ──► plan ◄────────────┘
//!             └──► providers: POST /op/query ──► merged into the answer; local values win
//!  update: attributes that are not here ──► providers: POST /op/update
//! ```
//!
//! A provider that is away, slow or answers rubbish counts as one that has nothing: each request waits for it a limited time, on
//! no thread of its own, and the answers it holds draw on the memory for answers.

mod outcomes;
mod provided;
mod providers;
mod registration;
mod state;
mod view;

use std::sync::Arc;

use millstream_http::Metrics;
use millstream_outgoing::Outgoing;
use millstream_types::{ServicePaths, StateTopic, TenantId, TopicName, WallClock};
use millstream_view::{Snapshot, ViewRuntime, Views, ViewsConfig};

use crate::model::object_ids::ObjectIds;
use crate::query::{NameFilter, Selector};
use crate::refusal::{Refusal, RequestFailure};
use crate::state_topic::create_state_topic;
use crate::statistics::observers::Observers;
use crate::{ContextConfig, Error};
pub(crate) use provided::{UpdateForward, provided_update};
use providers::Providers;
pub(crate) use providers::{Forwarding, UpdateOutcome};
use registration::{ForwardedEntity, ForwardedOperation};
pub(crate) use registration::{Identity, Registration};
use view::RegistrationView;
pub(crate) use view::{RegistrationCommand, RegistrationReply};

/// Limit of an append: a registration of the largest body fits.
const APPEND_MAX_BYTES: usize = 4 << 20;
/// Bytes of registrations that may wait for a decision, or for the checkpoint.
const WAITING_MAX_BYTES: usize = 16 << 20;

/// The registrations of all tenants, and the way to their providers.
pub(crate) struct Registrations {
    views: Arc<Views<RegistrationView>>,
    ids: ObjectIds,
    wall: Arc<dyn WallClock>,
    outgoing: Arc<Outgoing>,
    providers: Providers,
    /// Most forwards of one request.
    forward_limit: usize,
    pub(crate) observers: Observers,
}

/// The query of one provider.
#[derive(Debug)]
pub(crate) struct QueryForward {
    registration: Arc<Registration>,
    entities: Vec<ForwardedEntity>,
    /// Empty for all.
    attrs: Vec<String>,
}

/// The attributes that a query asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskedAttributes {
    All,
    Named(Vec<String>),
}

impl AskedAttributes {
    /// Those of a list of names that a client gives; attributes that the server makes by itself are no provider's.
    pub(crate) fn of(names: &[String]) -> Self {
        const BUILT_IN: [&str; 4] = ["dateCreated", "dateModified", "dateExpires", "servicePath"];
        if names.is_empty() || names.iter().any(|name| name == "*") {
            return Self::All;
        }
        Self::Named(names.iter().filter(|name| !BUILT_IN.contains(&name.as_str())).cloned().collect())
    }

    /// The attributes to ask of a provider that has `own`, but for those that are `here`; `None` for none.
    fn of_provider(&self, own: &[String], is_here: impl Fn(&str) -> bool) -> Option<Vec<String>> {
        let wanted = match (self, own) {
            (Self::All, []) => return Some(Vec::new()),
            (Self::All, own) => own.to_vec(),
            (Self::Named(names), []) => names.clone(),
            (Self::Named(names), own) => names.iter().filter(|name| own.contains(name)).cloned().collect(),
        };
        let lacking: Vec<String> = wanted.into_iter().filter(|name| !is_here(name)).collect();
        (!lacking.is_empty()).then_some(lacking)
    }
}

impl Registrations {
    /// Opens the registrations in `ground`.
    ///
    /// # Errors
    /// [`Error::View`], [`Error::Log`] or [`Error::Thread`], if a part cannot start.
    pub(crate) fn open(
        ground: &ViewRuntime,
        config: &ContextConfig,
        outgoing: &Arc<Outgoing>,
        observers: &Observers,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, Error> {
        let name = TopicName::internal(StateTopic::Registrations);
        create_state_topic(&name, config.partitions, &*ground.log)?;
        let views_config = ViewsConfig {
            partitions: config.partitions,
            append_max_bytes: APPEND_MAX_BYTES,
            dirty_max_bytes: WAITING_MAX_BYTES,
            inbox_max_bytes: WAITING_MAX_BYTES,
            inbox_setting: "context.inbox_max_bytes",
            ..ViewsConfig::default()
        };
        let view = RegistrationView { tenant_max: config.registrations.max };
        let views = Views::open(view, &name, &views_config, ground)?;
        let providers =
            Providers::new(outgoing.clone(), &config.registrations, ground.wall.clone(), observers.clone(), metrics);
        Ok(Arc::new(Self {
            views,
            ids: ObjectIds::default(),
            wall: ground.wall.clone(),
            outgoing: outgoing.clone(),
            providers,
            forward_limit: config.registrations.forward_limit,
            observers: observers.clone(),
        }))
    }

    /// The registrations of the tenant's partition.
    pub(crate) fn snapshot(&self, tenant: &TenantId) -> Arc<Snapshot<RegistrationView>> {
        self.views.snapshot(self.views.partition_of(tenant.as_str().as_bytes()))
    }

    /// The identity of a registration that begins now.
    pub(crate) fn identity(&self, tenant: &TenantId, path: Arc<str>) -> Identity {
        Identity { tenant: tenant.clone(), id: self.ids.next(self.wall.now_ms()), path }
    }

    /// Refuses a provider whose host is not allowed.
    pub(crate) fn check_host(&self, registration: &Registration) -> Result<(), Refusal> {
        let host = registration.host();
        host.map_or(Ok(()), |host| self.outgoing.targets.check(&host)).map_err(Refusal::bad)
    }

    /// The permanent failures of the view.
    pub(crate) fn failures(&self) -> Vec<millstream_view::Failure> {
        self.views.failures()
    }

    /// Writes the checkpoint.
    pub(crate) fn stop(&self) {
        self.views.stop();
    }

    /// The way to the providers.
    pub(crate) fn providers(&self) -> &Providers {
        &self.providers
    }

    /// Sends a command to the owner of the tenant's registrations.
    pub(crate) async fn ask(
        &self,
        tenant: &TenantId,
        command: RegistrationCommand,
    ) -> Result<RegistrationReply, RequestFailure> {
        let owner = self.views.partition_of(tenant.as_str().as_bytes());
        let answer = self.views.ask(owner, command).await;
        match &answer {
            Ok(RegistrationReply::Done) => self.observers.stored(),
            Ok(_) => {}
            Err(error) => self.observers.refused(error),
        }
        Ok(answer?)
    }

    /// The registrations that have entities that one of `selectors` selects, oldest first, as far as requests are forwarded.
    fn with_entities(
        &self,
        tenant: &TenantId,
        operation: ForwardedOperation,
        selectors: &[Selector],
    ) -> Vec<Arc<Registration>> {
        let snapshot = self.snapshot(tenant);
        let Some(of_tenant) = snapshot.state.of(tenant) else { return Vec::new() };
        let now_ms = self.wall.now_ms();
        let mut found = of_tenant.candidates(selectors);
        found.retain(|registration| registration.mode.has(operation) && !registration.is_expired(now_ms));
        found
    }

    /// The queries that go to providers, at most as many as a request may forward. No selector selects all entities.
    pub(crate) fn for_query(
        &self,
        tenant: &TenantId,
        paths: &ServicePaths,
        selectors: &[Selector],
        attrs: &AskedAttributes,
        is_here: impl Fn(&str) -> bool,
    ) -> Vec<QueryForward> {
        let all = [Selector::default()];
        let selectors = if selectors.is_empty() { &all } else { selectors };
        let found = self.with_entities(tenant, ForwardedOperation::Query, selectors);
        let forward = |registration: Arc<Registration>| {
            let attrs = attrs.of_provider(&registration.attrs, &is_here)?;
            let mut entities: Vec<ForwardedEntity> = Vec::new();
            let asked =
                registration.claims.iter().flat_map(|claim| selectors.iter().flat_map(|it| claim.forwarded(it)));
            asked.for_each(|entity| {
                if !entities.contains(&entity) {
                    entities.push(entity);
                }
            });
            (!entities.is_empty()).then_some(QueryForward { registration, entities, attrs })
        };
        let in_paths = found.into_iter().filter(|registration| paths.have(&registration.identity.path));
        in_paths.filter_map(forward).take(self.forward_limit).collect()
    }

    /// The provider that takes updates of the attribute `name` of an entity: the oldest registration that has it.
    pub(crate) fn for_update(
        &self,
        tenant: &TenantId,
        path: &str,
        id: &str,
        kind: Option<&str>,
        name: &str,
    ) -> Option<Arc<Registration>> {
        let selector = Selector {
            ids: NameFilter::Of(vec![id.to_owned()]),
            kinds: kind.map_or(NameFilter::Any, |kind| NameFilter::Of(vec![kind.to_owned()])),
        };
        let found = self.with_entities(tenant, ForwardedOperation::Update, &[selector]);
        found.into_iter().find(|registration| {
            *registration.identity.path == *path
                && (registration.attrs.is_empty() || registration.attrs.iter().any(|own| own == name))
                && registration.claims.iter().any(|claim| claim.has(id, kind))
        })
    }

    /// `true` if the tenant has registrations.
    pub(crate) fn has_some(&self, tenant: &TenantId) -> bool {
        self.snapshot(tenant).state.of(tenant).is_some()
    }

    /// Most forwards of one request.
    pub(crate) fn forward_limit(&self) -> usize {
        self.forward_limit
    }
}
