// Chromium opens the console and waits until it says that the server is live. Arguments: the console's directory, a home
// directory whose data base of certificates the browser reads, URL.
import { createRequire } from "node:module";

const [home, url] = process.argv.slice(3);
const { chromium } = createRequire(process.argv[2] + "/package.json")("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  env: { ...process.env, HOME: home, XDG_DATA_HOME: "" },
});
let status = 1;
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  const answer = await page.goto(url);
  await page.getByRole("status", { name: "Server: Live" }).waitFor();
  const { protocol, subjectName } = await answer.securityDetails();
  console.log(`live over ${protocol} at ${subjectName}`);
  status = 0;
} catch (error) {
  console.log(`refused: ${error.message}`);
}
await browser.close();
process.exit(status);
