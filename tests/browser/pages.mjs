// Opens the pages of a running `keyward dev` in Chromium and checks them; tests/browser/run starts it.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createServer, get } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MODULES}/`);
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const { DEV_DIR: dir, KEYWARD: keyward, SCREENSHOTS: screenshots, ALL_SCREENSHOTS: allScreenshots } = process.env;
const dev = JSON.parse(readFileSync(`${dir}/dev.json`, "utf8"));
const origin = `http://${dev.pages}`;
const key = readFileSync(dev.pages_key, "utf8").trim();
const aclToken = readFileSync(dev.acl_token, "utf8").trim();
for (const folder of [screenshots, allScreenshots]) if (folder) mkdirSync(folder, { recursive: true });

const WIDE = 1280;
const PHONE = 390;

let passed = 0;
const failures = [];
const check = (name, ok, detail = "") => {
  if (ok) passed += 1;
  else failures.push(`${name}: ${detail}`);
};

/** Opens a tab that reports what a page must not do. */
const open = async (browser, { script = true, width = WIDE, dark = false, height = 900, scale = 1 }) => {
  const page = await browser.newPage();
  await page.setJavaScriptEnabled(script);
  await page.setViewport({ width, height, deviceScaleFactor: scale });
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
  const badges = await page.$$eval(".badge", (all) => all.filter((it) => it.getClientRects().length > 1 || it.offsetHeight > 30).map((it) => it.textContent));
  check(`${name} has badges of one line`, badges.length === 0, badges.join(", "));
  const backtick = await page.$eval("main", (main) => main.innerText.includes("`"));
  check(`${name} shows no backtick`, !backtick);
  const beside = await page.$$eval("main *", (all) => all.filter((it) => it.checkVisibility() && it.getBoundingClientRect().right > window.innerWidth + 1 && !it.closest("pre, svg, .tabs")).map((it) => it.outerHTML.slice(0, 80)));
  check(`${name} has nothing beside the screen`, beside.length === 0, beside.slice(0, 2).join("; "));
  const distorted = await page.$$eval(".timeline circle", (all) => all.map((it) => it.getBoundingClientRect()).filter((it) => Math.abs(it.width - it.height) > 0.5).length);
  check(`${name} has round dots`, distorted === 0, `${distorted} are not`);
  if (!page.isJavaScriptEnabled()) return;
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] }));
  const texts = found.violations.map((it) => `${it.id} (${it.nodes.map((node) => node.html.slice(0, 120)).join("; ")})`);
  check(`${name} has no finding of axe-core`, texts.length === 0, texts.join(", "));
};

/** Looks at pages wide and narrow, in both schemes, with and without script. */
const lookAtAll = async (browser, paths, suffix) => {
  for (const [script, dark] of [[true, false], [true, true], [false, false]]) {
    for (const width of [WIDE, PHONE]) {
      const tab = await open(browser, { script, width, dark });
      for (const [name, path] of Object.entries(paths)) {
        const size = width === PHONE ? "phone" : "wide";
        await look(tab, `${name}${suffix} (${size}${script ? "" : ", no script"}${dark ? ", dark" : ""})`, path);
        if (allScreenshots && script) {
          await tab.screenshot({ path: `${allScreenshots}/${name}${suffix}-${size}-${dark ? "dark" : "light"}.png`, fullPage: true });
        }
      }
      await tab.close();
    }
  }
};

/** Writes a picture for the documents. */
const picture = async (browser, name, path, options = {}) => {
  if (!screenshots) return;
  const tab = await open(browser, { width: WIDE, height: 860, ...options });
  await tab.goto(origin + path, { waitUntil: "load" });
  await tab.screenshot({ path: `${screenshots}/${name}.png` });
  await tab.close();
};

/** Calls the gateway as Terraform and as an old script do. */
const callGateway = async () => {
  const authorization = `Bearer ${readFileSync(dev.gateway_token, "utf8").trim()}`;
  // Not by `fetch`, which adds the headers of a web page: the gateway refuses these.
  const call = (path, agent) =>
    new Promise((done, failed) => {
      const headers = { authorization, "user-agent": agent };
      get(`http://${dev.gateway}/api/v2/${path}`, { headers }, (response) => response.resume().on("end", done)).on("error", failed);
    });
  await call("organizations/example/workspaces", "HashiCorp Terraform/1.15.0 (+https://www.terraform.io) Go-http-client/1.1");
  for (const run of ["run-1", "run-2"]) await call(`runs/${run}/policy-checks`, "nightly-report/2.1");
};

