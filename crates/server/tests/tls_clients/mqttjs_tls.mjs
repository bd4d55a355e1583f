// MQTT.js over TLS: sends one message at QoS 1. Arguments: URL, authority, message, and either user and password or the files
// of a certificate and its key.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [url, ca, message, first, second] = process.argv.slice(2);
const mqtt = createRequire(process.env.MQTTJS_HOME + "/")("mqtt");
const login = first.includes("@")
  ? { username: first, password: second }
  : { cert: readFileSync(first), key: readFileSync(second) };
try {
  const options = { ca: readFileSync(ca), protocolVersion: 5, reconnectPeriod: 0, connectTimeout: 60_000, ...login };
  const client = await mqtt.connectAsync(url, options);
  await client.publishAsync("telemetry", message, { qos: 1 });
  await client.endAsync();
  console.log("ok");
} catch (error) {
  console.log(`refused: ${error.code} ${error.message}`);
  process.exit(1);
}
