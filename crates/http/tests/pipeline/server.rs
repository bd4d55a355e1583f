//! A listener on a free port, and a client that speaks bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::{
    Access, Api, Authenticator, Limits, Listener, ListenerLimits, LoopbackApplications, Metrics, Routes, Serving,
};
use millstream_types::{MemoryBudget, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

pub(crate) use millstream_testkit::TextAnswer as Answer;

pub(crate) const LIMITS: Limits =
    Limits { body_max_bytes: 100, body_max_setting: "things.body_max_bytes", timeout: Duration::from_secs(20) };
pub(crate) const WRITER: Access = Access::Role(Role::Writer);

pub(crate) struct Server {
    pub(crate) serving: Serving,
    pub(crate) metrics: Metrics,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn of(routes: Routes) -> Self {
        Self::start(routes, Arc::new(LoopbackApplications::default()), ListenerLimits::default()).await
    }

    pub(crate) async fn start(routes: Routes, authenticator: Arc<dyn Authenticator>, limits: ListenerLimits) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        Self::on(Listener::bind("test", address, authenticator, limits).await.unwrap(), [routes])
    }

    pub(crate) async fn drawing_on(memory: &MemoryBudget, routes: Routes) -> Self {
        let (address, anybody) = ("127.0.0.1:0".parse().unwrap(), Arc::new(LoopbackApplications::default()));
        // Tests with slow clients must not time out.
        let limits = ListenerLimits { head_timeout_ms: 600_000, ..ListenerLimits::default() };
        let listener = Listener::bind("test", address, anybody, limits).await.unwrap();
        Self::on(listener.drawing_on(memory), [routes])
    }

    /// Answers 500 in place of a status that a route does not document.
    pub(crate) async fn checking_statuses(routes: Routes) -> Self {
        let anybody = Arc::new(LoopbackApplications::default());
        let listener = Listener::bind("test", "127.0.0.1:0".parse().unwrap(), anybody, ListenerLimits::default());
        Self::serving(listener.await.unwrap(), [routes], true)
    }

    pub(crate) fn on(listener: Listener, groups: impl IntoIterator<Item = Routes>) -> Self {
        Self::serving(listener, groups, false)
    }

    fn serving(listener: Listener, groups: impl IntoIterator<Item = Routes>, checks_statuses: bool) -> Self {
        let metrics = Metrics::default();
        let api = groups.into_iter().fold(Api::builder("test", "Things", "1.2.3"), |api, routes| api.with(routes));
        let api = api.with_openapi(LIMITS).checking_statuses(checks_statuses).build(&metrics).unwrap();
        let address = listener.address();
        Self { serving: listener.serve(Arc::new(api), &metrics), metrics, address }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on a connection of its own; `head` is the first line and headers, without the empty line.
    pub(crate) async fn ask(&self, head: &str, body: &str) -> Answer {
        self.ask_from("127.0.0.1", head, body).await
    }

    /// Like [`Server::ask`], from another address of this machine.
    pub(crate) async fn ask_from(&self, local: &str, head: &str, body: &str) -> Answer {
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let request = format!("{head}\r\nhost: localhost\r\nconnection: close\r\n{length}\r\n{body}");
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{local}:0").parse().unwrap()).unwrap();
        let mut client = Client(socket.connect(self.address).await.unwrap());
        client.send(&request).await;
        Answer::parse(&client.read_to_end().await)
    }

    pub(crate) async fn stop(self) {
        assert_eq!(self.serving.shut_down(Duration::from_secs(20)).await, 0, "nothing had to be cut off");
    }
}

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until `end` arrives.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains(end) {
            let read = self.0.read_buf(&mut text).await.unwrap();
            assert!(read > 0, "closed before {end:?}: {}", String::from_utf8_lossy(&text));
        }
        String::from_utf8(text).unwrap()
    }

    pub(crate) async fn read_to_end(&mut self) -> String {
        let mut text = Vec::new();
        self.0.read_to_end(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    }
}
