//! What is left of tenants and devices that are registered no more: it ends, and nothing of it is kept. Whoever gets
//! their names later finds nothing of it.

use std::sync::Arc;

use millstream_types::TenantId;

use super::{Session, SessionId, Space, Spaces};
use crate::mqtt::kept::{Answer, Command, Kept, OfTenant};
use crate::registry::{Registry, Version};

const STILL_KEPT: &str = "what is registered no more is still kept";

/// What of a tenant has lost its owner.
#[derive(Debug, PartialEq, Eq)]
enum Orphans {
    /// All that there is of it.
    All,
    /// All that is of another one that had its name before.
    Former { born: Version },
    /// The sessions of these clients.
    Sessions(Vec<Arc<str>>),
}

impl Spaces {
    /// Ends the sessions of devices that are not registered, and forgets all of tenants that are not.
    pub(crate) async fn end_orphans(&self, registry: &Registry) {
        let (kept, registry) = (self.parts.kept.clone(), registry.clone());
        let found = tokio::task::spawn_blocking(move || find(&kept, &registry)).await;
        for (tenant, orphans) in found.unwrap_or_default() {
            let space = self.running(&tenant);
            match &orphans {
                Orphans::All => {
                    space.iter().for_each(|space| space.abandon(|_| true));
                    self.forget(&tenant).await;
                }
                Orphans::Former { born } => {
                    let former = space.iter().filter(|space| space.born != *born);
                    former.for_each(|space| space.abandon(|_| true));
                    let owned = self.own(&tenant, *born).await;
                    drop(owned.inspect_err(|error| tracing::warn!(%error, %tenant, "{STILL_KEPT}")));
                }
                Orphans::Sessions(clients) => match space {
                    Some(space) => space.abandon(|session| clients.contains(&session.client)),
                    None => {
                        for client in clients {
                            self.ask(&tenant, Command::End { tenant: tenant.clone(), client: client.clone() }).await;
                        }
                    }
                },
            }
            tracing::info!(%tenant, ?orphans, "mqtt: what is registered no more has left");
        }
    }

    async fn forget(&self, tenant: &TenantId) {
        while let Some(Answer::More) = self.ask(tenant, Command::Forget { tenant: tenant.clone() }).await {}
    }

    async fn ask(&self, tenant: &TenantId, command: Command) -> Option<Answer> {
        let answer = self.parts.kept.ask(tenant, command).await;
        answer.inspect_err(|error| tracing::warn!(%error, %tenant, "{STILL_KEPT}")).ok()
    }

    /// Has everything forgotten that is of another tenant of this name.
    pub(super) async fn own(&self, tenant: &TenantId, born: Version) -> Result<(), millstream_view::Error> {
        let own = || self.parts.kept.ask(tenant, Command::Own { tenant: tenant.clone(), born });
        while let Answer::More = own().await? {}
        Ok(())
    }
}

impl Space {
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

fn find(kept: &Kept, registry: &Registry) -> Vec<(TenantId, Orphans)> {
    let orphans = |tenant: &TenantId, of_tenant: &OfTenant| {
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
    let snapshots = kept.snapshots();
    let tenants = snapshots.iter().flat_map(|snapshot| snapshot.state.tenants());
    tenants.filter_map(|(tenant, of_tenant)| orphans(tenant, of_tenant)).collect()
}
