/** What one sees before one may see anything: a field for a token, and the way to the provider if there is one. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { credentials } from "../api/credential";
import { fetchLogin, type Login } from "../api/login";
import { beginLogin, CALLBACK_PATH, hostOf, type Provider } from "../api/oidc";
import { BASE } from "../base";
import { Command } from "../parts/command";
import { Notice, sentence } from "../parts/notice";
import { ThemePicker } from "../parts/theme-picker";
import { PAGES } from "../route";

type Work = { kind: "none" } | { kind: "asking" } | { kind: "failed"; reason: string };

export function LoginPage({ login, reason }: { login: Login; reason: string | null }): ComponentChildren {
  const [work, setWork] = useState<Work>(reason === null ? { kind: "none" } : { kind: "failed", reason });
  useEffect(() => {
    document.title = "Log in · Millstream";
  }, []);
  const attempt = async (act: () => Promise<void>): Promise<void> => {
    setWork({ kind: "asking" });
    try {
      await act();
    } catch (cause) {
      setWork({ kind: "failed", reason: cause instanceof Error ? cause.message : String(cause) });
    }
  };
  return (
    <>
      <header class="bar login-bar">
        <span class="brand">
          <img src={`${BASE}/icon.svg`} alt="" width="24" height="24" />
          <span>Millstream</span>
        </span>
        <div class="bar-end">
          <ThemePicker />
        </div>
      </header>
      <main id="main" class="login" tabIndex={-1}>
        <div class="login-card card">
          <h1>Log in</h1>
          <p class="quiet">{location.host} asks everybody for a login.</p>
          {work.kind === "failed" && (
            <Notice tone="error" title="You are not logged in">
              {sentence(work.reason)}
            </Notice>
          )}
          {login.oidc !== null && (
            <ProviderButton provider={login.oidc} isBusy={work.kind === "asking"} attempt={attempt} />
          )}
          <TokenForm isBusy={work.kind === "asking"} isFirst={login.oidc === null} attempt={attempt} />
          <NoToken />
        </div>
      </main>
    </>
  );
}

type Attempt = (act: () => Promise<void>) => Promise<void>;

function ProviderButton(props: { provider: Provider; isBusy: boolean; attempt: Attempt }): ComponentChildren {
  const { provider, isBusy, attempt } = props;
  const leave = async (): Promise<void> => {
    const back = location.pathname === CALLBACK_PATH ? PAGES.overview : location.href;
    // The server may have reached the provider since this page opened.
    const now = (await fetchLogin(null)).oidc ?? provider;
    location.assign(await beginLogin(now, location.origin, back, sessionStorage));
  };
  return (
    <>
      <button
        type="button"
        class="primary login-provider"
        aria-disabled={isBusy}
        onClick={() => {
          if (!isBusy) void attempt(leave);
        }}
      >
        Log in with {hostOf(provider)}
      </button>
      <p class="login-or quiet">or with an API token</p>
    </>
  );
}

function TokenForm(props: { isBusy: boolean; isFirst: boolean; attempt: Attempt }): ComponentChildren {
  const { isBusy, isFirst, attempt } = props;
  const [isShown, setIsShown] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (isFirst) field.current?.focus();
  }, [isFirst]);
  return (
    <form
      class="login-form"
      onSubmit={(event) => {
        event.preventDefault();
        const secret = (field.current?.value ?? "").trim();
        if (!isBusy) void attempt(() => logInWith(secret));
      }}
    >
      <label for="login-token">API token</label>
      <div class="login-secret">
        <input
          id="login-token"
          ref={field}
          {...(isShown ? { type: "text" as const } : { type: "password" as const })}
          required
          autocomplete="current-password"
          autocapitalize="off"
          spellcheck={false}
        />
        <button
          type="button"
          aria-label={isShown ? "Hide the token" : "Show the token"}
          onClick={() => {
            setIsShown(!isShown);
          }}
        >
          {isShown ? "Hide" : "Show"}
        </button>
      </div>
      <button type="submit" class={isFirst ? "primary" : ""} aria-disabled={isBusy}>
        {isBusy ? "Asking…" : "Log in"}
      </button>
      <p class="quiet">It is kept until you log out or close this tab.</p>
    </form>
  );
}

/** Keeps the token if the server takes it. */
async function logInWith(secret: string): Promise<void> {
  if (!/^[\x21-\x7e]+$/.test(secret)) {
    throw new Error("a token has no spaces and only letters, digits and signs; copy it as it was printed");
  }
  await fetchLogin(secret);
  credentials.keep({ kind: "token", secret });
}

function NoToken(): ComponentChildren {
  return (
    <details class="login-help">
      <summary>No token yet?</summary>
      <p class="quiet">
        The operator of this server makes one with the token of an admin, and gives you what the command prints:
      </p>
      <Command
        label="Create a token"
        text={`export MILLSTREAM_TOKEN=...\nmillstream token create NAME \\\n  --role reader \\\n  --server ${location.origin}${BASE}`}
      />
      <p class="quiet">
        Add <code>--role writer</code> and <code>--role admin</code> for what you may change. Tokens of the
        configuration file work, too.
      </p>
    </details>
  );
}