const run = (...args) => execFileSync(keyward, [...args, "--dir", dir], { encoding: "utf8" });

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});
try {
  await callGateway();
  const first = await open(browser, {});
  await look(first, "sign-in", "/sign-in");
  if (allScreenshots) await first.screenshot({ path: `${allScreenshots}/sign-in-wide-light.png`, fullPage: true });
  await signIn(first, "/sign-in?next=%2Fagent", key);
  check("the key opens the page of the agent", first.url() === `${origin}/agent`, first.url());
  await signIn(first, "/acl/sign-in?next=%2Facl%2Ftokens", aclToken);
  check("an ACL token opens the page of tokens", first.url() === `${origin}/acl/tokens`, first.url());
  const visible = await first.evaluate(() => document.cookie);
  check("no script reads the cookie", visible === "", visible);
  await first.goto(`${origin}/gateway`);
  const calls = await first.$eval("main", (main) => main.innerText);
  check("the gateway's page says what to do about a deprecated call", calls.includes("nightly-report") && calls.includes("policy evaluations"), calls);
  const links = async (path) => {
    await first.goto(origin + path);
    const found = await first.$$eval("td a", (all) => all.map((link) => new URL(link.href).pathname + new URL(link.href).search));
    if (found.length === 0) throw new Error(`no link at ${first.url()}: ${await first.$eval("main", (it) => it.textContent)}`);
    return found;
  };
  const token = (await links("/acl/tokens?q=readers+of+the+application"))[0];
  const policy = (await links("/acl/policies?q=app-read"))[0];
  const explain = `${token.split("?")[0]}/explain?resource=key&segment=app%2Fx`;
  const accessor = decodeURIComponent(token.split("?")[0].split("/").pop());
  const paths = {
    agent: "/agent", "agent-events": "/agent?level=warning&session=workload", gateway: "/gateway", history: "/history",
    "history-search": "/history?text=token&kind=added", tokens: "/acl/tokens", token, explain, policies: "/acl/policies", policy,
    roles: "/acl/roles", namespaces: "/acl/namespaces", "auth-methods": "/acl/auth-methods", "binding-rules": "/acl/binding-rules",
    codes: "/codes", code: "/codes/KW-1201", search: "/search?q=app", nothing: "/search?q=nothing+is+called+so",
  };
  await lookAtAll(browser, paths, "");
  await picture(browser, "agent-healthy", "/agent");
  await picture(browser, "token", token);
  await picture(browser, "explain", explain);
  await picture(browser, "gateway", "/gateway");
  await picture(browser, "history", "/history");
  await picture(browser, "search", "/search?q=app-read", { height: 620 });

  // The search leads from everywhere to the record.
  await first.goto(`${origin}/history`);
  await first.type("#search", accessor);
  await Promise.all([first.waitForNavigation(), first.keyboard.press("Enter")]);
  await Promise.all([first.waitForNavigation(), first.click("main .hits a")]);
  check("a search for an accessor leads to its token", decodeURIComponent(first.url()).includes(`/acl/tokens/${accessor}`), first.url());

  // The page refreshes itself; what is open stays open, and what is typed stays.
  await first.goto(`${origin}/agent`);
  await first.click("details.fold > summary");
  await first.select("select[name=level]", "error");
  const before = await first.$eval("#state", (it) => it.textContent);
  const refreshed = await first.waitForResponse((it) => it.url() === `${origin}/agent/live`, { timeout: 15000 });
  check("the page of the agent refreshes itself", refreshed.status() === 200, refreshed.status());
  await first.waitForFunction((text) => document.querySelector("#state").textContent !== text, { timeout: 15000 }, before);
  check("an open list stays open", await first.$eval("details.fold", (it) => it.open));
  check("a chosen filter stays", (await first.$eval("select[name=level]", (it) => it.value)) === "error");

  // Keyboard alone: the first stop leads to the content.
  await first.goto(`${origin}/agent`);
  await first.keyboard.press("Tab");
  const focus = await first.evaluate(() => document.activeElement.textContent);
  check("the first stop of the keyboard skips the navigation", focus === "Skip to the content", focus);

  // An outage: the problem comes first, with its remedy, on a phone too.
  run("dev", "break", "server");
  // The session fails at its next renewal or check, within 40 s.
  const deadline = Date.now() + 90_000;
  let found = [];
  do {
    await new Promise((done) => setTimeout(done, 500));
    await first.goto(`${origin}/agent`);
    found = await first.$$eval(".problem", (all) => all.map((it) => it.innerText));
  } while (!found.some((it) => it.includes("session/workload")) && Date.now() < deadline);
  check("an outage is a problem on the page", found.some((it) => it.includes("session/workload") && it.includes("What to do:")), found.join("; "));
  const [code] = await first.$$eval(".problem .remedy a", (all) => all.map((it) => new URL(it.href).pathname));
  await lookAtAll(browser, { agent: "/agent", code, search: "/search?q=workload" }, "-outage");
  for (const dark of [false, true]) {
    const phone = await open(browser, { width: PHONE, height: 844, dark });
    await phone.goto(`${origin}/agent`);
    const places = await phone.$$eval(".problem .reason, .problem .remedy", (all) => all.map((it) => it.getBoundingClientRect().toJSON()));
    const seen = places.length >= 2 && places.slice(0, 2).every((it) => it.left >= 0 && it.right <= PHONE && it.bottom <= 844);
    check("a phone shows reason and remedy without scrolling", seen, JSON.stringify(places));
    await phone.close();
  }
  await picture(browser, "agent", "/agent", { width: 1040, height: 900, scale: 2 });
  await picture(browser, "agent-phone", "/agent", { width: PHONE, height: 844, dark: true });
  run("dev", "heal");

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
