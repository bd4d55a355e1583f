//! Acknowledged messages outlive `kill -9`: events over HTTP, events and telemetry at QoS 1 over MQTT, and messages
//! of the private space that are events or telemetry as well.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use millstream_testkit::mqtt::{connect, publish};
use millstream_testkit::status;

use crate::World;

/// Number of times that the server is killed during uploads; `MILLSTREAM_KILLS` sets another number.
const KILLS: usize = 4;
/// Messages of an MQTT device that nothing has confirmed yet.
const IN_FLIGHT: u64 = 8;
/// `gateway@default:pw`
const BASIC: &str = "Basic Z2F0ZXdheUBkZWZhdWx0OnB3";

/// Uploads until the server is gone; what it has acknowledged goes into `told`.
fn upload_events(devices: SocketAddr, begin: &str, told: &Mutex<Vec<String>>) {
    let headers = [("Authorization", BASIC), ("Content-Type", "text/plain")];
    for n in 0.. {
        let text = format!("{begin}-{n}");
        match status(devices, "POST", "/event", &headers, text.as_bytes()) {
            Some(202) => told.lock().unwrap().push(text),
            Some(other) => panic!("{other}"),
            None => return,
        }
    }
}

/// The same over MQTT at QoS 1.
fn publish_until_gone(mqtt: SocketAddr, topic: &str, begin: &str, told: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(mqtt)?;
    socket.write_all(&connect(4, 60, Some(("gateway@default", "pw"))))?;
    let mut answer = [0; 4];
    socket.read_exact(&mut answer)?;
    assert_eq!(answer, [0x20, 2, 0, 0]);
    let id = |n: u64| (n % u64::from(u16::MAX)) as u16 + 1;
    for n in 0.. {
        socket.write_all(&publish(4, 1, id(n), topic, &[], format!("{begin}-{n}").as_bytes()))?;
        if let Some(oldest) = n.checked_sub(IN_FLIGHT) {
            socket.read_exact(&mut answer)?;
            let [high, low] = id(oldest).to_be_bytes();
            assert_eq!(answer, [0x40, 2, high, low]);
            told.lock().unwrap().push(format!("{begin}-{oldest}"));
        }
    }
    Ok(())
}

#[test]
fn nothing_acknowledged_of_events_and_telemetry_is_lost_by_kills_in_the_middle_of_uploads() {
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let mut world = World::start();
    world.map_topics();
    let [http_events, mqtt_events, telemetry, mapped_events, mapped] = [const { Mutex::new(Vec::new()) }; 5];
    for life in 0..kills {
        let (devices, mqtt) = (world.process.devices, world.process.mqtt);
        let all = [&http_events, &mqtt_events, &telemetry, &mapped_events, &mapped];
        let told = || all.map(|told| told.lock().unwrap().len());
        let before = told();
        world = std::thread::scope(|threads| {
            threads.spawn(|| upload_events(devices, &format!("http-{life}"), &http_events));
            for (topic, name, told) in [
                ("event", "mqtt", &mqtt_events),
                ("telemetry", "telemetry", &telemetry),
                ("alarm/x", "alarm", &mapped_events),
                ("tele/x", "mapped", &mapped),
            ] {
                // It ends when the server is gone.
                threads.spawn(move || drop(publish_until_gone(mqtt, topic, &format!("{name}-{life}"), told)));
            }
            // At some moment after each of them has been told something.
            while told().iter().zip(before).any(|(now, before)| *now == before) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(RandomState::new().hash_one(life) % 30_000));
            world.kill_and_start()
        });
    }
    for (topic, begin, told) in [
        ("event.default", "http-", &http_events),
        ("event.default", "mqtt-", &mqtt_events),
        ("telemetry.default", "telemetry-", &telemetry),
        ("event.default", "alarm-", &mapped_events),
        ("telemetry.default", "mapped-", &mapped),
        ("mqtt.default", "alarm-", &mapped_events),
        ("mqtt.default", "mapped-", &mapped),
    ] {
        let told = told.lock().unwrap();
        let stored: HashSet<String> = world.values(topic, begin).into_iter().collect();
        let lost: Vec<_> = told.iter().filter(|text| !stored.contains(*text)).collect();
        assert!(lost.is_empty(), "{topic}, of {} acknowledged: {lost:?}", told.len());
        assert!(told.len() >= kills);
        println!("{topic} {begin}: {} acknowledged over {kills} kills, all there", told.len());
    }
    world.kill();
}
