/** Whether this tab may ask the server, and as whom: found out at the start, after a login, and when the server refuses one. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { credentials } from "../api/credential";
import { fetchLogin, isLoginRefused, type Login } from "../api/login";
import { finishLogin, isCallback } from "../api/oidc";
import { go } from "../route";

export type LoginState =
  | { kind: "asking" }
  /** The server does not answer; it is asked again. */
  | { kind: "failed"; reason: string }
  /** Somebody must log in. `reason`: why the login that was there is no more, or why one has failed. */
  | { kind: "needed"; login: Login; reason: string | null }
  | { kind: "in"; login: Login };

const AGAIN_MS = 1_000;

export interface LoginControl {
  state: LoginState;
  logOut: () => void;
}

export function useLogin(): LoginControl {
  const [state, setState] = useState<LoginState>({ kind: "asking" });
  /** Why the login that was there is no more: kept until there is another one, however often the server is asked till then. */
  const lost = useRef<string | null>(null);
  /** Questions are numbered: one that is older than the last that was answered tells of a login that is no more. */
  const asked = useRef(0);
  const answered = useRef(0);
  const find = useCallback(async (reason: string | null): Promise<void> => {
    asked.current += 1;
    const question = asked.current;
    lost.current = reason ?? lost.current;
    const now = await found(lost.current);
    if (question < answered.current) return;
    answered.current = question;
    if (now.kind === "needed") lost.current = now.reason ?? lost.current;
    if (now.kind === "in") lost.current = null;
    setState(now.kind === "needed" ? { ...now, reason: lost.current } : now);
  }, []);

  useEffect(() => {
    void returned().then(find);
    return credentials.listen((event) => {
      void find(event.kind === "lost" ? event.reason : null);
    });
  }, [find]);

  useEffect(() => {
    if (state.kind !== "failed") return;
    const timer = window.setTimeout(() => void find(null), AGAIN_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [state, find]);

  const logOut = useCallback((): void => {
    credentials.forget();
    lost.current = null;
    // At once: nothing of the page asks without a login.
    setState((before) => {
      if (before.kind !== "in" || !before.login.required) return before;
      return { kind: "needed", login: { ...before.login, caller: null }, reason: null };
    });
    void find(null);
  }, [find]);
  return { state, logOut };
}

/** Ends a login that a provider has sent back. Returns the reason if it has failed. */
async function returned(): Promise<string | null> {
  const address = new URL(location.href);
  if (!isCallback(address)) return null;
  try {
    const { grant, back } = await finishLogin(address, sessionStorage);
    credentials.keep({ kind: "oidc", grant });
    go(back, "amend");
    return null;
  } catch (cause) {
    // The code in the address is used up.
    go(address.pathname, "amend");
    return cause instanceof Error ? cause.message : String(cause);
  }
}

/** Asks with the login that is kept; one that is refused is forgotten. */
async function found(reason: string | null): Promise<LoginState> {
  try {
    const login = await fetchLogin(await credentials.bearer());
    return login.required && login.caller === null ? { kind: "needed", login, reason } : { kind: "in", login };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    if (!isLoginRefused(cause) || credentials.get() === null) return { kind: "failed", reason: why };
    credentials.forget();
    return found(why);
  }
}
