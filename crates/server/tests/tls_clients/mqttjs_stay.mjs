// MQTT.js over TLS until its input ends: a connection that stays, and new ones all the time. Arguments: URL, authority. Says
// `kept` or `new` for each confirmed message, `lost` or `failed` with the reason, and `ended`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [url, ca] = process.argv.slice(2);
const mqtt = createRequire(process.env.MQTTJS_HOME + "/")("mqtt");
const options = { ca: readFileSync(ca), protocolVersion: 5, reconnectPeriod: 0, connectTimeout: 60_000 };
const connect = () => mqtt.connectAsync(url, { ...options, username: "thermometer@default", password: "pw" });
const send = (client, message) => client.publishAsync("telemetry", message, { qos: 1 });
let stopped = false;
process.stdin.on("end", () => (stopped = true)).resume();

async function stay() {
  const client = await connect();
  client.on("close", () => stopped || console.log("lost"));
  while (!stopped) {
    await send(client, "of a connection that stays");
    console.log("kept");
    await new Promise((done) => setTimeout(done, 10));
  }
  await client.endAsync();
}

async function comeAndGo() {
  while (!stopped) {
    const client = await connect();
    await send(client, "of a new connection");
    await client.endAsync();
    console.log("new");
  }
}

const failed = (error) => console.log("failed", error.message);
await Promise.all([stay().catch(failed), comeAndGo().catch(failed)]);
console.log("ended");
