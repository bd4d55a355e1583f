//! The options of `millstream sim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::Pacing;
use crate::payload::{DevicePayload, JsonTemplate};
use crate::registry::SecretForm;
use crate::target::{Scheme, ServerTarget};
use crate::{Error, duration};

/// Sending time if neither `--duration` nor `--count` is given.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// The payload of devices if neither `--template` nor `--payload-bytes` is given.
const TEMPLATE_DEFAULT: &str = r#"{"temperature": ${walk(20, 0.5)}, "count": ${count}}"#;

/// Largest number of connections unless `--connections` asks for more.
const CONNECTIONS_DEFAULT: usize = 500;

/// Largest number of devices in a simulation.
const DEVICES_MAX: u64 = 1_000_000;

/// Longest topic that MQTT allows.
const TOPIC_MAX_BYTES: usize = 65_535;

/// Longest user name or password: the limit of MQTT minus room for the device number and separators.
const LOGIN_MAX_BYTES: usize = 65_000;

/// Largest packet id that MQTT allows.
const IN_FLIGHT_MAX: i64 = 65_535;

/// Extra time for the server to report that a command was not answered.
const VERDICT_TIME: Duration = Duration::from_secs(1);

/// Lets simulated devices send messages over HTTP or MQTT, and reports rates, latencies and failures.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// Protocol of the devices. Over MQTT (3.1.1) each device has its own connection and opens it with its first message.
    #[arg(long, value_enum, default_value_t = Protocol::Http)]
    pub protocol: Protocol,
    /// URL to which devices send [default: http://127.0.0.1:8080 or mqtt://127.0.0.1:1883].
    #[arg(long, value_name = "URL")]
    pub devices_url: Option<String>,
    /// File (PEM) of the authority of the certificate of a --devices-url with https:// or mqtts://.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Tenant of all simulated devices.
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Number of devices that send messages.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=DEVICES_MAX))]
    pub devices: u64,
    /// Prefix of the device ids; a number follows.
    #[arg(long, value_name = "TEXT", default_value = "sim-")]
    pub device_prefix: String,
    /// Number of the first device id.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub first_device: u64,
    /// Time from one message of a device to its next; each device begins at a random moment of its first period.
    /// 0 sends the next message as soon as the last one is answered (closed loop only).
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub period: Duration,
    /// Time within which devices begin, each at a random moment [default: the period]; 0 lets all begin at once.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub ramp: Option<Duration>,
    /// Behaviour of devices when the server is slow.
    #[arg(long = "loop", value_enum, default_value_t = Pacing::Closed)]
    pub pacing: Pacing,
    /// HTTP: keep-alive connections shared by the devices, or by the application that sends commands [default: as
    /// many as devices, at most 500].
    #[arg(long, short = 'c', value_name = "C", value_parser = clap::value_parser!(u64).range(1..=65_000))]
    pub connections: Option<u64>,
    /// HTTP: `put` names tenant and device in the path, `post` leaves them to the credentials.
    #[arg(long, value_enum, default_value_t = Method::Put)]
    pub method: Method,
    /// Kind of message that is sent.
    #[arg(long, value_enum, default_value_t = MessageKind::Telemetry)]
    pub kind: MessageKind,
    /// Quality of service of telemetry, and over MQTT of commands: 0 at most once, 1 at least once; 2, exactly once, with
    /// --topic only. Events are always sent at least once.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub qos: u8,
    /// MQTT: the topic, if not `telemetry` or `event`; ${device} stands for the device's id.
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
    /// MQTT: largest number of unconfirmed messages of a device. MQTT does not confirm QoS 0, so a PINGREQ follows
    /// every Nth message: its answer confirms that the server has read them, and gives the latency of the last one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=IN_FLIGHT_MAX))]
    pub in_flight: u16,
    /// Authentication of devices: `basic` sends DEVICE@TENANT and the password, `none` sends nothing.
    #[arg(long, value_enum, default_value_t = Auth::Basic)]
    pub auth: Auth,
    /// Password that all devices share.
    #[arg(long, value_name = "TEXT", default_value = "secret")]
    pub password: String,
    /// Size of a payload whose bytes are all 0x42, in place of JSON.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16 << 20))]
    pub payload_bytes: Option<u64>,
    /// JSON to send, with ${walk(START, STEP)} for a number that wanders by at most STEP per message, ${count} for the
    /// number of messages that the device has sent before, and ${device} for its id [default: {"temperature":
    /// ${walk(20, 0.5)}, "count": ${count}}].
    #[arg(long, value_name = "JSON", conflicts_with = "payload_bytes")]
    pub template: Option<String>,
    /// Time for which devices send, after the warm-up [default: 10s unless --count is given].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Total number of messages, including the warm-up; --duration, if given, still ends the sending.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Warm-up: messages of this time are sent but left out of the result, while connections open and devices log in.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub warm_up: Duration,
    /// Longest time to wait for an answer; after it the message counts as failed and the connection is closed. A command
    /// waits as long for its device's answer.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub timeout: Duration,
    /// Threads of the simulator; each uses up to one core and has a share of the devices and connections.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// Seed of all random choices, for a repeatable run [default: a different seed each time].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Registers tenant, devices and passwords before the run; existing devices are kept, their passwords are replaced.
    #[arg(long)]
    pub register: bool,
    /// URL of the device registry and of the command API.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub registry_url: String,
    /// API token for the registry and for commands; none is needed on the loopback address.
    #[arg(long, value_name = "TOKEN")]
    pub registry_token: Option<String>,
    /// Form in which passwords are sent to the registry.
    #[arg(long, value_enum, default_value_t = SecretForm::Sha512)]
    pub secret: SecretForm,
    /// Writes the result as JSON to this file, too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Protocol that the devices speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// MQTT 3.1.1.
    Mqtt,
}

