// rhea: HOST PORT NAME SECRET.
import { createRequire } from "node:module";

const rhea = createRequire(process.env.RHEA_HOME + "/")("rhea");
const [host, port, username, password] = process.argv.slice(2);
const REPLY = "command_response/default/tour";
const connection = rhea.connect({ host, port: Number(port), username, password, reconnect: false });
let open = 0;
let left = 2;
// The outcome and the response come in any order.
const seen = () => {
  left -= 1;
  if (left === 0) connection.close();
};
const opened = () => {
  open += 1;
  if (open === 4) console.log("ready");
};

for (const address of ["telemetry/default", "event/default", REPLY]) connection.open_receiver(address);
connection.on("receiver_open", opened);
connection.on("sender_open", opened);
const sender = connection.open_sender({ target: {} });

connection.on("message", ({ message, receiver }) => {
  const kind = receiver.source.address.split("/")[0];
  const { device_id: device, status } = message.application_properties;
  const body = message.body.content.toString();
  if (kind === "command_response") {
    console.log(`${kind} ${device} ${body} ${status} ${message.correlation_id}`);
    seen();
    return;
  }
  console.log(`${kind} ${device} ${body}`);
  if (kind === "telemetry" && body === "go") {
    sender.send({
      to: "command/default/d",
      subject: "on",
      correlation_id: "c-1",
      reply_to: REPLY,
      body: rhea.message.data_section(Buffer.from("input")),
    });
  }
});
connection.on("accepted", () => {
  console.log("outcome accepted");
  seen();
});
connection.on("released", () => console.log("outcome released"));
connection.on("rejected", ({ delivery }) => console.log(`outcome rejected ${delivery.remote_state.error}`));
connection.on("connection_error", ({ connection }) => console.log(String(connection.error)));
