//! A limit on failed logins, beyond which further logins are refused unchecked: of each name at a client address where the
//! protocol knows one (see [`LoginThrottle::check_name`]), else of the address.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use millstream_types::{MonotonicClock, SystemClock};

/// Clients and names whose failures are remembered; beyond them the least recently seen is forgotten.
const CLIENTS_MAX: usize = 10_000;
/// Failures of single names that count for their address as much as one without a name: one device that has a wrong password
/// does not keep others at its address out, and many names are not guessed at.
const NAMES_OF_ONE_ADDRESS: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The protocol by which a client logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoginProtocol {
    /// HTTP, of applications and of devices.
    Http,
    /// MQTT, in any supported version.
    Mqtt,
    /// Kafka's protocol, with SASL logins.
    Kafka,
    /// The Redis protocol, with `AUTH` or `HELLO`.
    Redis,
    /// AMQP 1.0, with SASL logins.
    Amqp,
}

impl LoginProtocol {
    /// All protocols, in the order of the enum.
    pub const ALL: [Self; 5] = [Self::Http, Self::Mqtt, Self::Kafka, Self::Redis, Self::Amqp];

    /// The name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mqtt => "mqtt",
            Self::Kafka => "kafka",
            Self::Redis => "redis",
            Self::Amqp => "amqp",
        }
    }
}

/// The refusal of a login with name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedLogin {
    /// Nobody has this name and this password.
    Unknown,
    /// The password is wrong for this reason.
    Wrong(String),
    /// The password cannot be checked now, for this reason; the client may try again.
    Unchecked(String),
}

/// The origin of a login attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginSource {
    /// The other end of the connection.
    pub address: IpAddr,
    /// The protocol of the connection.
    pub protocol: LoginProtocol,
}

/// One client: an IPv4 address, or a /64 network of IPv6, of which a client chooses its addresses freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientNetwork(IpAddr);

impl From<IpAddr> for ClientNetwork {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// A login that is refused unchecked, because too many of its client have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// The client whose login is refused.
    pub client: ClientNetwork,
    /// Failures a minute that it may have.
    pub failures_per_minute: u32,
    /// The time until the next login is checked.
    pub wait: Duration,
}

impl Throttled {
    /// The setting that says the limit.
    pub const SETTING: &'static str = "listen.login_failures_per_minute";

    /// The wait in whole seconds, rounded up.
    pub fn wait_s(&self) -> u128 {
        self.wait.as_millis().div_ceil(1000).max(1)
    }
}

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, failures_per_minute, .. } = self;
        let (setting, wait_s) = (Self::SETTING, self.wait_s());
        write!(f, "too many logins from {client} have failed ({setting} = {failures_per_minute}); ")?;
        write!(f, "correct name and secret, and try again in {wait_s} s")
    }
}

/// Failed logins of a client over one protocol, to be written to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedLogins {
    /// The client whose logins failed.
    pub client: ClientNetwork,
    /// The protocol of these logins.
    pub protocol: LoginProtocol,
    /// Logins that were checked and wrong, since the last report.
    pub failed: u64,
    /// Logins that were refused unchecked, since the last report.
    pub throttled: u64,
}

/// Failed logins of all clients: a token bucket for each client, filled at the allowed rate. One for the process, so that the
/// limit holds over all listeners. The number of clients is bounded.
///
/// ```
/// use std::sync::Arc;
/// use millstream_net::{LoginProtocol, LoginSource, LoginThrottle};
/// use millstream_types::ManualClock;
///
/// let throttle = LoginThrottle::new(1, Arc::new(ManualClock::default()));
/// let source = LoginSource { address: [10, 0, 0, 1].into(), protocol: LoginProtocol::Http };
/// assert!(throttle.check(source).is_ok());
/// throttle.fail(source);
/// assert_eq!(throttle.check(source).unwrap_err().wait_s(), 60);
/// ```
pub struct LoginThrottle {
    failures_per_minute: u32,
    clock: Arc<dyn MonotonicClock>,
    clients: Mutex<Clients>,
    names: RandomState,
    failed: [AtomicU64; LoginProtocol::ALL.len()],
    throttled: [AtomicU64; LoginProtocol::ALL.len()],
}

impl fmt::Debug for LoginThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginThrottle({} failures a minute)", self.failures_per_minute)
    }
}

impl Default for LoginThrottle {
    /// Returns a throttle without a limit.
    fn default() -> Self {
        Self::new(0, Arc::new(SystemClock::default()))
    }
}

