// ioredis as a user would write it: commands, pipeline, transaction, publish and subscribe. Argument: HOST:PORT.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";

const { Redis } = createRequire(process.env.REDIS_CLIENTS_HOME + "/")("ioredis");
const url = `redis://${process.argv[2]}/0`;
const client = new Redis(url, { connectionName: "smoke" });

assert.equal(await client.set("js:key", "value"), "OK");
assert.equal(await client.get("js:key"), "value");
assert.equal(await client.get("js:missing"), null);
assert.equal(await client.set("js:key", "other", "NX"), null);
assert.equal(await client.set("js:key", "new", "EX", 100, "GET"), "value");
assert.ok((await client.ttl("js:key")) > 90);
assert.deepEqual(await client.mget("js:key", "js:missing"), ["new", null]);
assert.equal(await client.incrby("js:count", 42), 42);
await assert.rejects(client.incr("js:key"), /^ReplyError: ERR value is not an integer or out of range$/);
assert.deepEqual(await client.getBuffer("js:key"), Buffer.from("new"));
await client.set("js:gone", "soon", "PX", 20);
while ((await client.exists("js:gone")) === 1);

const pipeline = client.pipeline();
for (let at = 0; at < 1000; at += 1) pipeline.set(`js:p${at}`, at).get(`js:p${at}`);
const answers = await pipeline.exec();
assert.equal(answers.length, 2000);
answers.forEach(([error, answer], at) => assert.deepEqual([error, answer], [null, at % 2 ? String((at - 1) / 2) : "OK"]));

const found = new Set();
for await (const keys of client.scanStream({ match: "js:p*", count: 100 })) keys.forEach((key) => found.add(key));
assert.equal(found.size, 1000);

const done = await client.multi().set("js:x", 1).incr("js:x").incr("js:key").exec();
assert.deepEqual(done.slice(0, 2), [[null, "OK"], [null, 2]]);
assert.match(done[2][0].message, /not an integer/);
await client.watch("js:x");
const other = client.duplicate();
await other.set("js:x", 10);
assert.equal(await client.multi().incr("js:x").exec(), null);
await assert.rejects(client.multi().set("js:x").exec(), /EXECABORT/);

const subscriber = client.duplicate();
assert.equal(await subscriber.subscribe("js:news"), 1);
assert.equal(await subscriber.psubscribe("js:*"), 2);
const heard = Promise.all([once(subscriber, "message"), once(subscriber, "pmessage")]);
assert.equal(await client.publish("js:news", "hello"), 2);
assert.deepEqual(await heard, [["js:news", "hello"], ["js:*", "js:news", "hello"]]);

await Promise.all([client, other, subscriber].map((it) => it.quit()));
console.log("ok ioredis");
