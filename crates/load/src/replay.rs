//! Weather stations that live through the year 2013 once more, as fast as one likes, and report every hour over HTTP.
//!
//! Always true
//! - A station sends over one connection, one observation at a time and in order of time, at QoS 1.
//! - An observation is sent until it is accepted. When the fate of an attempt is unknown (no answer, or a 5xx answer), it
//!   is sent again all the same, and listed in [`Progress::perhaps_twice`] by station and time.
//! - A 4xx answer other than 429 ends the replay: the same request would never succeed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Error;
use crate::client::{Answer, Connection, QOS_LEVEL, Scheme, Target};
use crate::failure::{Failure, FailureKind};
use crate::registry::{Registry, SecretForm, authorization};
use crate::weather::{Observation, Station, Weather};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The first pause before an observation is sent again; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(20);

/// The longest pause that is made without being asked for one.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The longest pause that is made when the server asks for one.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// How fast the observed time goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// So many observed seconds per second; 52,560 lets a year pass in ten minutes. Who falls behind catches up.
    ObservedSecondsPerSecond(f64),
    /// Every observation as soon as the station's last one was accepted.
    AsFastAsPossible,
}

/// A year of weather, to be sent to a server by its stations.
#[derive(Debug, Clone)]
pub struct Replay {
    /// What was observed.
    pub weather: Weather,
    /// Where stations send to.
    pub devices_url: String,
    /// Where stations are registered.
    pub registry_url: String,
    /// API token for the registry; none is needed on the loopback address.
    pub registry_token: Option<String>,
    /// The stations' tenant.
    pub tenant: String,
    /// The stations' password; their auth-id is their code.
    pub password: String,
    /// How fast time goes by.
    pub speed: Speed,
}

/// How far a replay has come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// The stations, by code.
    pub stations: Vec<StationProgress>,
    /// Observations in all.
    pub total: u64,
    /// Observations that were accepted.
    pub accepted: u64,
    /// Attempts that failed and were repeated, by what was answered or happened.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Station and time of each observation that an attempt may have delivered although it failed, in order of
    /// occurrence: the server may hold these more than once. No observation is listed twice.
    pub perhaps_twice: Vec<(String, String)>,
}

/// How far one station has come.
#[derive(Debug, Clone, PartialEq)]
pub struct StationProgress {
    /// Who and where it is.
    pub station: Station,
    /// How many of its observations were accepted.
    pub accepted: u64,
    /// The latest of them.
    pub latest: Option<Observation>,
}

impl Replay {
    /// Registers the tenant and the stations with name, place and password. What exists already stays as it is, except
    /// the passwords.
    ///
    /// # Errors
    /// [`Error::Registry`] or [`Error::NoAnswer`] at the first refusal.
    pub async fn register(&self) -> Result<(), Error> {
        let target = Target::parse("registry-url", Scheme::Http, &self.registry_url, ANSWER_TIMEOUT)?;
        let mut registry = Registry::new(target, self.registry_token.clone());
        registry.tenant(&self.tenant).await?;
        for station in self.weather.stations() {
            registry.device(&self.tenant, &station.code, registration(station)).await?;
            registry.password(&self.tenant, &station.code, &self.password, SecretForm::Plain).await?;
        }
        Ok(())
    }

    /// Sends every observation and returns when all are accepted. Whoever subscribes to `progress` sees how far it is.
    /// Dropping the future ends the replay at once.
    ///
    /// # Errors
    /// [`Error::Refused`] when an observation can never be accepted.
    pub async fn run(&self, progress: &watch::Sender<Progress>) -> Result<Progress, Error> {
        let target = Target::parse("devices-url", Scheme::Http, &self.devices_url, ANSWER_TIMEOUT)?;
        let clock = Clock::starting_now(self.speed, self.weather.observations());
        progress.send_replace(self.beginning());
        let stations = self.weather.stations().iter().enumerate();
        try_join_all(stations.map(|(index, station)| self.replay_station(index, station, &target, &clock, progress)))
            .await?;
        Ok(progress.borrow().clone())
    }

    async fn replay_station(
        &self,
        index: usize,
        station: &Station,
        target: &Target,
        clock: &Clock,
        progress: &watch::Sender<Progress>,
    ) -> Result<(), Error> {
        let authorization = authorization(&station.code, &self.tenant, &self.password);
        let mut connection = Connection::to(target.clone());
        for observation in self.weather.of(&station.code) {
            clock.wait_for(observation).await;
            let body = Bytes::from(serde_json::to_vec(observation).expect("an observation has only text keys"));
            let request = || request(target, &authorization, body.clone());
            deliver(&mut connection, request, observation, progress).await?;
            progress.send_modify(|progress| {
                progress.accepted += 1;
                progress.stations[index].accepted += 1;
                progress.stations[index].latest = Some(observation.clone());
            });
        }
        Ok(())
    }

