//! Commands to LoRaWAN devices, posted to the command endpoint of their network server.
//!
//! A network server that has a `command-endpoint` listens as a gateway for commands from its first uplink on. The registry is
//! asked again for each command: a network server that is disabled, deleted or without endpoint gets no more.
//!
//! A task a network server posts its commands, some at a time, and all network servers of a tenant share the tenant's limit: one that
//! hangs holds up no other tenant's. A request takes its bytes from the memory budget while it is on its way.

use std::collections::HashMap;
use std::sync::{Arc, mpsc as threads};
use std::time::{Duration, Instant};

use millstream_outgoing::{HttpReceiver, HttpRequest, Outgoing};
use millstream_types::{Grant, MemoryBudget, Principal, TenantId, WallClock};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::config::LoraConfig;
use super::downlink_body::{PORT_BY_DEFAULT, body, port_named};
use super::provider::Provider;
use crate::commands::{Command, CommandDelivery, Commands, Listening, Way, Whose};
use crate::ingest::Ingest;
use crate::metrics::{AdapterMetrics, Direction, ProcessingOutcome};
use crate::registry::{CommandEndpoint, DownlinkValues};
use crate::sender::DeviceAddress;

/// Memory of a network server that listens: its task and its queue.
const SERVER_BYTES: u64 = 4 << 10;
/// Memory of a request beside its bytes: a connection, with the buffers of TLS.
const CONNECTION_BYTES: u64 = 32 << 10;
/// Network servers of all tenants beyond which those that are gone are looked for.
const PRUNED_FROM: usize = 64;
/// Time after a command has come back in which each uplink offers it again.
const RETURNED_FOR: Duration = Duration::from_secs(10);
/// Shortest time from one listener to the next.
const LISTENS_MIN: Duration = Duration::from_millis(500);
/// Longest wait for the tasks when the plane stops.
const STOPPED_MAX: Duration = Duration::from_secs(5);

/// The way of commands to network servers.
pub(super) struct Downlinks {
    pub(super) commands: Arc<Commands>,
    pub(super) ingest: Arc<Ingest>,
    pub(super) meters: Arc<AdapterMetrics>,
    pub(super) wall: Arc<dyn WallClock>,
    pub(super) config: LoraConfig,
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) memory: MemoryBudget,
    pub(super) known: Mutex<NetworkServers>,
}

/// The network servers that listen for commands.
#[derive(Default)]
pub(super) struct NetworkServers {
    of_tenants: HashMap<TenantId, TenantServers>,
    count: usize,
    /// The number at which those that are gone are looked for next.
    pruned_at: usize,
    is_stopped: bool,
    /// Closes once the last task has ended.
    ended: Option<(threads::Sender<()>, threads::Receiver<()>)>,
}

struct TenantServers {
    /// Places of requests on their way.
    places: Arc<Semaphore>,
    servers: HashMap<Arc<str>, ListeningServer>,
}

struct ListeningServer {
    server: Arc<NetworkServer>,
    outbox: mpsc::Sender<CommandDelivery>,
    listening: Listening,
    since: Instant,
    task: AbortHandle,
    _room: Grant,
}

/// A network server, as its task sees it.
struct NetworkServer {
    /// The login as which it sends.
    gateway: Principal,
    /// The kind by which its last uplink came.
    provider: Mutex<Provider>,
    /// The time at which a command has come back. Only a new listener gets it again.
    returned: Mutex<Option<Instant>>,
    places: Arc<Semaphore>,
    /// The connections to the endpoint's host.
    receiver: Mutex<Option<Arc<HttpReceiver>>>,
    _alive: threads::Sender<()>,
}

/// The cause for which a command was not taken.
enum Untaken {
    /// Another attempt may succeed.
    Released(String),
    Rejected(u16, String),
}

impl Downlinks {
    /// Notes that the network server has sent an uplink, so that it gets the commands of the devices behind it if it has an endpoint.
    pub(super) fn heard(self: &Arc<Self>, gateway: &Principal, provider: Provider) {
        let (tenant, name) = (&gateway.tenant, gateway.name.as_str());
        let has_endpoint = self.has_endpoint(tenant, name);
        let mut known = self.known.lock();
        if !has_endpoint {
            known.remove(tenant, name);
            return;
        }
        let server = known.of_tenants.get_mut(tenant).and_then(|of_tenant| of_tenant.servers.get_mut(name));
        if let Some(listening) = server.filter(|listening| !listening.outbox.is_closed()) {
            *listening.server.provider.lock() = provider;
            let mut returned = listening.server.returned.lock();
            if let Some(at) = *returned {
                // All commands of the tenant are gone through for a new listener.
                if listening.since.elapsed() < LISTENS_MIN {
                    return;
                }
                // One that has come back only now may not wait for a listener yet.
                if at.elapsed() >= RETURNED_FOR {
                    *returned = None;
                }
                listening.listening = self.listen(tenant, name, &listening.outbox);
                listening.since = Instant::now();
            }
            return;
        }
        if known.is_stopped {
            return;
        }
        let Some(room) = self.memory.for_tenant(tenant).take(SERVER_BYTES) else {
            tracing::debug!(%tenant, gateway = name, "a network server gets no commands: the memory budget is used up");
            return;
        };
        known.remove(tenant, name);
        self.prune(&mut known);
        self.add(&mut known, gateway, provider, room);
    }

