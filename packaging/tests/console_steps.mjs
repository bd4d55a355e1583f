// Steps of a person at the console: `register URL DEVICE PASSWORD` and `see URL DEVICE TEXT`, with the token in MILLSTREAM_TOKEN.
// The certificate of a try is signed by an authority that browsers do not know.
import { createRequire } from "node:module";
import process from "node:process";

const { chromium } = createRequire(new URL("../../console/package.json", import.meta.url))("playwright-core");

const steps = {
  async register(page, device, password) {
    await page.getByRole("button", { name: "Create a device" }).first().click();
    const form = page.getByRole("dialog", { name: "Create a device" });
    await form.getByLabel(/^Id/).fill(device);
    await form.getByLabel(/^Password/).fill(password);
    await form.getByRole("button", { name: "Create" }).click();
    await page.getByRole("heading", { name: device, level: 1 }).waitFor();
  },
  async see(page, device, text) {
    await page.getByRole("link", { name: device, exact: true }).click();
    await page.getByText(text).first().waitFor();
  },
};

const [step, url, ...words] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
try {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  await page.goto(`${url}/devices`);
  await page.getByLabel("API token", { exact: true }).fill(process.env.MILLSTREAM_TOKEN);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await steps[step](page, ...words);
} finally {
  await browser.close();
}
