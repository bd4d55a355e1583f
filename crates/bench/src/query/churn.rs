//! Short-lived queries at a fixed rate, on their own connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use millstream_load::websocket::{self, WebSocketReceiver, WebSocketSender};
use serde_json::json;

/// Interval between two messages to the server.
const STEP: Duration = Duration::from_millis(10);
/// Lifetime of a query in steps.
const LIVES_STEPS: u64 = 50;

/// Results of the short-lived queries.
pub(super) struct ChurnResult {
    pub(super) asked_per_s: f64,
    pub(super) killed: u64,
}

/// A connection that starts and kills queries until it is stopped.
pub(super) struct Churner {
    stop: Arc<AtomicBool>,
    asks: JoinHandle<anyhow::Result<f64>>,
    hears: JoinHandle<anyhow::Result<()>>,
    killed: Arc<AtomicU64>,
}

impl Churner {
    /// Asks `per_s` queries a second, `query(i)` each, and kills them half a second later.
    pub(super) fn start(
        address: SocketAddr,
        per_s: u64,
        query: impl Fn(u64) -> String + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (sender, receiver) = websocket::open(address, "/api/queries/ws")?;
        let (stop, killed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let hears = {
            let killed = killed.clone();
            thread::spawn(move || receive(receiver, &killed))
        };
        let asks = {
            let stop = stop.clone();
            thread::spawn(move || ask(sender, per_s, &query, &stop))
        };
        Ok(Self { stop, asks, hears, killed })
    }

    /// Stops the connection and returns its results.
    pub(super) fn stop(self) -> anyhow::Result<ChurnResult> {
        self.stop.store(true, Ordering::Relaxed);
        let asked_per_s = self.asks.join().ok().context("the thread that asks has panicked")??;
        self.hears.join().ok().context("the thread that hears has panicked")??;
        Ok(ChurnResult { asked_per_s, killed: self.killed.load(Ordering::Relaxed) })
    }
}

fn ask(
    mut sender: WebSocketSender,
    per_s: u64,
    query: &impl Fn(u64) -> String,
    stop: &AtomicBool,
) -> anyhow::Result<f64> {
    let (begin, each) = (Instant::now(), per_s * STEP.as_millis() as u64 / 1_000);
    let mut step = 0;
    while !stop.load(Ordering::Relaxed) {
        let ask = |i: u64| json!({ "tag": i.to_string(), "query": query(i) }).to_string();
        let asked = (step * each..(step + 1) * each).map(ask);
        let old = step.checked_sub(LIVES_STEPS).map_or(0..0, |old| old * each..(old + 1) * each);
        let killed = old.map(|i| json!({ "kill": i.to_string() }).to_string());
        let messages: Vec<String> = asked.chain(killed).collect();
        sender.send(messages.iter().map(String::as_str))?;
        step += 1;
        thread::sleep((begin + STEP * step as u32).saturating_duration_since(Instant::now()));
    }
    sender.close();
    Ok((step * each) as f64 / begin.elapsed().as_secs_f64())
}

fn receive(mut receiver: WebSocketReceiver, killed: &AtomicU64) -> anyhow::Result<()> {
    while let Some(message) = receiver.receive()? {
        match message["end"]["cause"].as_str() {
            Some("killed") => drop(killed.fetch_add(1, Ordering::Relaxed)),
            _ if message["opening"].is_object() => {}
            _ => bail!("a query was refused, ended or gave something: {message}"),
        }
    }
    Ok(())
}
