//! Logins and roles with clients that are not ours.

use millstream_testkit::ask;

use crate::broker::Broker;

const SECRET: &str = "correct-horse-battery";

/// A broker that knows a reader, a writer and an admin, and a user of another tenant who may do everything.
fn guarded() -> Option<Broker> {
    let token = |name: &str, tenant: &str, roles: &str| {
        format!(
            "[[applications.tokens]]\nname = \"{name}\"\ntoken = \"{SECRET}-{name}\"\ntenant = \"{tenant}\"\nroles = [{roles}]\n"
        )
    };
    let tokens = [
        token("reader", "default", "\"reader\""),
        token("writer", "default", "\"writer\""),
        token("admin", "default", "\"admin\""),
        token("acme", "acme", "\"reader\", \"writer\", \"admin\""),
    ];
    Broker::configured(&tokens.concat())
}

#[test]
fn librdkafka_logs_in_and_has_the_permissions_of_its_role() {
    let Some(broker) = guarded() else { return };
    broker.script("confluent.py", &["roles", SECRET]);
}

#[test]
fn librdkafka_logs_in_by_scram_with_the_secret_of_a_configured_and_of_a_made_token() {
    let Some(broker) = guarded() else { return };
    let process = broker.process().unwrap();
    let bearer = format!("Bearer {SECRET}-admin");
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
    let body = br#"{"name": "made,=", "roles": ["reader", "writer"]}"#;
    assert_eq!(ask(process.applications, "POST", "/api/tokens", &headers, body).status, 400);
    let body = br#"{"name": "made", "roles": ["reader", "writer"], "topics": ["scram-"]}"#;
    let made = ask(process.applications, "POST", "/api/tokens", &headers, body);
    let secret = made.json()["token"].as_str().unwrap().to_owned();
    let topic = |name: &str| ask(process.applications, "PUT", &format!("/api/streams/{name}"), &headers, b"{}");
    assert_eq!((topic("scram-in").status, topic("scram-out").status, topic("other").status), (201, 201, 201));
    // Refused, kcat tries again until its time is up.
    let kcat_for = |seconds: &str, mechanism: &str, user: &str, password: &str, more: &[&str]| {
        let (mechanism, user) = (format!("sasl.mechanism={mechanism}"), format!("sasl.username={user}"));
        let password = format!("sasl.password={password}");
        let login = ["-X", "security.protocol=sasl_plaintext", "-X", &mechanism, "-X", &user, "-X", &password];
        let input = if more.contains(&"-P") { "a bolt\n" } else { "" };
        broker.try_kcat(&[&login[..], &["-m", seconds], more].concat(), input)
    };
    let kcat =
        |mechanism: &str, user: &str, password: &str, more: &[&str]| kcat_for("10", mechanism, user, password, more);
    let refused = |mechanism: &str, user: &str, password: &str| {
        let told = kcat_for("2", mechanism, user, password, &["-L", "-v"]).unwrap_err();
        assert!(told.contains("no API token has this name and this secret"), "{user}: {told}");
    };
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        kcat(mechanism, "made", &secret, &["-P", "-t", "scram-in", "-p", "0"]).unwrap();
        let writer = format!("{SECRET}-writer");
        kcat(mechanism, "writer", &writer, &["-P", "-t", "scram-out", "-p", "0"]).unwrap();
        refused(mechanism, "made", "mst_wrong-0123456789");
        refused(mechanism, "nobody", &secret);
        // The token is limited to topics that begin with scram-.
        let told = kcat(mechanism, "made", &secret, &["-L", "-t", "other"]).unwrap();
        assert!(told.contains("Topic authorization failed"), "{told}");
    }
    let read = kcat("SCRAM-SHA-512", "made", &secret, &["-C", "-t", "scram-in", "-p", "0", "-o", "beginning", "-e"]);
    assert_eq!(read.unwrap(), "a bolt\na bolt\n");
    assert_eq!(ask(process.applications, "DELETE", "/api/tokens/made", &headers[..1], b"").status, 204);
    refused("SCRAM-SHA-256", "made", &secret);
}

#[test]
fn kafka_python_logs_in_and_has_the_permissions_of_its_role() {
    let Some(broker) = guarded() else { return };
    broker.script("pure_python.py", &["roles", SECRET]);
}

