//! The options of `millstream sim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::Pacing;
use crate::client::Target;
use crate::payload::{Payload, Template};
use crate::registry::SecretForm;
use crate::{Error, duration};

/// How long devices send when neither `--duration` nor `--count` is given.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Most connections that are opened unless asked for more.
const CONNECTIONS_DEFAULT: usize = 500;

/// Most devices of one simulation.
const DEVICES_MAX: u64 = 1_000_000;

/// Lets simulated devices send messages over HTTP, and reports how they were taken.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// Where devices send to.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub devices_url: String,
    /// The devices' tenant.
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// How many devices send.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=DEVICES_MAX))]
    pub devices: u64,
    /// What device ids begin with; a number from 0 follows.
    #[arg(long, value_name = "TEXT", default_value = "sim-")]
    pub device_prefix: String,
    /// Time from one message of a device to its next; each device begins at a random moment of its first period.
    /// 0 sends the next message as soon as the last one is answered (closed loop only).
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub period: Duration,
    /// What devices do when the server is slow.
    #[arg(long = "loop", value_enum, default_value_t = Pacing::Closed)]
    pub pacing: Pacing,
    /// Keep-alive connections that the devices share [default: as many as devices, at most 500].
    #[arg(long, short = 'c', value_name = "C", value_parser = clap::value_parser!(u64).range(1..=65_000))]
    pub connections: Option<u64>,
    /// `put` names tenant and device in the path, `post` leaves them to the credentials.
    #[arg(long, value_enum, default_value_t = Method::Put)]
    pub method: Method,
    /// What is sent.
    #[arg(long, value_enum, default_value_t = MessageKind::Telemetry)]
    pub kind: MessageKind,
    /// Quality of service of telemetry: 0 at most once, 1 at least once. Events are always sent at least once.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub qos: u8,
    /// How devices prove who they are: `basic` as DEVICE@TENANT with the password, or `none`.
    #[arg(long, value_enum, default_value_t = Auth::Basic)]
    pub auth: Auth,
    /// The password that all devices share.
    #[arg(long, value_name = "TEXT", default_value = "secret")]
    pub password: String,
    /// Size of the payload, whose bytes are all 0x42.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=16 << 20))]
    pub payload_bytes: u64,
    /// A JSON payload instead, with ${walk(START, STEP)} for a number that wanders by at most STEP per message,
    /// ${count} for the number of messages that the device has sent before, and ${device} for its id:
    /// '{"temperature": ${walk(20, 0.5)}}'.
    #[arg(long, value_name = "JSON", conflicts_with = "payload_bytes")]
    pub template: Option<String>,
    /// How long devices send, after the warm-up [default: 10s unless --count is given].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// How many messages are sent in all, warm-up included; the duration, if given, still ends the sending.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Time at the start whose messages are sent but left out of the result: connections open, logins are cold.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub warm_up: Duration,
    /// Longest time to wait for an answer; after it the message counts as failed and the connection is closed.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub timeout: Duration,
    /// Threads that simulate; each has its share of the devices and the connections. One core each.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// Seed of all random choices, for a run that can be repeated [default: another one each time].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Registers tenant, devices and passwords before the run; what exists is kept, passwords are set anew.
    #[arg(long)]
    pub register: bool,
    /// Where devices are registered.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub registry_url: String,
    /// API token for the registry; none is needed on the loopback address.
    #[arg(long, value_name = "TOKEN")]
    pub registry_token: Option<String>,
    /// How passwords are handed to the registry.
    #[arg(long, value_enum, default_value_t = SecretForm::Sha512)]
    pub secret: SecretForm,
    /// Writes the result as JSON to this file, too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Which of the two ways of sending a device uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Method {
    /// `PUT /telemetry/TENANT/DEVICE`.
    Put,
    /// `POST /telemetry`.
    Post,
}

/// What kind of message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MessageKind {
    /// Measurements, at most once or at least once.
    Telemetry,
    /// Events, at least once and durable.
    Event,
}

/// How a device proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum Auth {
    /// HTTP Basic with `DEVICE@TENANT` and the password.
    Basic,
    /// Not at all, for tenants that allow it.
    None,
}