/// HTTP method with which a device sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Method {
    /// `PUT /telemetry/TENANT/DEVICE`.
    Put,
    /// `POST /telemetry`.
    Post,
}

/// Kind of message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MessageKind {
    /// Measurements, at most once or at least once.
    Telemetry,
    /// Events, at least once and durable.
    Event,
    /// Commands, which an application sends over HTTP and every device answers with what it was sent. Latency is from
    /// the command to its answer.
    Command,
}

impl MessageKind {
    /// Name of the kind in paths and topics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Telemetry => "telemetry",
            Self::Event => "event",
            Self::Command => "command",
        }
    }
}

/// Authentication of the simulated devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum Auth {
    /// `DEVICE@TENANT` and the password, as HTTP Basic or as user name and password of MQTT.
    Basic,
    /// No authentication, for tenants that allow it.
    None,
}

impl SimArgs {
    /// Sending time after the warm-up; unlimited if only the count ends the sending.
    pub(crate) fn duration(&self) -> Duration {
        match (self.duration, self.count) {
            (Some(duration), _) => duration,
            (None, Some(_)) => Duration::MAX,
            (None, None) => DURATION_DEFAULT,
        }
    }

    /// Total number of connections, at most one per device; exactly one per device over MQTT.
    pub(crate) fn connections(&self) -> usize {
        let devices = self.devices as usize;
        match (self.protocol, self.kind) {
            (Protocol::Mqtt, MessageKind::Telemetry | MessageKind::Event) => devices,
            _ => self.connections.map_or(CONNECTIONS_DEFAULT, |some| some as usize).min(devices),
        }
    }

    /// Time within which devices begin.
    pub(crate) fn ramp(&self) -> Duration {
        self.ramp.unwrap_or(self.period)
    }

    /// Effective quality of service of the messages.
    pub(crate) fn qos(&self) -> u8 {
        if self.kind == MessageKind::Event { 1 } else { self.qos }
    }

    /// Largest number of unconfirmed messages of a device.
    pub(crate) fn in_flight(&self) -> usize {
        if self.protocol == Protocol::Http { 1 } else { self.in_flight.into() }
    }

    /// The topic that a device publishes to over MQTT.
    pub(crate) fn topic(&self, device: &str) -> String {
        self.topic.as_deref().unwrap_or(self.kind.name()).replace("${device}", device)
    }

