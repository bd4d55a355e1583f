//! Payloads of simulated devices: constant bytes, or JSON from a template with random walks.

use std::fmt::Write;

use bytes::Bytes;
use hyper::header::HeaderValue;
use serde_json::Value;

use crate::Error;

/// Fill byte of payloads of a fixed size.
const FILL: u8 = 0x42;

/// Largest number of random walks in a template.
const WALKS_MAX: usize = 64;

/// Source of the payloads of all devices of a simulation.
#[derive(Debug, Clone)]
pub(crate) enum DevicePayload {
    /// The same bytes each time.
    Fixed(Bytes),
    /// A text rendered for each message.
    Template(JsonTemplate),
}

impl DevicePayload {
    pub(crate) fn of_size(bytes: usize) -> Self {
        Self::Fixed(vec![FILL; bytes].into())
    }

    pub(crate) fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Fixed(_) => "application/octet-stream",
            Self::Template(_) => "application/json",
        })
    }

    /// Returns the start values of a device's random walks.
    pub(crate) fn start(&self) -> Box<[f64]> {
        match self {
            Self::Fixed(_) => Box::default(),
            Self::Template(template) => template.walks.iter().map(|walk| walk.start).collect(),
        }
    }

    /// Renders the next payload of `device` after `count` messages; each walk in `values` takes one step.
    pub(crate) fn next(&self, device: &str, count: u64, values: &mut [f64], random: &mut fastrand::Rng) -> Bytes {
        match self {
            Self::Fixed(bytes) => bytes.clone(),
            Self::Template(template) => {
                for (value, walk) in values.iter_mut().zip(&template.walks) {
                    *value += walk.step * (random.f64() * 2.0 - 1.0);
                }
                template.render(device, count, values).into()
            }
        }
    }
}

/// A JSON text with placeholders: `${walk(START, STEP)}`, `${count}`, `${device}`.
#[derive(Debug, Clone)]
pub(crate) struct JsonTemplate {
    pieces: Vec<Piece>,
    walks: Vec<Walk>,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Walk(usize),
    Count,
    Device,
}

/// A number that begins at `start` and moves by at most `step` from one message to the next.
#[derive(Debug, Clone, Copy)]
struct Walk {
    start: f64,
    step: f64,
}

impl JsonTemplate {
    /// Parses the value of the option `option`; the rendered text must be JSON.
    pub(crate) fn parse(option: &'static str, text: &str) -> Result<Self, Error> {
        let refuse = |rule: String| Error::Option { option, value: text.to_owned(), rule };
        let mut template = Self { pieces: Vec::new(), walks: Vec::new() };
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (place, after) = after.split_once('}').ok_or_else(|| refuse("a ${ has no closing }".to_owned()))?;
            template.pieces.push(Piece::Text(before.to_owned()));
            template.place(place.trim()).map_err(refuse)?;
            rest = after;
        }
        template.pieces.push(Piece::Text(rest.to_owned()));
        let starts: Vec<f64> = template.walks.iter().map(|walk| walk.start).collect();
        let sample = template.render("device", 0, &starts);
        serde_json::from_str::<Value>(&sample)
            .map_err(|error| refuse(format!("it gives {sample:?}, not JSON: {error}")))?;
        Ok(template)
    }

    fn place(&mut self, place: &str) -> Result<(), String> {
        let piece = match place {
            "count" => Piece::Count,
            "device" => Piece::Device,
            _ => {
                let walk = walk(place).ok_or_else(|| {
                    format!("${{{place}}} is unknown; there are ${{walk(START, STEP)}}, ${{count}} and ${{device}}")
                })?;
                if self.walks.len() == WALKS_MAX {
                    return Err(format!("more than {WALKS_MAX} walks"));
                }
                self.walks.push(walk);
                Piece::Walk(self.walks.len() - 1)
            }
        };
        self.pieces.push(piece);
        Ok(())
    }

    fn render(&self, device: &str, count: u64, values: &[f64]) -> String {
        let mut text = String::with_capacity(128);
        for piece in &self.pieces {
            let written = match piece {
                Piece::Text(part) => text.write_str(part),
                Piece::Walk(index) => write!(text, "{:.2}", values[*index]),
                Piece::Count => write!(text, "{count}"),
                Piece::Device => text.write_str(device),
            };
            written.expect("a string takes what it is given");
        }
        text
    }
}

fn walk(place: &str) -> Option<Walk> {
    let arguments = place.strip_prefix("walk")?.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (start, step) = arguments.split_once(',')?;
    let walk = Walk { start: start.trim().parse().ok()?, step: step.trim().parse().ok()? };
    (walk.start.is_finite() && walk.step.is_finite()).then_some(walk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_fills_device_count_and_walks() {
        let text = r#"{"id":"${device}","n":${ count },"temp":${walk(20, 0)},"hum":${walk(50,2.5)}}"#;
        let payload = DevicePayload::Template(JsonTemplate::parse("template", text).unwrap());
        let mut values = payload.start();
        let mut random = fastrand::Rng::with_seed(7);
        for count in 0..1000 {
            let before = values[1];
            let bytes = payload.next("d1", count, &mut values, &mut random);
            let json: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!((&json["id"], &json["n"], &json["temp"]), (&"d1".into(), &count.into(), &20.0.into()));
            assert!((values[1] - before).abs() <= 2.5 && (json["hum"].as_f64().unwrap() - values[1]).abs() <= 0.005);
        }
        assert_ne!(values[1], 50.0);
    }

    #[test]
    fn a_wrong_template_names_the_place_and_the_remedy() {
        for (text, expected) in [
            ("{\"a\":${walk(1)}}", "${walk(1)} is unknown; there are ${walk(START, STEP)}, ${count} and ${device}"),
            ("{\"a\":${count}", "not JSON"),
            ("{\"a\":${count", "a ${ has no closing }"),
        ] {
            let error = JsonTemplate::parse("template", text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.starts_with("--template"), "{error}");
        }
    }

    #[test]
    fn a_fixed_payload_has_its_size() {
        let DevicePayload::Fixed(bytes) = DevicePayload::of_size(64) else { panic!("not fixed") };
        assert_eq!(&bytes[..], [0x42; 64]);
    }
}
