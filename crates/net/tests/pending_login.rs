//! Connections before their login, over real sockets: their share, their time, and who makes room for whom.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use millstream_net::{
    Admitted, ConnectionLimits, Listener, LoginTimeout, Metrics, Protocol, Refusal, Serving, Shutdown, TransportStream,
};
use millstream_types::{MemoryBudget, TenantId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

const LIMIT_MS: u64 = 600_000;

/// Takes `?` for the beginning of a check that waits for a permit, `n` for a login that fails, `!` for one that is right, `A`, `B`
/// or `C` for one of that tenant. Says `f` to one that the listener is too full for.
struct Gate {
    checks: Arc<Semaphore>,
    /// It does not end when it has to give its place to another.
    is_stubborn: bool,
}

impl Protocol for Gate {
    async fn serve(self: Arc<Self>, mut stream: TransportStream, admitted: Admitted) {
        let mut displaced = std::pin::pin!(admitted.login.displaced());
        loop {
            let byte = tokio::select! {
                () = displaced.as_mut() => {
                    let _ = stream.write_u8(b'd').await;
                    return if self.is_stubborn { std::future::pending().await };
                }
                byte = stream.read_u8() => byte,
            };
            let Ok(mut byte) = byte else { return };
            let tenant = match byte {
                b'A'..=b'C' => TenantId::new(&char::from(byte).to_string()).unwrap(),
                _ => TenantId::default(),
            };
            match byte {
                b'?' => {
                    admitted.login.heard();
                    self.checks.acquire().await.unwrap().forget();
                    admitted.login.succeeded(&tenant).unwrap();
                }
                b'n' => admitted.login.restart(),
                b'!' | b'A'..=b'C' if admitted.login.succeeded(&tenant).is_err() => byte = b'f',
                _ => {}
            }
            if stream.write_u8(byte).await.is_err() {
                return;
            }
        }
    }

    async fn turn_away(self: Arc<Self>, mut stream: TransportStream, _: SocketAddr, _: Shutdown, refusal: Refusal) {
        let _ = stream.write_all(refusal.to_string().as_bytes()).await;
    }
}

struct World {
    serving: Serving,
    metrics: Metrics,
    checks: Arc<Semaphore>,
}

impl World {
    fn start(connections_max: usize, limit_ms: u64) -> Self {
        Self::with_memory(connections_max, limit_ms, 1 << 30)
    }

    fn with_memory(connections_max: usize, limit_ms: u64, memory_bytes: u64) -> Self {
        Self::with_gate((connections_max, limit_ms, memory_bytes), false)
    }

    fn with_gate((connections_max, limit_ms, memory_bytes): (usize, u64, u64), is_stubborn: bool) -> Self {
        let (metrics, checks) = (Metrics::default(), Arc::new(Semaphore::new(0)));
        let limits = ConnectionLimits {
            connections_max,
            setting: "gate.connections_max",
            connection_bytes: 10,
            memory: MemoryBudget::new("memory.budget_bytes", memory_bytes),
            login_timeout: LoginTimeout { setting: "gate.login_timeout_ms", limit_ms },
        };
        let listener = Listener::bind("gate", "127.0.0.1:0".parse().unwrap()).unwrap();
        let (serving, _) = listener.serve(Arc::new(Gate { checks: checks.clone(), is_stubborn }), limits, &metrics);
        Self { serving, metrics, checks }
    }

    /// Connects from a loopback address, and waits until the server has seen it.
    async fn connect_from(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(from)), 0)).unwrap();
        socket.connect(self.serving.address()).await.unwrap()
    }

    async fn connect(&self) -> TcpStream {
        self.connect_from([127, 0, 0, 1]).await
    }

    fn shows(&self, line: &str) -> bool {
        self.metrics.text().lines().any(|shown| shown == line)
    }

    async fn until_shown(&self, line: &str) {
        while !self.shows(line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_u8(byte).await?;
    stream.read_u8().await
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    text
}

#[tokio::test]
async fn silent_connections_of_many_addresses_or_of_one_keep_nobody_out() {
    for is_spread in [true, false] {
        let world = World::start(400, LIMIT_MS);
        let mut user = world.connect().await;
        assert_eq!(ask(&mut user, b'!').await.unwrap(), b'!');
        let mut silent = Vec::new();
        for number in 0..1_000_u32 {
            let [_, _, high, low] = number.to_be_bytes();
            silent.push(world.connect_from(if is_spread { [127, 1, high, low] } else { [127, 1, 0, 0] }).await);
            if number % 100 == 99 {
                let mut next = world.connect().await;
                assert_eq!(ask(&mut next, b'!').await.unwrap(), b'!', "after {number} silent ones");
            }
        }
        assert_eq!(ask(&mut user, b'x').await.unwrap(), b'x', "a client that has logged in stays");
        // The last that has logged in had taken the place of one.
        world.until_shown("millstream_connections_without_login{listener=\"gate\"} 99").await;
        assert!(
            world.serving.connections() <= 11 + 100 + 1,
            "those with a login, those without, and one that is on its way out"
        );
        assert_eq!(read_to_end(silent.remove(0)).await, "", "the oldest has made room");
        assert!(
            !world.shows("millstream_connections_without_login_closed_total{listener=\"gate\",reason=\"displaced\"} 0")
        );
    }
}

#[tokio::test]
async fn an_address_with_many_makes_room_for_one_with_few() {
    let world = World::start(40, LIMIT_MS);
    let mut lone = world.connect_from([127, 1, 0, 1]).await;
    let mut many = Vec::new();
    for _ in 0..50 {
        many.push(world.connect_from([127, 2, 0, 1]).await);
    }
    world.until_shown("millstream_connections_without_login{listener=\"gate\"} 10").await;
    assert_eq!(ask(&mut lone, b'x').await.unwrap(), b'x', "it is the oldest of all, and stays");
}

#[tokio::test]
async fn of_many_that_come_at_the_same_time_those_that_are_checked_are_served_first() {
    let world = World::start(40, LIMIT_MS);
    let mut begun = Vec::new();
    for _ in 0..10 {
        let mut client = world.connect().await;
        client.write_u8(b'?').await.unwrap();
        begun.push(client);
    }
    world.until_shown("millstream_connections_without_login{listener=\"gate\"} 10").await;
    // All have been heard once one more is told to come later.
    let told = loop {
        let told = read_to_end(world.connect().await).await;
        if !told.is_empty() {
            break told;
        }
        begun.push(world.connect().await);
        begun.last_mut().unwrap().write_u8(b'?').await.unwrap();
    };
    assert_eq!(told, "10 connections wait for their login already; try again later");
    world.checks.add_permits(100);
    let mut served = 0;
    for client in &mut begun {
        served += usize::from(client.read_u8().await.is_ok());
    }
    assert!(served >= 10, "{served}");
    let mut next = world.connect().await;
    assert_eq!(ask(&mut next, b'!').await.unwrap(), b'!');
}

#[tokio::test]
async fn without_a_login_a_connection_is_closed_in_time_also_after_a_failed_one() {
    let world = World::start(40, 300);
    let (mut silent, mut user, mut slow) = (world.connect().await, world.connect().await, world.connect().await);
    assert_eq!(ask(&mut user, b'!').await.unwrap(), b'!');
    slow.write_u8(b'?').await.unwrap();
    let mut failing = world.connect().await;
    assert_eq!(ask(&mut failing, b'n').await.unwrap(), b'n');
    assert!(silent.read_u8().await.is_err());
    assert!(failing.read_u8().await.is_err());
    world
        .until_shown("millstream_connections_without_login_closed_total{listener=\"gate\",reason=\"overdue\"} 2")
        .await;
    assert_eq!(ask(&mut user, b'x').await.unwrap(), b'x', "it has logged in");
    world.checks.add_permits(1);
    assert_eq!(slow.read_u8().await.unwrap(), b'?', "the time of a check is the protocol's");
    world.until_shown("millstream_connections_without_login{listener=\"gate\"} 0").await;
}

#[tokio::test]
async fn connections_without_a_login_have_an_eighth_of_the_memory_budget() {
    let world = World::with_memory(40_000, LIMIT_MS, 8 * 3 * (64 << 10));
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(world.connect().await);
    }
    world
        .until_shown("millstream_connections_without_login_closed_total{listener=\"gate\",reason=\"displaced\"} 17")
        .await;
    assert!(world.shows("millstream_connections_without_login{listener=\"gate\"} 3"));
}

