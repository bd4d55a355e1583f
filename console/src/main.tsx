import { render } from "preact";
import { App } from "./app";
import { showStoredTheme } from "./theme";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/query.css";
import "./styles/jobs.css";
import "./styles/store.css";
import "./styles/records.css";
import "./styles/devices.css";
import "./styles/forms.css";
import "./styles/access.css";
import "./styles/pages.css";

showStoredTheme();
// Its address is as seen from the page that was opened, and the console moves on to pages of another depth.
const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
icon?.setAttribute("href", icon.href);
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
