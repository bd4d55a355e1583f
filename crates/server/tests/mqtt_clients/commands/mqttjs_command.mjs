// MQTT.js: takes one command and answers it. Arguments: URL, version (4 or 5), user, filter.
import { createRequire } from "node:module";

const [url, version, user, filter] = process.argv.slice(2);
const mqtt = createRequire(process.env.MQTTJS_HOME + "/")("mqtt");
const client = await mqtt.connectAsync(url, {
  protocolVersion: Number(version),
  username: `${user}@default`,
  password: "pw",
  clientId: `mqttjs-${user}`,
});
const command = new Promise((resolve) => client.on("message", (topic, payload) => resolve([topic, payload])));
await client.subscribeAsync(filter, { qos: 1 });
const [topic, payload] = await command;
const [word, tenant, device, request, id] = topic.split("/");
const response = { q: "s", req: "res" }[request];
await client.publishAsync(
  `${word}/${tenant}/${device}/${response}/${id}/200/?content-type=text%2Fplain`,
  `did ${payload}`,
  { qos: 1 },
);
await client.endAsync();
console.log("ok mqttjs");