    fn add(self: &Arc<Self>, known: &mut NetworkServers, gateway: &Principal, provider: Provider, room: Grant) {
        let (alive, _) = known.ended.get_or_insert_with(threads::channel);
        let alive = alive.clone();
        let tenant = &gateway.tenant;
        let places = || TenantServers {
            places: Arc::new(Semaphore::new(self.config.downlinks_max_per_tenant)),
            servers: HashMap::new(),
        };
        let of_tenant = known.of_tenants.entry(tenant.clone()).or_insert_with(places);
        let server = Arc::new(NetworkServer {
            gateway: gateway.clone(),
            provider: Mutex::new(provider),
            returned: Mutex::default(),
            places: Arc::clone(&of_tenant.places),
            receiver: Mutex::default(),
            _alive: alive,
        });
        // One network server takes half of the tenant's places, so that another one has some.
        let most = (self.config.downlinks_max_per_tenant / 2).max(1);
        let (outbox, inbox) = mpsc::channel(most);
        let task = tokio::spawn(Arc::clone(self).serve(Arc::clone(&server), inbox, most)).abort_handle();
        let listening = self.listen(tenant, &gateway.name, &outbox);
        let added = ListeningServer { server, outbox, listening, since: Instant::now(), task, _room: room };
        of_tenant.servers.insert(gateway.name.as_str().into(), added);
        known.count += 1;
    }

    fn listen(&self, tenant: &TenantId, gateway: &str, outbox: &mpsc::Sender<CommandDelivery>) -> Listening {
        self.commands.listen(tenant, Whose::Behind { gateway: gateway.into() }, Way::Stream(outbox.clone()))
    }

    /// True if the network server may send, and has an endpoint.
    fn has_endpoint(&self, tenant: &TenantId, gateway: &str) -> bool {
        let snapshot = self.ingest.registry.snapshot(tenant);
        let device = snapshot.state.tenant(tenant).and_then(|known| known.devices.get(gateway));
        device.is_some_and(|stored| stored.value.enabled && stored.value.command_endpoint().is_some())
    }

    /// Removes network servers and tenants that are gone, each time their number has doubled.
    fn prune(&self, known: &mut NetworkServers) {
        if known.count + known.of_tenants.len() < known.pruned_at.max(PRUNED_FROM) {
            return;
        }
        for (tenant, of_tenant) in &mut known.of_tenants {
            of_tenant.servers.retain(|gateway, _| self.has_endpoint(tenant, gateway));
        }
        // Requests of a network server that is gone still take places of its tenant.
        let is_used = |of_tenant: &TenantServers| Arc::strong_count(&of_tenant.places) > 1;
        known.of_tenants.retain(|_, of_tenant| is_used(of_tenant));
        known.count = known.of_tenants.values().map(|of_tenant| of_tenant.servers.len()).sum();
        known.pruned_at = 2 * (known.count + known.of_tenants.len());
    }

    /// Posts the commands of a network server, until it no longer listens.
    async fn serve(
        self: Arc<Self>,
        server: Arc<NetworkServer>,
        mut inbox: mpsc::Receiver<CommandDelivery>,
        most: usize,
    ) {
        let mut posts = JoinSet::new();
        loop {
            tokio::select! {
                delivery = inbox.recv(), if posts.len() < most => match delivery {
                    Some(delivery) => drop(posts.spawn(Arc::clone(&self).deliver(Arc::clone(&server), delivery, most))),
                    None => break,
                },
                Some(_) = posts.join_next(), if !posts.is_empty() => {}
            }
        }
        while posts.join_next().await.is_some() {}
    }

    async fn deliver(self: Arc<Self>, server: Arc<NetworkServer>, delivery: CommandDelivery, most: usize) {
        let _place = server.places.acquire().await;
        let posted = self.post(&server, delivery.command(), most).await;
        let command = delivery.command();
        let outcome = match posted {
            Ok(()) => ProcessingOutcome::Forwarded,
            Err(Untaken::Released(_)) => ProcessingOutcome::Undeliverable,
            Err(Untaken::Rejected(..)) => ProcessingOutcome::Unprocessable,
        };
        let took_ms = self.wall.now_ms().saturating_sub(command.received_ms);
        let took = Duration::from_millis(u64::try_from(took_ms).unwrap_or(0));
        let meter = self.meters.of(&command.tenant);
        meter.count_command(Direction::of(command.wants_response), outcome, command.payload.len(), took);
        match posted {
            Ok(()) => delivery.accept(),
            Err(Untaken::Released(why)) => {
                *server.returned.lock() = Some(Instant::now());
                delivery.release_because(why);
            }
            Err(Untaken::Rejected(status, why)) => delivery.reject(status, why),
        }
    }