impl LoginThrottle {
    /// A throttle that lets each client fail `failures_per_minute` times; 0 sets no limit.
    pub fn new(failures_per_minute: u32, clock: Arc<dyn MonotonicClock>) -> Self {
        let (failed, throttled) = Default::default();
        Self { failures_per_minute, clock, clients: Mutex::default(), names: RandomState::new(), failed, throttled }
    }

    /// Returns `false` if no login is ever refused unchecked.
    pub fn is_limited(&self) -> bool {
        self.failures_per_minute > 0
    }

    /// Asks whether a login may be checked.
    ///
    /// # Errors
    /// [`Throttled`] if too many of the client have failed; the attempt is counted as throttled.
    pub fn check(&self, source: LoginSource) -> Result<(), Throttled> {
        let mut clients = self.clients.lock();
        let wait = self.wait(&mut clients, source.address.into(), self.cost());
        wait.map_or(Ok(()), |wait| Err(self.refuse(&mut clients, source, wait)))
    }

    /// Asks whether a login by this name may be checked. It is refused if too many by the name have failed at the address, or
    /// by far more names there.
    ///
    /// # Errors
    /// As [`LoginThrottle::check`].
    pub fn check_name(&self, source: LoginSource, name: &str) -> Result<(), Throttled> {
        let mut clients = self.clients.lock();
        let of_name = self.wait(&mut clients, self.named(source, name), self.cost());
        let wait = of_name.or_else(|| self.wait(&mut clients, source.address.into(), self.cost_of_name()));
        wait.map_or(Ok(()), |wait| Err(self.refuse(&mut clients, source, wait)))
    }

    fn refuse(&self, clients: &mut Clients, source: LoginSource, wait: Duration) -> Throttled {
        let state = clients.seen_or_new(source.address.into());
        state.tallies[source.protocol as usize].throttled += 1;
        self.throttled[source.protocol as usize].fetch_add(1, Ordering::Relaxed);
        Throttled { client: source.address.into(), failures_per_minute: self.failures_per_minute, wait }
    }

    /// Returns `true` if [`LoginThrottle::check`] would refuse; counts nothing.
    pub fn is_spent(&self, address: IpAddr) -> bool {
        let clients = self.clients.lock();
        let state = clients.by_key.get(&address.into());
        state.is_some_and(|state| state.wait(self.cost(), self.clock.now()).is_some())
    }

    /// Counts a login that was checked and is wrong.
    pub fn fail(&self, source: LoginSource) {
        let mut clients = self.clients.lock();
        self.count(&mut clients, source, self.cost());
    }

    /// Counts a login by this name that was checked and is wrong: for the name, and by a part for its address.
    pub fn fail_name(&self, source: LoginSource, name: &str) {
        let mut clients = self.clients.lock();
        clients.seen_or_new(self.named(source, name)).owe(self.cost(), self.clock.now());
        self.count(&mut clients, source, self.cost_of_name());
    }

    fn count(&self, clients: &mut Clients, source: LoginSource, cost: Duration) {
        let state = clients.seen_or_new(source.address.into());
        state.owe(cost, self.clock.now());
        state.tallies[source.protocol as usize].failed += 1;
        self.failed[source.protocol as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn named(&self, source: LoginSource, name: &str) -> ThrottleKey {
        ThrottleKey { network: source.address.into(), name: Some(self.names.hash_one(name)) }
    }

    /// The failed logins that are to be logged now: of each client and protocol at most once a minute. Forgets clients
    /// that have not failed for long.
    pub fn take_reports(&self) -> Vec<FailedLogins> {
        let now = self.clock.now();
        let mut reports = Vec::new();
        self.clients.lock().retain(|ThrottleKey { network: client, .. }, state| {
            for (protocol, tally) in LoginProtocol::ALL.into_iter().zip(&mut state.tallies) {
                let is_due = tally.reported_at.is_none_or(|at| now >= at + MINUTE);
                if is_due && tally.failed + tally.throttled > 0 {
                    let Tally { failed, throttled, .. } = *tally;
                    reports.push(FailedLogins { client, protocol, failed, throttled });
                    *tally = Tally { failed: 0, throttled: 0, reported_at: Some(now) };
                }
            }
            state.paid_off_at > now
                || state.tallies.iter().any(|tally| tally.reported_at.is_some_and(|at| now < at + MINUTE))
        });
        reports
    }

    /// Logins over a protocol that were checked and wrong, since the start of the process.
    pub fn failed(&self, protocol: LoginProtocol) -> u64 {
        self.failed[protocol as usize].load(Ordering::Relaxed)
    }

    /// Logins over a protocol that were refused unchecked, since the start of the process.
    pub fn throttled(&self, protocol: LoginProtocol) -> u64 {
        self.throttled[protocol as usize].load(Ordering::Relaxed)
    }

    /// The time in which one failure is paid off.
    fn cost(&self) -> Duration {
        MINUTE.checked_div(self.failures_per_minute).unwrap_or_default()
    }

    /// The time in which the share of an address in the failure of one of its names is paid off.
    fn cost_of_name(&self) -> Duration {
        self.cost() / NAMES_OF_ONE_ADDRESS
    }

    /// Returns the time until one more failure of `key` fits into its bucket; `None` if it fits now.
    fn wait(&self, clients: &mut Clients, key: ThrottleKey, cost: Duration) -> Option<Duration> {
        clients.seen(key)?.wait(cost, self.clock.now())
    }
}

/// The owner of a bucket: a client, or a name by which it logs in, of which the hash is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ThrottleKey {
    network: ClientNetwork,
    name: Option<u64>,
}

impl From<IpAddr> for ThrottleKey {
    fn from(address: IpAddr) -> Self {
        Self { network: address.into(), name: None }
    }
}

#[derive(Default)]
struct ThrottledClient {
    /// The client's key in [`Clients::by_use`].
    used: u64,
    /// The time at which all failures are paid off.
    paid_off_at: Duration,
    tallies: [Tally; LoginProtocol::ALL.len()],
}

impl ThrottledClient {
    /// Logins that were checked at the same time may come to more than the limit.
    fn owe(&mut self, cost: Duration, now: Duration) {
        self.paid_off_at = (self.paid_off_at.max(now) + cost).min(now + MINUTE);
    }

