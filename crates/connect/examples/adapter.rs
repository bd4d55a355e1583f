//! Runs the registry and the HTTP adapter on one thread, to measure the cost of a message.
//! The argument names the directory of the log.
//!
//! ```text
//! cargo run --release -p millstream-connect --example adapter DIR
//! curl -X POST http://APPLICATIONS/v1/devices/default/d
//! curl -X PUT -H 'content-type: application/json' http://APPLICATIONS/v1/credentials/default/d \
//!      -d '[{"type":"hashed-password","auth-id":"d","secrets":[{"pwd-plain":"pw"}]}]'
//! wrk -t1 -c64 -d10 -s put.lua http://DEVICES/telemetry/default/d
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use millstream_connect::{Connect, ConnectConfig};
use millstream_http::{Api, Listener, ListenerLimits, LoopbackApplications, Metrics};
use millstream_log::{Embedded, LogConfig, SystemFiles};
use millstream_types::SystemClock;
use millstream_view::{Checkpoints, Shards, ViewRuntime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("name a directory")?);
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
    let checkpoints = Checkpoints::open(&dir.join("views"))?;
    let ground = ViewRuntime { log, checkpoints, shards: Shards::start(1)?, wall: clock.clone() };
    let metrics = Metrics::default();
    let connect = Connect::open(&ground, &ConnectConfig::default(), Arc::new(()), Arc::default(), clock, &metrics)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(&connect, &metrics))
}

async fn serve(connect: &Connect, metrics: &Metrics) -> Result<(), Box<dyn std::error::Error>> {
    let [registry, connections, commands] = connect.application_routes();
    let applications =
        Api::builder("applications", "Registry", "1").with(registry).with(connections).with(commands).build(metrics)?;
    let devices = Api::builder("devices", "Devices", "1");
    let devices = connect.device_routes().into_iter().fold(devices, |api, routes| api.with(routes)).build(metrics)?;
    let anybody = Arc::new(LoopbackApplications::default());
    let limits = ListenerLimits::default();
    let door = Listener::bind("applications", "127.0.0.1:0".parse()?, anybody, limits.clone()).await?;
    let gate = Listener::bind("devices", "127.0.0.1:0".parse()?, connect.device_authenticator(), limits).await?;
    println!("applications {}, devices {}", door.address(), gate.address());
    let _serving = [door.serve(Arc::new(applications), metrics), gate.serve(Arc::new(devices), metrics)];
    std::future::pending::<()>().await;
    Ok(())
}
