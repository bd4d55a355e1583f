//! Replays the weather of 2013: stations report every observed hour over HTTP, at any speed.
//!
//! Always true
//! - A station sends over one connection, one observation at a time and in order of time, at QoS 1.
//! - An observation is sent until it is accepted. If the outcome of an attempt is unknown (no response, or a 5xx status),
//!   it is sent again and listed in [`ReplayProgress::perhaps_twice`] by station and time.
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
use crate::client::{HttpConnection, HttpResponse, QOS_LEVEL};
use crate::failure::{FailureKind, RequestFailure};
use crate::registry::{RegistryClient, SecretForm, authorization};
use crate::target::{Scheme, ServerTarget};
use crate::weather::{Observation, Station, Weather};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The first pause before an observation is sent again; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(20);

/// Longest pause without a `Retry-After` header.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Longest pause with a `Retry-After` header.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// Speed at which a replay runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Observed seconds per second; 52,560 replays a year in ten minutes. A station that falls behind catches up.
    ObservedSecondsPerSecond(f64),
    /// Each observation is sent as soon as the station's previous one was accepted.
    AsFastAsPossible,
}

/// Settings of a replay: the weather, the server and the speed.
#[derive(Debug, Clone)]
pub struct WeatherReplay {
    /// Observations that the stations send.
    pub weather: Weather,
    /// URL to which the stations send.
    pub devices_url: String,
    /// URL of the device registry.
    pub registry_url: String,
    /// API token for the registry; none is needed on the loopback address.
    pub registry_token: Option<String>,
    /// Tenant of all weather stations.
    pub tenant: String,
    /// Password of all stations; their auth-id is their code.
    pub password: String,
    /// Speed at which time passes.
    pub speed: Speed,
}

/// Progress of a running replay.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplayProgress {
    /// Progress of each station, by code.
    pub stations: Vec<StationProgress>,
    /// Total number of observations to send.
    pub total: u64,
    /// Number of observations accepted so far.
    pub accepted: u64,
    /// Failed attempts that were repeated, by kind of failure.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Station and time of each observation that an attempt may have delivered although it failed, in order of
    /// occurrence: the server may hold these more than once. No observation is listed twice.
    pub perhaps_twice: Vec<(String, String)>,
}

/// Progress of one weather station.
#[derive(Debug, Clone, PartialEq)]
pub struct StationProgress {
    /// Code, name and location of the station.
    pub station: Station,
    /// Number of its accepted observations.
    pub accepted: u64,
    /// Its latest accepted observation, if any.
    pub latest: Option<Observation>,
}

impl WeatherReplay {
    /// Registers the tenant and the stations with name, location and password. Existing stations
    /// keep everything but their passwords.
    ///
    /// # Errors
    /// [`Error::Registry`] or [`Error::NoAnswer`] at the first refusal.
    pub async fn register(&self) -> Result<(), Error> {
        let target = ServerTarget::parse("registry-url", Scheme::Http, &self.registry_url, ANSWER_TIMEOUT)?;
        let mut registry = RegistryClient::new(target, self.registry_token.clone());
        registry.tenant(&self.tenant).await?;
        for station in self.weather.stations() {
            registry.device(&self.tenant, &station.code, registration(station)).await?;
            registry.password(&self.tenant, &station.code, &self.password, SecretForm::Plain).await?;
        }
        Ok(())
    }

    /// Sends every observation and returns when all are accepted. Subscribers of `progress` see the progress.
    /// Dropping the future ends the replay at once.
    ///
    /// # Errors
    /// [`Error::Refused`] for an observation that the server refuses for good.
    pub async fn run(&self, progress: &watch::Sender<ReplayProgress>) -> Result<ReplayProgress, Error> {
        let target = ServerTarget::parse("devices-url", Scheme::Http, &self.devices_url, ANSWER_TIMEOUT)?;
        let clock = ReplayClock::starting_now(self.speed, self.weather.observations());
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
        target: &ServerTarget,
        clock: &ReplayClock,
        progress: &watch::Sender<ReplayProgress>,
    ) -> Result<(), Error> {
        let authorization = authorization(&station.code, &self.tenant, &self.password);
        let mut connection = HttpConnection::to(target.clone());
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

    fn beginning(&self) -> ReplayProgress {
        let stations = self.weather.stations().iter();
        ReplayProgress {
            stations: stations
                .map(|station| StationProgress { station: station.clone(), accepted: 0, latest: None })
                .collect(),
            total: self.weather.observations().len() as u64,
            ..ReplayProgress::default()
        }
    }
}

/// Registration of a station. Its static attributes become attributes of its entity.
fn registration(station: &Station) -> Value {
    let place = json!({ "type": "Point", "coordinates": [station.longitude, station.latitude] });
    let fixed = json!({
        "name": { "type": "Text", "value": station.name },
        "location": { "type": "geo:json", "value": place },
    });
    json!({ "ext": { "context": { "static": fixed } } })
}

fn request(target: &ServerTarget, authorization: &HeaderValue, body: Bytes) -> Request<Full<Bytes>> {
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
    connection: &mut HttpConnection,
    request: impl Fn() -> Request<Full<Bytes>>,
    observation: &Observation,
    progress: &watch::Sender<ReplayProgress>,
) -> Result<(), Error> {
    let mut pause = RETRY_MIN;
    let mut listed = false;
    loop {
        let answer = connection.send(request()).await;
        let Some(setback) = RetryReason::of(answer, observation)? else { return Ok(()) };
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

/// A failed attempt that will be repeated.
struct RetryReason {
    kind: FailureKind,
    may_have_applied: bool,
    asked_pause: Option<Duration>,
}

impl RetryReason {
    /// Returns `None` if the attempt succeeded.
    fn of(answer: Result<HttpResponse, RequestFailure>, observation: &Observation) -> Result<Option<Self>, Error> {
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
            // A 503 may also mean that the server did not decide in time.
            may_have_applied: status.is_server_error(),
            asked_pause: answer.retry_after(),
        }))
    }
}

/// Maps observed times to due times of the replay.
struct ReplayClock {
    speed: Speed,
    start: Instant,
    first_s: i64,
}

impl ReplayClock {
    fn starting_now(speed: Speed, observations: &[Observation]) -> Self {
        let first_s = observations.first().map_or(0, |observation| observation.time_s);
        Self { speed, start: Instant::now(), first_s }
    }

    async fn wait_for(&self, observation: &Observation) {
        if let Some(after) = self.due_after(observation.time_s) {
            sleep_until(self.start + after).await;
        }
    }

    /// Time from the start to the due time of an observation; `None` if it is due at once.
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
        let clock = |speed| ReplayClock { speed, start: Instant::now(), first_s: 1_000 };
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
