//! Aims of the suite and the check of the figures against them.

use millstream_load::report::BenchCase;

use super::case::{AT_PART, HTTP_0, HTTP_1, MQTT_0, MQTT_1, MQTT_1_16, P99_OF_ROUNDS, PEER_P99_OF_ROUNDS};

const HTTP_0_PER_CORE_AIM: f64 = 60_000.0;
const OF_NGINX_AIM: f64 = 0.5;
const QOS_1_OF_QOS_0_AIM: f64 = 0.8;
const OF_MOSQUITTO_AIM: f64 = 1.0;
const P99_AIM_MS: f64 = 5.0;

/// Returns a line for each aim that the cases have a figure for.
pub(super) fn judge(cases: &[BenchCase]) -> Vec<String> {
    let of = |name: &str| cases.iter().find(|case| case.case == name);
    let mut lines = Vec::new();
    let mut at_least = |what: String, value: Option<f64>, aim: f64| {
        lines.extend(value.map(|value| {
            let verdict = if value >= aim { "met" } else { "missed" };
            format!("Aim, {what} at least {aim}: {verdict}: {value:.2}.")
        }));
    };
    let http_0 = of(HTTP_0);
    let per_core = |case: Option<&BenchCase>| case.and_then(|case| case.per_core_per_s);
    at_least(format!("{HTTP_0}, messages/s and core,"), per_core(http_0), HTTP_0_PER_CORE_AIM);
    at_least(format!("{HTTP_0}, of nginx"), http_0.and_then(least_ratio), OF_NGINX_AIM);
    let of_qos_0 = per_core(of(HTTP_1)).zip(per_core(http_0)).map(|(one, zero)| one / zero);
    at_least(format!("{HTTP_1}, per core, of QoS 0"), of_qos_0, QOS_1_OF_QOS_0_AIM);
    for name in [MQTT_0, MQTT_1, MQTT_1_16] {
        at_least(format!("{name}, of Mosquitto"), of(name).and_then(least_ratio), OF_MOSQUITTO_AIM);
    }
    for case in cases.iter().filter(|case| case.case.ends_with(AT_PART)) {
        let p99 = case.latency_ms.map_or(f64::INFINITY, |latency| latency.p99);
        let verdict = if p99 < P99_AIM_MS { "met" } else { "missed" };
        let rounds = of_rounds(case, P99_OF_ROUNDS).map(|p99| format!(" The rounds: {p99}.")).unwrap_or_default();
        let peer = case.peer.as_ref().zip(of_rounds(case, PEER_P99_OF_ROUNDS));
        let peer = peer.map(|(peer, p99)| format!(" {} at its own: {p99}.", peer.name)).unwrap_or_default();
        lines.push(format!("Aim, {}, p99 below {P99_AIM_MS} ms: {verdict}: {p99:.2} ms.{rounds}{peer}", case.case));
    }
    lines
}

/// Formats the p99 of each round in order; `None` if the case has none.
fn of_rounds(case: &BenchCase, condition: &str) -> Option<String> {
    let rounds = case.conditions.get(condition)?.as_array().filter(|rounds| !rounds.is_empty())?;
    let each = rounds.iter().filter_map(serde_json::Value::as_f64).map(|p99| format!("{p99:.2}"));
    Some(each.collect::<Vec<_>>().join(", "))
}

/// Returns the smaller of two ratios to the peer: rate, and rate per core. A saturated generator makes the rates alike.
fn least_ratio(case: &BenchCase) -> Option<f64> {
    let theirs = case.peer.as_ref()?.cpu_s_per_million?;
    let ours = case.cpu_s_per_million?;
    Some(case.ratio?.min(theirs / ours))
}

#[cfg(test)]
mod tests {
    use millstream_load::LatencyMs;
    use millstream_load::report::Peer;

    use super::*;

    fn case(name: &str, rate_per_s: f64, cpu_s_per_million: f64, p99: f64) -> BenchCase {
        let peer =
            Peer { name: "peer".to_owned(), rate_per_s: 100.0, cpu_s_per_million: Some(10.0), ..Peer::default() };
        BenchCase {
            suite: "connect".to_owned(),
            case: name.to_owned(),
            conditions: serde_json::Map::new(),
            rate_per_s,
            per_core_per_s: Some(1e6 / cpu_s_per_million),
            latency_ms: Some(LatencyMs { p99, ..LatencyMs::default() }),
            errors: 0,
            rss_mib: None,
            cpu_s_per_million: Some(cpu_s_per_million),
            ratio: Some(rate_per_s / peer.rate_per_s),
            peer: Some(peer),
            generator_bottleneck: false,
        }
    }

    #[test]
    fn an_aim_is_met_only_by_rate_and_cpu_time_together() {
        let met = judge(&[case(MQTT_1, 100.0, 10.0, 1.0)]);
        assert_eq!(met, ["Aim, MQTT telemetry, QoS 1, of Mosquitto at least 1: met: 1.00."]);
        for missed in [case(MQTT_1, 99.0, 5.0, 1.0), case(MQTT_1, 200.0, 11.0, 1.0)] {
            assert!(judge(&[missed])[0].contains("missed"));
        }
    }

    #[test]
    fn qos_1_is_compared_with_qos_0_and_paced_cases_by_their_p99() {
        let mut paced = case(&format!("{HTTP_0}{AT_PART}"), 1.0, 1.0, 5.0);
        let lines = judge(&[case(HTTP_0, 60.0, 10.0, 9.0), case(HTTP_1, 50.0, 12.0, 9.0), paced.clone()]);
        assert_eq!(
            lines,
            [
                "Aim, HTTP telemetry, QoS 0, messages/s and core, at least 60000: met: 100000.00.",
                "Aim, HTTP telemetry, QoS 0, of nginx at least 0.5: met: 0.60.",
                "Aim, HTTP telemetry, QoS 1, per core, of QoS 0 at least 0.8: met: 0.83.",
                "Aim, HTTP telemetry, QoS 0, at 70 %, p99 below 5 ms: missed: 5.00 ms.",
            ]
        );
        for (condition, p99) in [(P99_OF_ROUNDS, [1.0, 5.0]), (PEER_P99_OF_ROUNDS, [2.5, 7.0])] {
            paced.conditions.insert(condition.to_owned(), serde_json::json!(p99));
        }
        let line = judge(&[paced]).pop().unwrap();
        assert!(line.ends_with("missed: 5.00 ms. The rounds: 1.00, 5.00. peer at its own: 2.50, 7.00."), "{line}");
    }
}
