//! Clients that are not ours, each with one message or question over TLS.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use millstream_testkit::installed;

use crate::world::{World, path, run};

/// The login of the device that `World::register` registers.
const LOGIN: [&str; 2] = ["thermometer@default", "pw"];

/// A client of the device listeners or of that for Kafka clients. Java's is in `java.rs`: it is slow to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    Curl,
    Mosquitto,
    Paho,
    MqttJs,
    Kcat,
}

/// The server that a client calls, as the client sees it.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) world: &'a World,
    pub(crate) host: &'a str,
    /// File of the authority that the client trusts.
    pub(crate) ca: &'a str,
    /// Files of the certificate that the client shows, and of its key.
    pub(crate) shown: Option<&'a [PathBuf; 2]>,
}

impl Client {
    pub(crate) const DEVICES: [Self; 4] = [Self::Curl, Self::Mosquitto, Self::Paho, Self::MqttJs];

    /// The listener that it calls, as logs and metrics name it.
    pub(crate) fn listener(self) -> &'static str {
        match self {
            Self::Curl | Self::MqttJs => "devices-http",
            Self::Mosquitto | Self::Paho => "devices-mqtt",
            Self::Kcat => "kafka",
        }
    }

    /// Sends `message` as telemetry; kcat asks for the list of topics.
    pub(crate) fn send(self, call: Call<'_>, message: &str) -> Output {
        let Call { world, host, ca, shown } = call;
        let port = world.port(&format!("{}-tls", self.listener()));
        let certificate = shown.map(|files| files.each_ref().map(|file| path(file)));
        match self {
            Self::Curl => {
                let (url, user) = (format!("https://{host}:{port}/telemetry"), LOGIN.join(":"));
                let login = match certificate {
                    Some([file, key]) => vec!["--cert", file, "--key", key],
                    None => vec!["-u", &user],
                };
                let post = ["-sS", "--fail-with-body", "--cacert", ca, "-H", "Content-Type: text/plain", "-d", message];
                run("curl", &[&post[..], &login, &[&url]].concat(), "")
            }
            Self::Mosquitto => {
                let [user, password] = LOGIN;
                let login =
                    certificate.map_or(["-u", user, "-P", password], |[file, key]| ["--cert", file, "--key", key]);
                let address = ["-h", host, "-p", &port, "--cafile", ca, "-V", "5", "-q", "1", "-t", "telemetry"];
                run("mosquitto_pub", &[&address[..], &login, &["-m", message]].concat(), "")
            }
            Self::Paho => {
                let python = installed("mqtt/venv/bin/python");
                let [first, second] = certificate.unwrap_or(LOGIN);
                let script = beside("paho_tls.py");
                let call = ["-B", path(&script), "tcp", host, &port, ca, message, first, second];
                run(path(&python), &call, "")
            }
            Self::MqttJs => {
                let url = format!("wss://{host}:{port}/mqtt");
                let [first, second] = certificate.unwrap_or(LOGIN);
                let (home, script) = (mqttjs_home(), beside("mqttjs_tls.mjs"));
                let call = [&home, "node", path(&script), &url, ca, message, first, second];
                run("env", &call, "")
            }
            Self::Kcat => {
                let (broker, ca) = (format!("{host}:{port}"), format!("ssl.ca.location={ca}"));
                let ssl = ["-b", &broker, "-X", "security.protocol=ssl", "-X", &ca, "-m", "5", "-L"];
                let files = certificate
                    .map(|[file, key]| [format!("ssl.certificate.location={file}"), format!("ssl.key.location={key}")]);
                let shown = files.iter().flatten().flat_map(|setting| ["-X", setting]);
                run("kcat", &ssl.into_iter().chain(shown).collect::<Vec<_>>(), "")
            }
        }
    }
}

/// The variable that tells the scripts the place of MQTT.js.
pub(crate) fn mqttjs_home() -> String {
    format!("MQTTJS_HOME={}", path(&installed("mqtt/js")))
}

/// A file beside this one.
pub(crate) fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls_clients").join(name)
}

/// The program that runs Kafka's own classes, with what makes them start quickly.
pub(crate) fn java() -> Command {
    let tools = Path::new(env!("CARGO_BIN_EXE_millstream")).with_file_name("xtask");
    assert!(tools.exists(), "{} is missing: run scripts/setup-clients", tools.display());
    let mut command = Command::new(tools);
    command.env("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData");
    command.arg("kafka-tools").arg(beside("TlsClient.java"));
    command
}