    fn beginning(&self) -> Progress {
        let stations = self.weather.stations().iter();
        Progress {
            stations: stations
                .map(|station| StationProgress { station: station.clone(), accepted: 0, latest: None })
                .collect(),
            total: self.weather.observations().len() as u64,
            ..Progress::default()
        }
    }
}

/// What the registry is told about a station: what never changes about it becomes attributes of its entity.
fn registration(station: &Station) -> Value {
    let place = json!({ "type": "Point", "coordinates": [station.longitude, station.latitude] });
    let fixed = json!({
        "name": { "type": "Text", "value": station.name },
        "location": { "type": "geo:json", "value": place },
    });
    json!({ "ext": { "context": { "static": fixed } } })
}

fn request(target: &Target, authorization: &HeaderValue, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/telemetry");
    let headers = request.headers_mut();
    headers.insert(HOST, target.host());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(AUTHORIZATION, authorization.clone());
    headers.insert(QOS_LEVEL, HeaderValue::from_static("1"));
    request
}

/// Sends one observation until it is accepted.
async fn deliver(
    connection: &mut Connection,
    request: impl Fn() -> Request<Full<Bytes>>,
    observation: &Observation,
    progress: &watch::Sender<Progress>,
) -> Result<(), Error> {
    let mut pause = RETRY_MIN;
    let mut listed = false;
    loop {
        let answer = connection.send(request()).await;
        let Some(setback) = Setback::of(answer, observation)? else { return Ok(()) };
        progress.send_modify(|progress| {
            *progress.failures.entry(setback.kind).or_default() += 1;
            if setback.may_have_applied && !listed {
                progress.perhaps_twice.push((observation.station.clone(), observation.time.clone()));
            }
        });
        listed |= setback.may_have_applied;
        sleep(setback.asked_pause.unwrap_or(pause).min(RETRY_AFTER_MAX)).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// An attempt that failed and will be repeated.
struct Setback {
    kind: FailureKind,
    may_have_applied: bool,
    asked_pause: Option<Duration>,
}

impl Setback {
    /// `None` when the attempt succeeded.
    fn of(answer: Result<Answer, Failure>, observation: &Observation) -> Result<Option<Self>, Error> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let (kind, may_have_applied) = (FailureKind::from(&failure), failure.may_have_applied());
                return Ok(Some(Self { kind, may_have_applied, asked_pause: None }));
            }
        };
        let status = answer.status;
        if status.is_success() {
            return Ok(None);
        }
        if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS {
            return Err(Error::Refused {
                station: observation.station.clone(),
                time: observation.time.clone(),
                status: status.as_u16(),
                body: answer.excerpt(),
            });
        }
        Ok(Some(Self {
            kind: FailureKind::Status(status.as_u16()),
            // A 503 may also mean that there was no verdict in time.
            may_have_applied: status.is_server_error(),
            asked_pause: answer.retry_after(),
        }))
    }
}

/// Turns observed times into moments of the replay.
struct Clock {
    speed: Speed,
    start: Instant,
    first_s: i64,
}

impl Clock {
    fn starting_now(speed: Speed, observations: &[Observation]) -> Self {
        let first_s = observations.first().map_or(0, |observation| observation.time_s);
        Self { speed, start: Instant::now(), first_s }
    }

    async fn wait_for(&self, observation: &Observation) {
        if let Some(after) = self.due_after(observation.time_s) {
            sleep_until(self.start + after).await;
        }
    }

    /// How long after the start an observation is due; `None`: at once.
    fn due_after(&self, time_s: i64) -> Option<Duration> {
        match self.speed {
            Speed::AsFastAsPossible => None,
            Speed::ObservedSecondsPerSecond(speed) => {
                Duration::try_from_secs_f64((time_s - self.first_s) as f64 / speed).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_passes_in_ten_minutes_at_52560_observed_seconds_per_second() {
        let clock = |speed| Clock { speed, start: Instant::now(), first_s: 1_000 };
        let ten_minutes = clock(Speed::ObservedSecondsPerSecond(52_560.0));
        assert_eq!(ten_minutes.due_after(1_000), Some(Duration::ZERO));
        assert_eq!(ten_minutes.due_after(1_000 + 365 * 86_400), Some(Duration::from_secs(600)));
        assert_eq!(clock(Speed::AsFastAsPossible).due_after(2_000), None);
    }

    #[test]
    fn a_station_is_registered_with_its_name_and_place() {
        let station =
            Station { code: "LGA".to_owned(), name: "La Guardia".to_owned(), latitude: 40.8, longitude: -73.9 };
        insta::assert_snapshot!(registration(&station).to_string(), @r#"{"ext":{"context":{"static":{"name":{"type":"Text","value":"La Guardia"},"location":{"type":"geo:json","value":{"type":"Point","coordinates":[-73.9,40.8]}}}}}}"#);
    }
}
