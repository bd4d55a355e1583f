//! Hourly weather of one year at three airports.
//!
//! The source is `weather.csv.gz` and `airports.csv` of `examples/data/nyc-2013`. The replay sends these observations,
//! so a test can compute the expected state from them.

use std::path::Path;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Number;

use crate::{Error, csv};

/// Columns that become members of a payload with the same names.
const MEASURES: [&str; 9] =
    ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"];

/// One station's observation of one hour.
///
/// Serializes as the payload that a station sends: `time`, `origin`, and each measure that is present.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Code of the station: `EWR`, `JFK` or `LGA`.
    pub station: String,
    /// Time in UTC, such as `2013-01-01T06:00:00Z`. Station and time identify the observation.
    pub time: String,
    /// The same in seconds since 1970.
    pub time_s: i64,
    /// Measured values in the order of the file; a missing value (`NA`) is absent.
    pub measures: Vec<(&'static str, Number)>,
}

impl Observation {
    /// Returns the value of one measure, such as `temp`.
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.measures.iter().find(|(measure, _)| *measure == name).and_then(|(_, value)| value.as_f64())
    }
}

impl Serialize for Observation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut payload = serializer.serialize_map(Some(2 + self.measures.len()))?;
        payload.serialize_entry("time", &self.time)?;
        payload.serialize_entry("origin", &self.station)?;
        for (name, value) in &self.measures {
            payload.serialize_entry(name, value)?;
        }
        payload.end()
    }
}

/// A weather station: a device with a location.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// The airport's code, and the device's id.
    pub code: String,
    /// Name of the station's airport.
    pub name: String,
    /// Latitude in degrees, positive north.
    pub latitude: f64,
    /// Longitude in degrees, positive east.
    pub longitude: f64,
}

/// All observations of all stations.
#[derive(Debug, Clone)]
pub struct Weather {
    stations: Vec<Station>,
    observations: Vec<Observation>,
}

impl Weather {
    /// Reads `weather.csv.gz` and `airports.csv` in `folder`.
    ///
    /// # Errors
    /// [`Error::Read`] or [`Error::Data`], naming file and line.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let mut observations = Vec::new();
        let path = folder.join("weather.csv.gz");
        let [a, b, c, d, e, f, g, h, i] = MEASURES;
        csv::read(&path, ["origin", "time_hour", a, b, c, d, e, f, g, h, i], |[station, time, values @ ..]| {
            observations.push(observation(station, time, &values)?);
            Ok(())
        })?;
        observations.sort_by(|a, b| (a.time_s, &a.station).cmp(&(b.time_s, &b.station)));
        let mut stations = Vec::new();
        let airports = folder.join("airports.csv");
        csv::read(&airports, ["faa", "name", "lat", "lon"], |[code, name, latitude, longitude]| {
            if observations.iter().any(|observation| observation.station == code) {
                let degrees = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number of degrees"));
                let (latitude, longitude) = (degrees(latitude)?, degrees(longitude)?);
                stations.push(Station { code: code.to_owned(), name: name.to_owned(), latitude, longitude });
            }
            Ok(())
        })?;
        stations.sort_by(|a, b| a.code.cmp(&b.code));
        let placed = |code: &str| stations.iter().any(|station| station.code == code);
        if let Some(observation) = observations.iter().find(|observation| !placed(&observation.station)) {
            let what = format!("there is no row for the weather station {:?}", observation.station);
            return Err(Error::Data { path: airports, line: 1, what });
        }
        Ok(Self { stations, observations })
    }

    /// Returns the stations, ordered by code.
    pub fn stations(&self) -> &[Station] {
        &self.stations
    }

    /// Returns all observations by time, then station.
    pub fn observations(&self) -> &[Observation] {
        &self.observations
    }

    /// Returns the observations of one station by time.
    pub fn of<'a>(&'a self, station: &'a str) -> impl Iterator<Item = &'a Observation> {
        self.observations.iter().filter(move |observation| observation.station == station)
    }

    /// Returns the last observation of a station.
    pub fn last(&self, station: &str) -> Option<&Observation> {
        self.observations.iter().rev().find(|observation| observation.station == station)
    }

    /// Returns the observations of a station whose measure is greater than `bound`, by time. An absent measure never is.
    pub fn above<'a>(
        &'a self,
        station: &'a str,
        measure: &'a str,
        bound: f64,
    ) -> impl Iterator<Item = &'a Observation> {
        self.of(station).filter(move |observation| observation.measure(measure).is_some_and(|value| value > bound))
    }
}

fn observation(station: &str, time: &str, values: &[&str]) -> Result<Observation, String> {
    let time_s = epoch_seconds(time).ok_or_else(|| format!("{time:?} is not a time like 2013-01-01T06:00:00Z"))?;
    let mut measures = Vec::with_capacity(values.len());
    for (name, text) in MEASURES.into_iter().zip(values).filter(|(_, text)| **text != "NA") {
        measures.push((name, number(text).ok_or_else(|| format!("{name} = {text:?} is not a number"))?));
    }
    Ok(Observation { station: station.to_owned(), time: time.to_owned(), time_s, measures })
}

