/**
 * Where the console is served: at the root of an address, or below a prefix that a reverse proxy takes away.
 *
 * The browser knows it from the address of this script, `PREFIX/assets/…`, so that the server needs no setting. The pages of
 * development and the tests are at the root.
 */

/** What stands before every path: empty at the root, else such as `/millstream`. */
export const BASE = import.meta.env.DEV ? "" : new URL("..", import.meta.url).pathname.replace(/\/$/, "");