#[tokio::test]
async fn a_tenant_with_most_connections_of_a_full_listener_makes_room_for_others_and_for_none_of_its_own() {
    for is_stubborn in [false, true] {
        let world = World::with_gate((12, LIMIT_MS, 1 << 30), is_stubborn);
        let mut of_a = Vec::new();
        for _ in 0..12 {
            of_a.push(world.connect().await);
            assert_eq!(ask(of_a.last_mut().unwrap(), b'A').await.unwrap(), b'A');
        }
        let mut more = world.connect().await;
        assert_eq!(ask(&mut more, b'A').await.unwrap(), b'f');
        let mut of_b = Vec::new();
        for newest in (6..12).rev() {
            of_b.push(world.connect().await);
            assert_eq!(ask(of_b.last_mut().unwrap(), b'B').await.unwrap(), b'B');
            assert_eq!(read_to_end(of_a.remove(newest)).await, "d", "it ends in order, or is ended");
        }
        let mut fourth = world.connect().await;
        assert_eq!(ask(&mut fourth, b'B').await.unwrap(), b'f', "each has half");
        assert_eq!(ask(&mut more, b'A').await.unwrap(), b'f');
        drop(of_b.remove(0));
        world.until_shown("millstream_connections{listener=\"gate\"} 13").await;
        assert_eq!(ask(&mut more, b'A').await.unwrap(), b'A', "a refused client may try again");
        for stays in of_a.iter_mut().chain(&mut of_b) {
            assert_eq!(ask(stays, b'x').await.unwrap(), b'x');
        }
        assert!(world.shows("millstream_connections_displaced_total{listener=\"gate\"} 6"));
        assert!(world.shows("millstream_connections_refused_total{listener=\"gate\"} 3"));
    }
}
