// MQTT.js: sends messages at both qualities. Arguments: HOST:PORT, version (4 or 5), count.
import { createRequire } from "node:module";

const [address, version, count] = process.argv.slice(2);
const mqtt = createRequire(process.env.MQTTJS_HOME + "/")("mqtt");
const client = await mqtt.connectAsync(`mqtt://${address}`, {
  protocolVersion: Number(version),
  username: "gateway@default",
  password: "pw",
  clientId: "mqttjs",
});
const sent = [];
for (let at = 0; at < Number(count); at += 1) {
  sent.push(client.publishAsync("telemetry", `mqttjs-${version}-${at}`, { qos: 1 }));
}
await Promise.all(sent);
await client.endAsync();
console.log("ok mqttjs");