    /// Posts a command once.
    async fn post(&self, server: &NetworkServer, command: &Command, most: usize) -> Result<(), Untaken> {
        let request = self.request(server, command)?;
        let bytes = request.bytes().len() as u64 + CONNECTION_BYTES;
        let Some(_room) = self.memory.for_tenant(&command.tenant).take(bytes) else {
            return Err(Untaken::Released(format!("{} is used up", self.memory.setting())));
        };
        let receiver = self.receiver(server, &request, most);
        let timeout = Duration::from_millis(self.config.downlink_timeout_ms);
        let sent = receiver.send(&request, timeout).await;
        let (status, _) = sent.map_err(|failed| Untaken::Released(format!("the network server: {}", failed.reason)))?;
        let answered = || format!("the network server has answered {status}");
        match status {
            200..=299 => Ok(()),
            408 | 429 | 500..=599 => Err(Untaken::Released(answered())),
            400..=499 => Err(Untaken::Rejected(400, answered())),
            _ => Err(Untaken::Rejected(400, format!("{}: no success, and redirects are not followed", answered()))),
        }
    }

    /// The request for a command, by what the registry says now.
    fn request(&self, server: &NetworkServer, command: &Command) -> Result<HttpRequest, Untaken> {
        let (tenant, limit) = (&command.tenant, self.config.payload_max_bytes);
        let gone = || Untaken::Released("the network server may no longer take commands of the device".to_owned());
        let snapshot = self.ingest.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant).ok_or_else(gone)?;
        let target = DeviceAddress::Named { tenant: None, device: &command.device };
        self.ingest.sender(known, target, &server.gateway).map_err(|_| gone())?;
        let gateway = known.devices.get(server.gateway.name.as_str());
        let endpoint = gateway.and_then(|stored| stored.value.command_endpoint()).ok_or_else(gone)?;
        let bytes = command.payload.len();
        if bytes > limit {
            let why = format!("a payload of {bytes} bytes; connect.lora.payload_max_bytes = {limit}");
            return Err(Untaken::Rejected(413, why));
        }
        let named = port_named(&command.name).map_err(|why| Untaken::Rejected(400, why))?;
        let port = named.unwrap_or(PORT_BY_DEFAULT);
        let values = DownlinkValues { device: &command.device, payload: &command.payload, port };
        let body = body(*server.provider.lock(), endpoint, &values, named).to_string();
        self.addressed(endpoint, &values, &body)
    }

    fn addressed(
        &self,
        endpoint: &CommandEndpoint,
        values: &DownlinkValues<'_>,
        body: &str,
    ) -> Result<HttpRequest, Untaken> {
        let no_url = || Untaken::Rejected(400, "the URI of command-endpoint is no URL".to_owned());
        let url = endpoint.url(values).ok_or_else(no_url)?;
        self.outgoing.targets.check(url.host()).map_err(|why| Untaken::Rejected(400, why))?;
        let mut headers = endpoint.headers();
        for name in ["content-type", "accept"] {
            headers.entry(name.to_owned()).or_insert("application/json");
        }
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(HttpRequest::write(&url, "POST", &headers, body))
    }

    /// The connections to the host of a request: those of the last one, unless the endpoint has changed.
    fn receiver(&self, server: &NetworkServer, request: &HttpRequest, most: usize) -> Arc<HttpReceiver> {
        let mut kept = server.receiver.lock();
        if let Some(receiver) = kept.as_ref().filter(|receiver| *receiver.address() == *request.address) {
            return Arc::clone(receiver);
        }
        let new = Arc::new(HttpReceiver::new(Arc::clone(&request.address), Arc::clone(&self.outgoing), most));
        *kept = Some(Arc::clone(&new));
        new
    }

    /// Stops the tasks. Requests on their way are cut off, and their commands released.
    pub(super) fn stop(&self) {
        let mut known = self.known.lock();
        known.is_stopped = true;
        let of_tenants = std::mem::take(&mut known.of_tenants);
        let ended = known.ended.take();
        drop(known);
        of_tenants.values().flat_map(|of_tenant| of_tenant.servers.values()).for_each(|server| server.task.abort());
        drop(of_tenants);
        if let Some((alive, ended)) = ended {
            drop(alive);
            // Nothing is ever sent: it ends when the last task has dropped its end.
            if ended.recv_timeout(STOPPED_MAX) == Err(threads::RecvTimeoutError::Timeout) {
                tracing::warn!("tasks that post commands to network servers have not ended in time");
            }
        }
    }
}

impl NetworkServers {
    fn remove(&mut self, tenant: &TenantId, gateway: &str) {
        let Some(of_tenant) = self.of_tenants.get_mut(tenant) else { return };
        self.count -= usize::from(of_tenant.servers.remove(gateway).is_some());
    }
}
