// Opens the pages in Chromium and checks them; tests/browser/run starts what they show.
import { readFileSync, mkdirSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MODULES}/`);
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const origin = process.env.PAGES_URL.replace(/\/$/, "");
const key = readFileSync(process.env.PAGES_KEY_FILE, "utf8").trim();
const aclToken = readFileSync(process.env.ACL_TOKEN_FILE, "utf8").trim();
const screenshots = process.env.SCREENSHOTS;

let passed = 0;
const failures = [];
const check = (name, ok, detail = "") => {
  if (ok) passed += 1;
  else failures.push(`${name}: ${detail}`);
};

/** Opens a tab that reports what a page must not do. */
const open = async (browser, { script, width, dark }) => {
  const page = await browser.newPage();
  await page.setJavaScriptEnabled(script);
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
  page.problems = [];
  page.on("console", (message) => {
    if (/Content Security Policy|Refused to/i.test(message.text())) page.problems.push(message.text());
  });
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(`${origin}/`) && !request.url().startsWith("data:")) page.problems.push(`asks ${request.url()}`);
  });
  return page;
};

const signIn = async (page, path, secret) => {
  await page.goto(origin + path);
  await page.type("#secret", secret);
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
};

/** Checks one page in one tab. */
const look = async (page, name, path) => {
  const response = await page.goto(origin + path, { waitUntil: "load" });
  check(`${name} is served`, response.status() === 200, `${response.status()} at ${page.url()}`);
  check(`${name} has a heading`, (await page.$$eval("h1", (all) => all.length)) === 1);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(`${name} fits the screen`, wide <= 0, `${wide} pixels too wide`);
  check(`${name} keeps its policy and its origin`, page.problems.length === 0, page.problems.join(", "));
  if (!page.isJavaScriptEnabled()) return;
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"] }));
  const texts = found.violations.map((it) => `${it.id} (${it.nodes.map((node) => node.html.slice(0, 120)).join("; ")})`);
  check(`${name} has no finding of axe-core`, texts.length === 0, texts.join(", "));
};

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});
try {
  const first = await open(browser, { script: true, width: 1200, dark: false });
  await look(first, "sign-in", "/sign-in");
  await signIn(first, "/sign-in?next=%2Fagent", key);
  check("the key opens the page of the agent", first.url() === `${origin}/agent`, first.url());
  await signIn(first, "/acl/sign-in?next=%2Facl%2Ftokens", aclToken);
  check("an ACL token opens the page of tokens", first.url() === `${origin}/acl/tokens`, first.url());
  const visible = await first.evaluate(() => document.cookie);
  check("no script reads the cookie", visible === "", visible);
  const links = async (path) => {
    await first.goto(origin + path);
    const found = await first.$$eval("td a", (all) => all.map((link) => new URL(link.href).pathname + new URL(link.href).search));
    if (found.length === 0) throw new Error(`no link at ${first.url()}: ${await first.$eval("main", (it) => it.textContent)}`);
    return found;
  };
  const token = (await links("/acl/tokens?q=browser+tests"))[0];
  const policy = (await links("/acl/policies?q=app-read"))[0];
  const explain = `${token.split("?")[0]}/explain?resource=key&segment=app%2Fx`;
  const paths = {
    agent: "/agent", gateway: "/gateway", history: "/history", "history-search": "/history?text=token",
    tokens: "/acl/tokens", token, explain, policies: "/acl/policies", policy, roles: "/acl/roles",
    namespaces: "/acl/namespaces", "auth-methods": "/acl/auth-methods", "binding-rules": "/acl/binding-rules",
  };
  for (const script of [true, false]) {
    for (const [width, dark] of [[1200, false], [360, true]]) {
      const tab = await open(browser, { script, width, dark });
      for (const [name, path] of Object.entries(paths)) {
        await look(tab, `${name} (${width} pixels${script ? "" : ", no script"}${dark ? ", dark" : ""})`, path);
        if (screenshots && script && ["agent", "explain", "history"].includes(name)) {
          mkdirSync(screenshots, { recursive: true });
          await tab.screenshot({ path: `${screenshots}/${name}${width < 500 ? "-phone" : ""}.png` });
        }
      }
      await tab.close();
    }
  }
  // The page refreshes itself.
  await first.goto(`${origin}/agent`);
  const refreshed = await first.waitForResponse((it) => it.url() === `${origin}/agent/live`, { timeout: 15000 });
  check("the page of the agent refreshes itself", refreshed.status() === 200, refreshed.status());

  // Keyboard alone: the first stop leads to the content.
  await first.keyboard.press("Tab");
  const focus = await first.evaluate(() => document.activeElement.textContent);
  check("the first stop of the keyboard skips the navigation", focus === "Skip to the content", focus);

  // A page of another origin, in the browser that has signed in.
  const foreign = createServer((request, response) => {
    response.setHeader("content-type", "text/html");
    response.end(`<title>elsewhere</title><form id=f method=post action="${origin}/sign-out"></form>`);
  });
  await new Promise((done) => foreign.listen(0, "127.0.0.1", done));
  const elsewhere = await browser.newPage();
  await elsewhere.goto(`http://127.0.0.1:${foreign.address().port}/`);
  const read = await elsewhere.evaluate((url) => fetch(url, { credentials: "include" }).then((it) => it.text(), () => "refused"), `${origin}/agent`);
  check("another origin reads no page", read === "refused", read);
  const [posted] = await Promise.all([elsewhere.waitForNavigation(), elsewhere.evaluate(() => document.getElementById("f").submit())]);
  check("a form of another origin is refused", posted.status() === 403, posted.status());
  const still = await first.goto(`${origin}/agent`);
  check("it changed nothing", still.url() === `${origin}/agent`, still.url());
  foreign.close();
  foreign.closeAllConnections();
} catch (error) {
  failures.push(String(error.stack));
} finally {
  await browser.close();
}
for (const failure of failures) console.log(`browser: ${failure}`);
console.log(`${passed} passed, ${failures.length} failed`);
process.exitCode = failures.length === 0 ? 0 : 1;
