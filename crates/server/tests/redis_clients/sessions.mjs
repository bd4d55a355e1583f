// Express sessions kept by connect-redis, as its README has it. Argument: HOST:PORT.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";

const require = createRequire(process.env.REDIS_CLIENTS_HOME + "/");
const express = require("express");
const session = require("express-session");
const { createClient } = require("redis");
const { RedisStore } = require("connect-redis");

const url = `redis://${process.argv[2]}/0`;

// An application with a client of its own; two of them share the sessions.
async function start() {
  const client = createClient({ url });
  await client.connect();
  const store = new RedisStore({ client, prefix: "shop:", ttl: 100 });
  const app = express();
  app.use(session({ store, secret: "keyboard cat", resave: false, saveUninitialized: false }));
  app.get("/add/:what", (request, response) => {
    request.session.basket = [...(request.session.basket ?? []), request.params.what];
    response.json(request.session.basket);
  });
  app.get("/leave", (request, response) => request.session.destroy(() => response.json("left")));
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { client, store, server, at: `http://127.0.0.1:${server.address().port}` };
}

async function ask(app, path, cookie) {
  const response = await fetch(app.at + path, { headers: cookie ? { cookie } : {} });
  assert.equal(response.status, 200);
  return { body: await response.json(), cookie: response.headers.get("set-cookie")?.split(";")[0] ?? cookie };
}

const [one, two] = [await start(), await start()];
const first = await ask(one, "/add/bolt");
assert.deepEqual(first.body, ["bolt"]);
const second = await ask(two, "/add/nut", first.cookie);
assert.deepEqual(second.body, ["bolt", "nut"]);
assert.deepEqual((await ask(one, "/add/saw")).body, ["saw"]);

const [all, ids, length] = await Promise.all([
  new Promise((resolve, reject) => one.store.all((error, all) => (error ? reject(error) : resolve(all)))),
  new Promise((resolve, reject) => one.store.ids((error, ids) => (error ? reject(error) : resolve(ids)))),
  new Promise((resolve, reject) => one.store.length((error, count) => (error ? reject(error) : resolve(count)))),
]);
assert.deepEqual(all.map((it) => it.basket).sort(), [["bolt", "nut"], ["saw"]]);
assert.equal(ids.length, 2);
assert.equal(length, 2);
const id = all.find((it) => it.basket.length === 2).id;
const left = await one.client.ttl(`shop:${id}`);
assert.ok(left > 0 && left <= 100, `${left}`);

await ask(two, "/leave", first.cookie);
assert.deepEqual((await ask(one, "/add/new", first.cookie)).body, ["new"]);
for (const app of [one, two]) {
  app.server.close();
  app.server.closeAllConnections();
  await app.client.close();
}
console.log("ok connect-redis");