    fn wait(&self, cost: Duration, now: Duration) -> Option<Duration> {
        let wait = (self.paid_off_at + cost).saturating_sub(now + MINUTE);
        (!wait.is_zero()).then_some(wait)
    }
}

#[derive(Clone, Copy, Default)]
struct Tally {
    failed: u64,
    throttled: u64,
    reported_at: Option<Duration>,
}

/// At most [`CLIENTS_MAX`] clients and names, in the order of their last use.
#[derive(Default)]
struct Clients {
    by_key: HashMap<ThrottleKey, ThrottledClient>,
    by_use: BTreeMap<u64, ThrottleKey>,
    uses: u64,
}

impl Clients {
    fn seen(&mut self, key: ThrottleKey) -> Option<&mut ThrottledClient> {
        let client = self.by_key.get_mut(&key)?;
        self.uses += 1;
        self.by_use.remove(&client.used);
        self.by_use.insert(self.uses, key);
        client.used = self.uses;
        Some(client)
    }

    fn seen_or_new(&mut self, key: ThrottleKey) -> &mut ThrottledClient {
        if !self.by_key.contains_key(&key)
            && self.by_key.len() >= CLIENTS_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        self.uses += 1;
        let client = self.by_key.entry(key).or_default();
        self.by_use.remove(&client.used);
        self.by_use.insert(self.uses, key);
        client.used = self.uses;
        client
    }

