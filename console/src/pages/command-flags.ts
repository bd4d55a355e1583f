/** The flags that send a command to the server and the tenant of the page. */
import { BASE } from "../base";

/** The server of commands without a flag. */
const SERVER_DEFAULT = "http://127.0.0.1:8000";

export function commandFlags(tenant: string): string {
  const { origin, host } = location;
  const isDefault = BASE === "" && (origin === SERVER_DEFAULT || host === "localhost:8000");
  const server = isDefault ? "" : ` --server ${origin}${BASE}`;
  return `${server}${tenant === "" ? "" : ` --tenant ${tenant}`}`;
}