/// Writes with Java's producer until it has logged in twice more over its connection.
const REAUTHENTICATES: &str = r#"
import java.util.Map;
import org.apache.kafka.clients.producer.*;

class Reauthenticates {
    static double metric(Producer<String, String> producer, String name) {
        double sum = 0;
        for (var metric : producer.metrics().values())
            if (metric.metricName().name().equals(name)) sum += (Double) metric.metricValue();
        return sum;
    }

    public static void main(String[] args) throws Exception {
        String module = "org.apache.kafka.common.security.scram.ScramLoginModule";
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", "@ADDRESS@",
            "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", "SCRAM-SHA-256",
            "sasl.jaas.config", module + " required username=\"writer\" password=\"@SECRET@\";",
            "retries", 0,
            "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (var producer = new KafkaProducer<String, String>(settings)) {
            while (metric(producer, "successful-reauthentication-total") < 2)
                producer.send(new ProducerRecord<>("renewed", "still here")).get();
            System.out.println("failed " + (long) metric(producer, "failed-reauthentication-total"));
        }
    }
}
"#;

#[test]
#[ignore = "takes long"]
fn javas_producer_logs_in_again_over_its_connection_before_its_login_has_lasted_for_its_time() {
    let token = |name: &str, roles: &str| {
        format!("[[applications.tokens]]\nname = \"{name}\"\ntoken = \"{SECRET}-{name}\"\nroles = [{roles}]\n")
    };
    let settings = format!(
        "[kafka]\nconnections_max_reauth_ms = 3000\n{}{}",
        token("writer", "\"writer\""),
        token("admin", "\"admin\"")
    );
    let Some(broker) = Broker::configured(&settings) else { return };
    let bearer = format!("Bearer {SECRET}-admin");
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
    let process = broker.process().unwrap();
    assert_eq!(ask(process.applications, "PUT", "/api/streams/renewed", &headers, b"{}").status, 201);
    let program =
        REAUTHENTICATES.replace("@ADDRESS@", &broker.address).replace("@SECRET@", &format!("{SECRET}-writer"));
    let said = broker.java_source("Reauthenticates.java", &program);
    assert!(said.trim_end().ends_with("failed 0"), "{said}");
}

#[test]
#[ignore = "takes long"]
fn javas_topic_command_logs_in_and_has_the_permissions_of_its_role() {
    let Some(broker) = guarded() else { return };
    let dir = tempfile::tempdir().unwrap();
    let settings_by = |mechanism: &str, user: &str, secret: &str| {
        let file = dir.path().join(format!("{user}-{mechanism}.properties"));
        let module = match mechanism {
            "PLAIN" => "org.apache.kafka.common.security.plain.PlainLoginModule",
            _ => "org.apache.kafka.common.security.scram.ScramLoginModule",
        };
        let login = format!("{module} required username=\"{user}\" password=\"{secret}\";");
        let text = format!(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\nretries=0\n"
        );
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let settings = |user: &str, secret: &str| settings_by("PLAIN", user, secret);
    let (admin, reader) =
        (settings("admin", &format!("{SECRET}-admin")), settings("reader", &format!("{SECRET}-reader")));
    let wrong = settings("wrong", SECRET);
    let create = |settings: &str| {
        ["--bootstrap-server", &broker.address, "--command-config", settings, "--create", "--topic", "guarded"]
            .map(str::to_owned)
    };
    let run = |settings: &str| broker.try_java("TopicCommand", &create(settings).each_ref().map(String::as_str));
    assert!(run(&reader).unwrap_err().contains("TopicAuthorizationException"));
    assert!(run(&wrong).unwrap_err().contains("SaslAuthenticationException"));
    run(&admin).unwrap();
    let list = ["--bootstrap-server", &*broker.address, "--command-config", &*reader, "--list"];
    let listed = broker.java("TopicCommand", &list, "");
    assert!(listed.lines().any(|topic| topic == "guarded"), "{listed}");
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let scram = settings_by(mechanism, "reader", &format!("{SECRET}-reader"));
        let list = ["--bootstrap-server", &*broker.address, "--command-config", &*scram, "--list"];
        assert_eq!(broker.java("TopicCommand", &list, ""), listed, "{mechanism}");
        let wrong = settings_by(mechanism, "admin", SECRET);
        assert!(run(&wrong).unwrap_err().contains("SaslAuthenticationException"), "{mechanism}");
    }
}