impl SimArgs {
    /// How long devices send after the warm-up; endless when only the count ends the sending.
    pub(crate) fn duration(&self) -> Duration {
        match (self.duration, self.count) {
            (Some(duration), _) => duration,
            (None, Some(_)) => Duration::MAX,
            (None, None) => DURATION_DEFAULT,
        }
    }

    /// Connections in all: never more than devices.
    pub(crate) fn connections(&self) -> usize {
        self.connections.map_or(CONNECTIONS_DEFAULT, |connections| connections as usize).min(self.devices as usize)
    }

    /// Threads in all: never more than connections.
    pub(crate) fn threads(&self) -> usize {
        (self.threads as usize).min(self.connections())
    }

    /// The id of the device with this number.
    pub(crate) fn device_id(&self, number: u64) -> String {
        format!("{}{number}", self.device_prefix)
    }

    pub(crate) fn target(&self) -> Result<Target, Error> {
        Target::parse("devices-url", &self.devices_url, self.timeout)
    }

    pub(crate) fn payload(&self) -> Result<Payload, Error> {
        match &self.template {
            Some(text) => Template::parse("template", text).map(Payload::Template),
            None => Ok(Payload::of_size(self.payload_bytes as usize)),
        }
    }

    /// Refuses what no run can do.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |option, value: &str, rule: &str| {
            Err(Error::Option { option, value: value.to_owned(), rule: rule.to_owned() })
        };
        let id_char = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if !self.device_prefix.chars().all(id_char) {
            return refuse(
                "device-prefix",
                &self.device_prefix,
                "device ids are made of a-z, A-Z, 0-9, '-', '_', '.', ':'",
            );
        }
        if self.tenant.is_empty() || !self.tenant.chars().all(|c| id_char(c) && c != ':') {
            return refuse("tenant", &self.tenant, "tenants are made of a-z, A-Z, 0-9, '-', '_' and '.'");
        }
        if self.pacing == Pacing::Open && self.period.is_zero() {
            return refuse("period", "0", "devices of the open loop keep to a timetable; give a period above 0");
        }
        if self.auth == Auth::None && self.method == Method::Post {
            return refuse("auth", "none", "a POST is told apart by its credentials only; use --method put");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "sim")]
    struct Command {
        #[command(flatten)]
        args: SimArgs,
    }

    fn parse(line: &str) -> SimArgs {
        Command::parse_from(format!("sim {line}").split_whitespace()).args
    }

    #[test]
    fn the_help_names_every_option() {
        insta::assert_snapshot!(Command::command().render_long_help().to_string());
    }

    #[test]
    fn connections_and_threads_never_exceed_what_they_serve() {
        for (line, expected) in [
            ("", (100, 1)),
            ("-n 2000", (500, 1)),
            ("-n 2000 -c 1000 --threads 4", (1000, 4)),
            ("-n 3 -c 1000 --threads 4", (3, 3)),
        ] {
            let args = parse(line);
            assert_eq!((args.connections(), args.threads()), expected, "{line}");
        }
    }

    #[test]
    fn the_duration_ends_after_ten_seconds_unless_a_count_does() {
        assert_eq!(parse("").duration(), Duration::from_secs(10));
        assert_eq!(parse("--count 5").duration(), Duration::MAX);
        assert_eq!(parse("--count 5 --duration 2s").duration(), Duration::from_secs(2));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_by_name() {
        for (line, expected) in [
            ("--loop open --period 0", "--period"),
            ("--auth none --method post", "--auth"),
            ("--device-prefix a/b", "--device-prefix"),
            ("--tenant a:b", "--tenant"),
        ] {
            let error = parse(line).check().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{line}: {error}");
        }
        for url in ["https://127.0.0.1", "http://127.0.0.1/telemetry", "127.0.0.1:8080", "no url"] {
            let args = SimArgs { devices_url: url.to_owned(), ..parse("") };
            assert!(args.target().unwrap_err().to_string().starts_with("--devices-url"), "{url}");
        }
        let both = ["sim", "--template", "1", "--payload-bytes", "3"];
        let matches = Command::command().try_get_matches_from(both);
        assert!(matches.and_then(|matches| Command::from_arg_matches(&matches)).is_err());
    }
}
