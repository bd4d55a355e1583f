// Two Socket.IO servers that reach each other's clients by @socket.io/redis-adapter, as its README has it.
// Argument: HOST:PORT.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(process.env.REDIS_CLIENTS_HOME + "/");
const { createClient } = require("redis");
const { createAdapter } = require("@socket.io/redis-adapter");
const { Server } = require("socket.io");
const { io } = require("socket.io-client");

const url = `redis://${process.argv[2]}/0`;

async function start() {
  const publisher = createClient({ url });
  const subscriber = publisher.duplicate();
  await Promise.all([publisher.connect(), subscriber.connect()]);
  const http = createServer();
  const server = new Server(http, { adapter: createAdapter(publisher, subscriber) });
  server.on("connection", (socket) => {
    socket.on("join", async (room, joined) => joined(await socket.join(room)));
    socket.on("say", (room, text) => server.to(room).emit("said", text));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return { server, publisher, subscriber, at: `http://127.0.0.1:${http.address().port}` };
}

async function connect(app) {
  const socket = io(app.at, { transports: ["websocket"] });
  await once(socket, "connect");
  return socket;
}

const [one, two] = [await start(), await start()];
const [anna, bert, carl] = [await connect(one), await connect(two), await connect(two)];
await Promise.all([anna, bert].map((socket) => socket.emitWithAck("join", "room")));
// Each server has to hear of the other before it can ask it; it asks over the same channels.
while ((await one.server.of("/").adapter.serverCount()) < 2);
while ((await two.server.of("/").adapter.serverCount()) < 2);

const heard = Promise.all([anna, bert].map((socket) => once(socket, "said")));
carl.on("said", () => assert.fail("carl is not in the room"));
carl.emit("say", "room", "hello");
assert.deepEqual(await heard, [["hello"], ["hello"]]);

const sockets = await one.server.in("room").fetchSockets();
assert.deepEqual(sockets.map((socket) => socket.id).sort(), [anna.id, bert.id].sort());
one.server.in(carl.id).socketsJoin("room");
while ((await two.server.in("room").fetchSockets()).length < 3);
two.server.on("question", (question, answer) => answer(`${question} yes`));
assert.deepEqual(await one.server.serverSideEmitWithAck("question", "well?"), ["well? yes"]);
one.server.disconnectSockets(true);
await Promise.all([bert, carl].filter((it) => it.connected).map((it) => once(it, "disconnect")));

for (const app of [one, two]) {
  await app.server.close();
  await app.subscriber.close();
  await app.publisher.close();
}
console.log("ok socket.io");
process.exit(0);