    fn retain(&mut self, mut keep: impl FnMut(ThrottleKey, &mut ThrottledClient) -> bool) {
        let by_use = &mut self.by_use;
        self.by_key.retain(|key, client| {
            let is_kept = keep(*key, client);
            if !is_kept {
                by_use.remove(&client.used);
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::ManualClock;

    use super::*;

    fn throttle(failures_per_minute: u32) -> (LoginThrottle, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        clock.advance(Duration::from_secs(1_000));
        (LoginThrottle::new(failures_per_minute, clock.clone()), clock)
    }

    fn from(address: &str) -> LoginSource {
        LoginSource { address: address.parse().unwrap(), protocol: LoginProtocol::Mqtt }
    }

    /// Logs in wrongly `times` times; how often it was refused unchecked.
    fn guess(throttle: &LoginThrottle, source: LoginSource, times: u32) -> u32 {
        (0..times).filter(|_| throttle.check(source).map(|()| throttle.fail(source)).is_err()).count() as u32
    }

    #[test]
    fn a_client_may_fail_as_often_as_the_limit_says_and_again_as_its_bucket_fills() {
        // Limit, seconds that pass, failures that are checked after them.
        for (limit, seconds, checked) in [(1, 59, 0), (1, 60, 1), (3, 20, 1), (3, 40, 2), (3, 600, 3), (60, 1, 1)] {
            let (throttle, clock) = throttle(limit);
            let source = from("10.0.0.1");
            assert_eq!(guess(&throttle, source, limit + 5), 5, "limit {limit}");
            assert!(throttle.is_spent(source.address));
            clock.advance(Duration::from_secs(seconds));
            assert_eq!(guess(&throttle, source, 10), 10 - checked.min(10), "limit {limit}, {seconds} s");
        }
        let (throttle, _) = throttle(0);
        assert_eq!(guess(&throttle, from("10.0.0.1"), 1_000), 0, "0 sets no limit");
        assert_eq!(throttle.failed(LoginProtocol::Mqtt), 1_000);
    }

    #[test]
    fn a_name_that_fails_keeps_no_other_of_its_address_out_until_far_more_names_fail() {
        let (throttle, _) = throttle(3);
        let source = from("10.0.0.1");
        let guess = |name: &str| throttle.check_name(source, name).map(|()| throttle.fail_name(source, name)).is_ok();
        assert_eq!((0..9).filter(|_| guess("wrong")).count(), 3);
        assert!(throttle.check_name(source, "right").is_ok() && throttle.check(source).is_ok());
        assert!(throttle.check_name(from("10.0.0.2"), "wrong").is_ok(), "at another address");
        // 30 failures in all are those of the address.
        assert_eq!((0..99).filter(|number| guess(&format!("guess-{number}"))).count(), 27);
        assert!(throttle.check_name(source, "right").is_err());
        assert_eq!((throttle.failed(LoginProtocol::Mqtt), throttle.throttled(LoginProtocol::Mqtt)), (30, 79));
    }

    #[test]
    fn a_refusal_names_the_client_the_setting_and_when_to_try_again() {
        let (throttle, clock) = throttle(2);
        let source = from("10.0.0.1");
        assert_eq!(guess(&throttle, source, 2), 0);
        clock.advance(Duration::from_secs(12));
        let told = throttle.check(source).unwrap_err().to_string();
        for part in ["10.0.0.1", "listen.login_failures_per_minute = 2", "try again in 18 s"] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!((throttle.failed(LoginProtocol::Mqtt), throttle.throttled(LoginProtocol::Mqtt)), (2, 1));
    }

    #[test]
    fn an_ipv4_address_and_a_64_network_of_ipv6_are_one_client_each() {
        for (one, other, is_same) in [
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("2001:db8::1", "2001:db8::2:3:4:5", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let (throttle, _) = throttle(1);
            throttle.fail(from(one));
            assert_eq!(throttle.check(from(other)).is_err(), is_same, "{one} {other}");
        }
        assert_eq!(ClientNetwork::from("2001:db8::1".parse::<IpAddr>().unwrap()).to_string(), "2001:db8::/64");
    }

    #[test]
    fn no_more_clients_than_the_bound_are_remembered_and_the_least_recently_seen_is_forgotten() {
        let (throttle, _) = throttle(1);
        let client = |n: usize| LoginSource {
            address: IpAddr::V4((0x0A00_0000 + n as u32).into()),
            protocol: LoginProtocol::Kafka,
        };
        for n in 0..CLIENTS_MAX {
            throttle.fail(client(n));
        }
        assert!(throttle.check(client(0)).is_err(), "seen again");
        for n in CLIENTS_MAX..CLIENTS_MAX + 10 {
            throttle.fail(client(n));
        }
        for (n, is_remembered) in [(0, true), (1, false), (10, false), (11, true), (CLIENTS_MAX + 9, true)] {
            assert_eq!(throttle.is_spent(client(n).address), is_remembered, "{n}");
        }
        let clients = throttle.clients.lock();
        assert_eq!((clients.by_key.len(), clients.by_use.len()), (CLIENTS_MAX, CLIENTS_MAX));
    }

    #[test]
    fn failed_logins_are_reported_once_a_minute_for_each_client_and_quiet_clients_are_forgotten() {
        let (throttle, clock) = throttle(3);
        let source = from("10.0.0.1");
        let report = |failed, throttled| {
            vec![FailedLogins { client: source.address.into(), protocol: source.protocol, failed, throttled }]
        };
        guess(&throttle, source, 1);
        assert_eq!(throttle.take_reports(), report(1, 0), "the first at once");
        guess(&throttle, source, 4);
        clock.advance(Duration::from_secs(59));
        assert_eq!(throttle.take_reports(), []);
        clock.advance(Duration::from_secs(1));
        assert_eq!(throttle.take_reports(), report(2, 2));
        clock.advance(MINUTE);
        assert_eq!(throttle.take_reports(), []);
        let clients = throttle.clients.lock();
        assert!(clients.by_key.is_empty() && clients.by_use.is_empty());
    }
}