    /// Number of threads, at most one per connection.
    pub(crate) fn threads(&self) -> usize {
        (self.threads as usize).min(self.connections())
    }

    /// Id of the device with this index; the first device has index 0.
    pub(crate) fn device_id(&self, number: u64) -> String {
        format!("{}{}", self.device_prefix, self.first_device + number)
    }

    pub(crate) fn devices_url(&self) -> &str {
        let own = match self.protocol {
            Protocol::Http => "http://127.0.0.1:8080",
            Protocol::Mqtt => "mqtt://127.0.0.1:1883",
        };
        self.devices_url.as_deref().unwrap_or(own)
    }

    pub(crate) fn target(&self) -> Result<ServerTarget, Error> {
        let scheme = match self.protocol {
            Protocol::Http => Scheme::Http,
            Protocol::Mqtt => Scheme::Mqtt,
        };
        ServerTarget::parse_with_ca("devices-url", scheme, self.devices_url(), self.timeout, self.ca.as_deref())
    }

    /// Server for the requests: the devices' listener, or the applications' listener for commands. The latter needs extra time
    /// to report that a command was not answered.
    pub(crate) fn request_target(&self) -> Result<ServerTarget, Error> {
        match self.kind {
            MessageKind::Command => {
                ServerTarget::parse("registry-url", Scheme::Http, &self.registry_url, self.timeout + VERDICT_TIME)
            }
            MessageKind::Telemetry | MessageKind::Event => self.target(),
        }
    }

    pub(crate) fn payload(&self) -> Result<DevicePayload, Error> {
        match (self.template.as_deref(), self.payload_bytes) {
            (None, Some(bytes)) => Ok(DevicePayload::of_size(bytes as usize)),
            (template, _) => {
                JsonTemplate::parse("template", template.unwrap_or(TEMPLATE_DEFAULT)).map(DevicePayload::Template)
            }
        }
    }

    /// Checks that the options do not contradict each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
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
        if self.pacing == Pacing::Open && self.ramp() > self.period {
            let given = format!("{:?}", self.ramp());
            return refuse("ramp", &given, "devices of the open loop begin within a period; give at most the period");
        }
        if self.kind == MessageKind::Command {
            self.check_commands()?;
        }
        match self.protocol {
            Protocol::Http => self.check_http(),
            Protocol::Mqtt => self.check_mqtt(),
        }
    }

    fn check_commands(&self) -> Result<(), Error> {
        if let Some(topic) = &self.topic {
            return refuse("topic", topic, "commands have topics of their own; leave it out");
        }
        if self.in_flight > 1 {
            let rule = "a device is sent one command at a time; let more devices wait for them";
            return refuse("in-flight", &self.in_flight.to_string(), rule);
        }
        if self.qos > 0 && self.protocol == Protocol::Http {
            return refuse("qos", &self.qos.to_string(), "commands over HTTP have none; use --protocol mqtt");
        }
        if self.method == Method::Post {
            return refuse("method", "post", "devices name themselves when they wait for commands; use put");
        }
        Ok(())
    }

    fn check_http(&self) -> Result<(), Error> {
        if self.auth == Auth::None && self.method == Method::Post {
            return refuse("auth", "none", "a POST is told apart by its credentials only; use --method put");
        }
        if self.qos > 1 {
            return refuse("qos", "2", "HTTP knows 0 and 1; for 2 use --protocol mqtt with --topic");
        }
        if let Some(topic) = &self.topic {
            return refuse("topic", topic, "only MQTT has topics; use --protocol mqtt");
        }
        if self.in_flight > 1 {
            return refuse("in-flight", &self.in_flight.to_string(), "over HTTP a device waits for each answer; use 1");
        }
        Ok(())
    }

    fn check_mqtt(&self) -> Result<(), Error> {
        if let (Some(connections), MessageKind::Telemetry | MessageKind::Event) = (self.connections, self.kind) {
            let rule = "over MQTT each device has a connection of its own; set --devices alone";
            return refuse("connections", &connections.to_string(), rule);
        }
        if self.qos > 1 && self.topic.is_none() {
            return refuse("qos", "2", "telemetry is taken at 0 and 1; for 2 name another topic with --topic");
        }
        let topic = self.topic(&self.device_id(self.devices));
        if topic.is_empty() || topic.len() > TOPIC_MAX_BYTES || topic.contains(['+', '#', '\0']) {
            return refuse("topic", &topic, "a topic has 1 to 65535 bytes and neither '+', '#' nor NUL");
        }
        let given = self.password.len().max(self.tenant.len() + self.device_prefix.len());
        if given > LOGIN_MAX_BYTES {
            return refuse(
                "password",
                &format!("{given} bytes"),
                "names and passwords of MQTT have at most 65535 bytes",
            );
        }
        Ok(())
    }
}

