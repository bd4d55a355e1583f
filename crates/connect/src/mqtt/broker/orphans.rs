//! Removes the sessions and messages of tenants and devices that are no longer registered. A later tenant or device of
//! the same name finds none of them.

use std::sync::Arc;

use millstream_types::TenantId;

use super::Broker;
use super::brokers::Brokers;
use super::ids::SessionId;
use super::session::Session;
use crate::mqtt::session_store::{SessionCommand, SessionStore, StoreAnswer, TenantSessions};
use crate::registry::{Registry, Version};

const STILL_KEPT: &str = "what is registered no more is still kept";

/// The part of a tenant's state that has lost its owner.
#[derive(Debug, PartialEq, Eq)]
enum Orphans {
    /// All state of the tenant, which exists no more.
    All,
    /// The state of an earlier tenant with the same name.
    Former { born: Version },
    /// The sessions of these clients.
    Sessions(Vec<Arc<str>>),
}

impl Brokers {
    /// Ends the sessions of devices that are not registered, and forgets all of tenants that are not.
    pub(crate) async fn end_orphans(&self, registry: &Registry) {
        let (store, registry) = (self.parts.store.clone(), registry.clone());
        let found = tokio::task::spawn_blocking(move || find(&store, &registry)).await;
        for (tenant, orphans) in found.unwrap_or_default() {
            let broker = self.running(&tenant);
            match &orphans {
                Orphans::All => {
                    broker.iter().for_each(|broker| broker.abandon(|_| true));
                    self.forget(&tenant).await;
                }
                Orphans::Former { born } => {
                    let former = broker.iter().filter(|broker| broker.born != *born);
                    former.for_each(|broker| broker.abandon(|_| true));
                    let owned = self.own(&tenant, *born).await;
                    drop(owned.inspect_err(|error| tracing::warn!(%error, %tenant, "{STILL_KEPT}")));
                }
                Orphans::Sessions(clients) => match broker {
                    Some(broker) => broker.abandon(|session| clients.contains(&session.client)),
                    None => {
                        for client in clients {
                            self.ask(&tenant, SessionCommand::End { tenant: tenant.clone(), client: client.clone() })
                                .await;
                        }
                    }
                },
            }
            tracing::info!(%tenant, ?orphans, "mqtt: what is registered no more has left");
        }
    }

    async fn forget(&self, tenant: &TenantId) {
        while let Some(StoreAnswer::More) = self.ask(tenant, SessionCommand::Forget { tenant: tenant.clone() }).await {}
    }

    async fn ask(&self, tenant: &TenantId, command: SessionCommand) -> Option<StoreAnswer> {
        let answer = self.parts.store.ask(tenant, command).await;
        answer.inspect_err(|error| tracing::warn!(%error, %tenant, "{STILL_KEPT}")).ok()
    }

    /// Makes the store forget the state of earlier tenants of this name.
    pub(super) async fn own(&self, tenant: &TenantId, born: Version) -> Result<(), millstream_view::Error> {
        let own = || self.parts.store.ask(tenant, SessionCommand::Own { tenant: tenant.clone(), born });
        while let StoreAnswer::More = own().await? {}
        Ok(())
    }
}

impl Broker {
    /// Ends sessions, without their wills.
    pub(super) fn abandon(self: &Arc<Self>, is_orphan: impl Fn(&Session) -> bool) {
        let mut state = self.state.lock();
        let orphans = state.sessions.iter().filter(|(_, session)| session.is_durable() && is_orphan(session));
        let orphans: Vec<SessionId> = orphans.map(|(id, _)| *id).collect();
        let ended: Vec<_> = orphans.into_iter().filter_map(|id| state.remove(id)).collect();
        drop(state);
        for mut session in ended {
            session.will = None;
            self.end(session);
        }
    }
}

fn find(store: &SessionStore, registry: &Registry) -> Vec<(TenantId, Orphans)> {
    let orphans = |tenant: &TenantId, of_tenant: &TenantSessions| {
        let snapshot = registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant).and_then(|known| Some((known, known.tenant.as_ref()?)));
        let Some((known, stored)) = known else { return Some((tenant.clone(), Orphans::All)) };
        if of_tenant.born.is_some_and(|born| born != stored.born) {
            return Some((tenant.clone(), Orphans::Former { born: stored.born }));
        }
        let of_nobody = of_tenant.sessions.iter().filter(|(_, session)| !known.devices.contains_key(&*session.device));
        let clients: Vec<_> = of_nobody.map(|(client, _)| Arc::clone(client)).collect();
        (!clients.is_empty()).then(|| (tenant.clone(), Orphans::Sessions(clients)))
    };
    let snapshots = store.snapshots();
    let tenants = snapshots.iter().flat_map(|snapshot| snapshot.state.tenants());
    tenants.filter_map(|(tenant, of_tenant)| orphans(tenant, of_tenant)).collect()
}
