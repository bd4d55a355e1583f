// MQTT.js: talks to itself in the private space at all three qualities. Arguments: URL, version (4 or 5), count.
import { createRequire } from "node:module";

const [url, version, count] = process.argv.slice(2);
const mqtt = createRequire(process.env.MQTTJS_HOME + "/")("mqtt");
const options = { protocolVersion: Number(version), username: "gateway@default", password: "pw" };
const reader = await mqtt.connectAsync(url, { ...options, clientId: `js-reader-${version}` });
const writer = await mqtt.connectAsync(url, { ...options, clientId: `js-writer-${version}` });
const got = [];
let arrived;
reader.on("message", (topic, payload, packet) => {
  got.push(`${topic} ${payload} ${packet.qos}`);
  arrived?.();
});
await reader.subscribeAsync("js/#", { qos: 2 });
for (const qos of [0, 1, 2]) {
  got.length = 0;
  const expected = [];
  const sent = [];
  for (let at = 0; at < Number(count); at += 1) {
    expected.push(`js/${at % 5} ${at} ${qos}`);
    sent.push(writer.publishAsync(`js/${at % 5}`, String(at), { qos }));
  }
  await Promise.all(sent);
  while (got.length < expected.length) await new Promise((resolve) => { arrived = resolve; });
  if (got.join() !== expected.join()) throw new Error(`quality ${qos}: ${got.slice(0, 5)}`);
}
await reader.endAsync();
await writer.endAsync();
console.log("ok mqttjs");
