/** A real OpenID Connect provider, that of the server's own tests. */
import { type ChildProcess, spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

const PROGRAM = new URL("../../../crates/server/tests/oidc/oidc_provider.mjs", import.meta.url).pathname;

/** Where `scripts/setup-clients` puts the provider: beside the folder of the binary. */
function installed(): string {
  const binary = process.env.MILLSTREAM_BIN;
  if (binary === undefined) throw new Error("MILLSTREAM_BIN must name the millstream binary to test with");
  return join(dirname(dirname(binary)), "oidc/js");
}

export class TestProvider {
  private constructor(
    private readonly process: ChildProcess,
    readonly issuer: string,
  ) {}

  static async start(): Promise<TestProvider> {
    const env = { ...process.env, OIDC_PROVIDER_HOME: process.env.OIDC_PROVIDER_HOME ?? installed() };
    const child = spawn("node", [PROGRAM], { env, stdio: ["pipe", "pipe", "inherit"] });
    // However this process ends, the provider does not outlive it.
    const kill = (): boolean => child.kill("SIGKILL");
    process.once("exit", kill);
    child.once("exit", () => process.off("exit", kill));
    for await (const line of createInterface({ input: child.stdout })) {
      const [, issuer] = /^issuer (\S+)$/.exec(line) ?? [];
      if (issuer !== undefined) {
        child.stdout.resume();
        return new TestProvider(child, issuer);
      }
    }
    throw new Error("the provider ended before it listened: run scripts/setup-clients");
  }

  stop(): void {
    this.process.kill();
  }

  /** The settings of a server that takes the provider's tokens. */
  settings(): string {
    const settings = {
      issuer: this.issuer,
      audience: "urn:millstream:api",
      client_id: "millstream-console",
      scope: "openid offline_access millstream",
      tenant_claim: "tenant",
      roles_claim: "realm_access.roles",
    };
    return ["[oidc]", ...Object.entries(settings).map(([key, value]) => `${key} = ${JSON.stringify(value)}`), ""].join(
      "\n",
    );
  }
}
