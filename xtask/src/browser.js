// Opens a page in Chromium, runs expressions in it, and prints as JSON what they gave, what was requested and what went wrong.
// Arguments: Chromium, the page's address, width and height in pixels, a file for the picture, and the expressions.
"use strict";
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const [chromium, url, width, height, picture, ...expressions] = process.argv.slice(2);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "wlprof-browse-"));
const options = ["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--log-level=3", "--disable-dev-shm-usage", "--hide-scrollbars"];
const browser = spawn(
  chromium,
  [...options, `--user-data-dir=${folder}`, `--window-size=${width},${height}`, "about:blank"],
  { stdio: ["ignore", "ignore", "inherit", "pipe", "pipe"], detached: true },
);

// Messages are JSON, each with a NUL after it.
const [, , , requests, answers] = browser.stdio;
const waiting = new Map();
const listeners = new Map();
let last = 0;
let rest = "";
answers.setEncoding("utf8");
answers.on("data", (data) => {
  const messages = (rest + data).split("\0");
  rest = messages.pop();
  for (const text of messages) {
    const { id, method, params, result, error } = JSON.parse(text);
    if (id === undefined) {
      listeners.get(method)?.(params);
    } else {
      const { resolve, reject } = waiting.get(id);
      waiting.delete(id);
      error ? reject(new Error(error.message)) : resolve(result);
    }
  }
});

function ask(method, params = {}, sessionId = undefined) {
  const id = ++last;
  requests.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

async function main() {
  // A context of its own keeps its cache in memory.
  const { browserContextId } = await ask("Target.createBrowserContext");
  const { targetId } = await ask("Target.createTarget", { url: "about:blank", browserContextId });
  const { sessionId } = await ask("Target.attachToTarget", { targetId, flatten: true });
  const of = (method, params) => ask(method, params, sessionId);
  const requested = [];
  const errors = [];
  listeners.set("Network.requestWillBeSent", ({ request }) => requested.push(request.url));
  listeners.set("Log.entryAdded", ({ entry }) => errors.push(entry.text));
  listeners.set("Runtime.exceptionThrown", ({ exceptionDetails }) => errors.push(JSON.stringify(exceptionDetails)));
  const loaded = new Promise((resolve) => listeners.set("Page.loadEventFired", resolve));
  for (const domain of ["Page", "Network", "Log", "Runtime"]) await of(`${domain}.enable`);
  const size = { width: Number(width), height: Number(height) };
  await of("Emulation.setDeviceMetricsOverride", { ...size, deviceScaleFactor: 1, mobile: false });
  await of("Page.navigate", { url });
  await loaded;
  const results = [];
  for (const expression of expressions) {
    const { result, exceptionDetails } = await of("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
      userGesture: true,
    });
    if (exceptionDetails) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    results.push(result.value ?? null);
  }
  const { data } = await of("Page.captureScreenshot", { format: "png" });
  fs.writeFileSync(picture, Buffer.from(data, "base64"));
  console.log(JSON.stringify({ results, requested, errors }));
}

function end(code) {
  browser.on("exit", () => {
    // Processes that the browser started may still write there.
    try {
      process.kill(-browser.pid, "SIGKILL");
    } catch {
      // None of them is left.
    }
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
    process.exit(code);
  });
  browser.kill("SIGKILL");
}

browser.on("error", (error) => {
  console.error(`${chromium}: ${error.message}`);
  process.exit(1);
});
main().then(
  () => end(0),
  (error) => {
    console.error(error);
    end(1);
  },
);