fn refuse(option: &'static str, value: &str, rule: &str) -> Result<(), Error> {
    Err(Error::Option { option, value: value.to_owned(), rule: rule.to_owned() })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "sim")]
    struct SimCommand {
        #[command(flatten)]
        args: SimArgs,
    }

    fn parse(line: &str) -> SimArgs {
        SimCommand::parse_from(format!("sim {line}").split_whitespace()).args
    }

    #[test]
    fn the_help_names_every_option() {
        insta::assert_snapshot!(SimCommand::command().render_long_help().to_string());
    }

    #[test]
    fn connections_never_exceed_devices_and_threads_never_exceed_connections() {
        for (line, expected) in [
            ("", (100, 1)),
            ("-n 2000", (500, 1)),
            ("-n 2000 -c 1000 --threads 4", (1000, 4)),
            ("-n 3 -c 1000 --threads 4", (3, 3)),
            ("-n 2000 --protocol mqtt", (2000, 1)),
            ("-n 2000 --protocol mqtt --kind command", (500, 1)),
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
            ("--loop open --period 1s --ramp 2s", "--ramp"),
            ("--qos 2", "--qos"),
            ("--topic t", "--topic"),
            ("--in-flight 2", "--in-flight"),
            ("--protocol mqtt --qos 2", "--qos"),
            ("--protocol mqtt -c 5", "--connections"),
            ("--protocol mqtt --topic a/+", "--topic"),
            ("--protocol mqtt --topic ${device}/#", "--topic"),
            ("--kind command --qos 1", "--qos"),
            ("--kind command --method post", "--method"),
            ("--kind command --protocol mqtt --qos 2", "--qos"),
            ("--kind command --protocol mqtt --topic t", "--topic"),
            ("--kind command --protocol mqtt --in-flight 2", "--in-flight"),
        ] {
            let error = parse(line).check().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{line}: {error}");
        }
        for url in ["https://127.0.0.1", "http://127.0.0.1/telemetry", "127.0.0.1:8080", "no url", "mqtt://127.0.0.1"] {
            let args = SimArgs { devices_url: Some(url.to_owned()), ..parse("") };
            assert!(args.target().unwrap_err().to_string().starts_with("--devices-url"), "{url}");
        }
        assert!(parse("--protocol mqtt --qos 2 --topic d/${device}").check().is_ok());
        assert_eq!(parse("--protocol mqtt --devices-url mqtt://a").target().unwrap().address, "a:1883");
        assert_eq!(
            parse("--kind command --protocol mqtt --registry-url http://b").request_target().unwrap().address,
            "b:80"
        );
        let http = parse("--protocol mqtt --devices-url http://127.0.0.1").target().unwrap_err();
        assert!(http.to_string().contains("only mqtt:// is spoken"), "{http}");
        let secured = parse("--protocol mqtt --devices-url mqtts://a").target().unwrap_err();
        assert!(secured.to_string().contains("--ca"), "{secured}");
        let unreadable = parse("--protocol mqtt --devices-url mqtts://a --ca absent.crt").target().unwrap_err();
        assert!(unreadable.to_string().starts_with("--ca = \"absent.crt\""), "{unreadable}");
        let both = ["sim", "--template", "1", "--payload-bytes", "3"];
        let matches = SimCommand::command().try_get_matches_from(both);
        assert!(matches.and_then(|matches| SimCommand::from_arg_matches(&matches)).is_err());
    }
}