/// The number in the shortest form that reads back as the same: `1012`, not `1012.0`.
fn number(text: &str) -> Option<Number> {
    match text.parse::<i64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) => {
            let value: f64 = text.parse().ok()?;
            let whole = value as i64;
            if whole as f64 == value { Some(whole.into()) } else { Number::from_f64(value) }
        }
    }
}

/// Seconds since 1970 of a UTC time written as `YYYY-MM-DDThh:mm:ssZ`.
fn epoch_seconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = three(date, '-')?;
    let [hour, minute, second] = three(time, ':')?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years begin in March here, so that the leap day is a year's last: only whole years and months remain to count.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn three(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| part.parse::<u32>().ok().map(i64::from));
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::PathBuf;

    use super::*;

    fn year() -> Weather {
        Weather::read(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/nyc-2013")).unwrap()
    }

    #[test]
    fn the_year_has_26115_observations_and_no_hour_twice() {
        let weather = year();
        assert_eq!(weather.observations().len(), 26_115);
        let counts = ["EWR", "JFK", "LGA"].map(|station| weather.of(station).count());
        assert_eq!(counts, [8_703, 8_706, 8_706]);
        let hours: HashSet<_> = weather.observations().iter().map(|o| (&o.station, o.time_s)).collect();
        assert_eq!(hours.len(), 26_115);
    }

    #[test]
    fn observations_come_by_time_then_station() {
        let weather = year();
        let mut before = (i64::MIN, String::new());
        for observation in weather.observations() {
            let this = (observation.time_s, observation.station.clone());
            assert!(before < this, "{before:?} comes before {this:?}");
            before = this;
        }
    }

    #[test]
    fn a_payload_keeps_the_files_column_names_and_leaves_out_missing_values() {
        let weather = year();
        let payload = |station: &str, time: &str| {
            serde_json::to_string(weather.of(station).find(|o| o.time == time).unwrap()).unwrap()
        };
        insta::assert_snapshot!(payload("EWR", "2013-01-01T06:00:00Z"), @r#"{"time":"2013-01-01T06:00:00Z","origin":"EWR","temp":39.02,"dewp":26.06,"humid":59.37,"wind_dir":270,"wind_speed":10.357019999999999,"precip":0,"pressure":1012,"visib":10}"#);
        insta::assert_snapshot!(payload("EWR", "2013-08-22T13:00:00Z"), @r#"{"time":"2013-08-22T13:00:00Z","origin":"EWR","wind_dir":320,"wind_speed":12.658579999999999,"precip":0.13,"visib":7}"#);
    }

    #[test]
    fn rows_above_a_temperature_and_last_rows_are_those_of_the_file() {
        let weather = year();
        let hot = |station, bound| weather.above(station, "temp", bound).count();
        assert_eq!([hot("EWR", 90.0), hot("JFK", 90.0), hot("LGA", 90.0), hot("EWR", 100.0)], [122, 51, 104, 2]);
        let last = weather.last("JFK").unwrap();
        assert_eq!(
            (last.time.as_str(), last.measure("temp"), last.measure("wind_gust")),
            ("2013-12-30T23:00:00Z", Some(30.02), None)
        );
    }

    #[test]
    fn stations_have_names_and_places() {
        let weather = year();
        let codes: Vec<_> = weather.stations().iter().map(|station| station.code.as_str()).collect();
        assert_eq!(codes, ["EWR", "JFK", "LGA"]);
        let la_guardia = &weather.stations()[2];
        assert_eq!((la_guardia.name.as_str(), la_guardia.longitude), ("La Guardia", -73.872608));
    }

    #[test]
    fn times_are_read_to_the_second_and_nothing_else_is_a_time() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2013-01-01T06:00:00Z", Some(1_357_020_000)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199)),
            ("2013-01-01 06:00:00", None),
            ("2013-13-01T06:00:00Z", None),
            ("2013-01-01T06:00Z", None),
        ] {
            assert_eq!(epoch_seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_have_their_shortest_form() {
        for (text, expected) in
            [("1012", "1012"), ("1012.0", "1012"), ("0.50", "0.5"), ("-3.5e0", "-3.5"), ("1e2", "100")]
        {
            assert_eq!(number(text).unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "NaN", "inf", "12 mph"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn a_broken_row_is_named_by_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, "a,b\n1,2\n1\n").unwrap();
        let error = csv::read(&path, ["b"], |_| Ok(())).unwrap_err().to_string();
        assert!(error.ends_with("rows.csv, line 3: 1 fields; the head line has 2"), "{error}");
        let error = csv::read(&path, ["c"], |_| Ok(())).unwrap_err().to_string();
        assert!(error.ends_with("line 1: there is no column \"c\" among [\"a\", \"b\"]"), "{error}");
    }
}
