//! Devices that log in with tokens that openssl has signed, with keys of RSA and of elliptic curves.

use crate::world::{World, failed, run, succeeded};

/// A key pair in files, by openssl.
fn key(world: &World, name: &str, options: &[&str]) -> String {
    let file = world.file(name);
    succeeded(&run("openssl", &[&["genpkey", "-out", &file, "-outform", "PEM"], options].concat(), ""));
    file
}

/// Base64 of the DER of the public key.
fn public_key(file: &str) -> String {
    let pem = succeeded(&run("openssl", &["pkey", "-in", file, "-pubout"], ""));
    pem.lines().filter(|line| !line.starts_with("-----")).collect()
}

/// A script signs in the form of tokens: that of openssl's curves is another.
const SIGN: &str = r#"
import base64, json, subprocess, sys, time
alg, key, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
b64 = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
now = int(time.time())
claims = {"tid": "acme", "sub": "sensor", "aud": "hono-adapter", "iat": now + first, "exp": now + last}
text = b64(json.dumps({"alg": alg, "typ": "JWT"}).encode()) + "." + b64(json.dumps(claims).encode())
sign = ["openssl", "dgst", "-sha" + alg[2:], "-sign", key]
if alg.startswith("PS"):
    sign += ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"]
signature = subprocess.run(sign, input=text.encode(), capture_output=True, check=True).stdout
if alg.startswith("ES"):
    size, numbers = {"ES256": 32, "ES384": 48}[alg], b""
    at = 2 if signature[1] & 0x80 == 0 else 3
    for _ in range(2):
        length = signature[at + 1]
        numbers += signature[at + 2 : at + 2 + length].lstrip(b"\0").rjust(size, b"\0")
        at += 2 + length
    signature = numbers
print(text + "." + b64(signature))
"#;

fn token(alg: &str, key: &str, first: i64, last: i64) -> String {
    let arguments = ["-c", SIGN, alg, key, &first.to_string(), &last.to_string()];
    succeeded(&run("python3", &arguments, "")).trim().to_owned()
}

#[test]
fn tokens_in_every_algorithm_log_in_over_https_and_mqtts_and_others_are_refused_with_the_reason() {
    let world = World::start(&[]);
    let json = ["-H", "Content-Type: application/json"];
    let registry = |method: &str, path: &str, body: &str| {
        let (url, ca) = (world.url("applications", &format!("/v1/{path}")), world.ca());
        let arguments = ["-sS", "--fail-with-body", "--cacert", &ca, "-X", method, "-d", body, &url];
        succeeded(&run("curl", &[&arguments[..], &json].concat(), ""));
    };
    registry("POST", "tenants/acme", "{}");
    registry("POST", "devices/acme/s-1", "{}");
    let rsa = key(&world, "rsa", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
    let small = key(&world, "p256", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let large = key(&world, "p384", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"]);
    let stranger = key(&world, "stranger", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let keys: Vec<String> = [&rsa, &small, &large].map(|file| format!(r#"{{"key":"{}"}}"#, public_key(file))).to_vec();
    registry(
        "PUT",
        "credentials/acme/s-1",
        &format!(r#"[{{"type":"rpk","auth-id":"sensor","secrets":[{}]}}]"#, keys.join(",")),
    );
    let post = |token: &str| {
        let (url, ca, bearer) =
            (world.url("devices-http", "/telemetry"), world.ca(), format!("Authorization: Bearer {token}"));
        let arguments =
            ["-sS", "-w", " %{http_code}", "--cacert", &ca, "-H", &bearer, "-H", "Content-Type: text/plain"];
        succeeded(&run("curl", &[&arguments[..], &["-d", "by-token", &url]].concat(), ""))
    };
    let publish = |token: &str, version: &str| {
        let (port, ca) = (world.port("devices-mqtt-tls"), world.ca());
        let address = ["--cafile", &ca, "-h", "localhost", "-p", &port, "-V", version, "-u", "ignored", "-P", token];
        run("mosquitto_pub", &[&address[..], &["-q", "1", "-t", "telemetry", "-m", "by-token"]].concat(), "")
    };
    let algorithms = [
        ("RS256", &rsa),
        ("RS384", &rsa),
        ("RS512", &rsa),
        ("PS256", &rsa),
        ("PS384", &rsa),
        ("PS512", &rsa),
        ("ES256", &small),
        ("ES384", &large),
    ];
    for (alg, key) in algorithms {
        let token = token(alg, key, 0, 3_600);
        let answer = post(&token);
        assert!(answer.ends_with(" 202"), "{alg}: {answer}");
        succeeded(&publish(&token, if alg.starts_with('R') { "311" } else { "5" }));
    }
    assert_eq!(world.records("telemetry.acme").matches("by-token").count(), 2 * algorithms.len());
    for (key, first, last, reason, told) in [
        (&small, -7_200, -3_600, "token-expired", "has expired at"),
        (&stranger, 0, 3_600, "token-signature", "not signed by the device"),
        (&small, 0, 90_000, "token-life", "24 hours at most"),
    ] {
        let token = token("ES256", key, first, last);
        let answer = post(&token);
        assert!(answer.contains(told) && answer.ends_with(" 401"), "{reason}: {answer}");
        assert!(!answer.contains(&token), "a token is not repeated");
        for version in ["311", "5"] {
            failed(&publish(&token, version));
        }
        world.logs(&["a device's login is refused", reason]);
    }
}
