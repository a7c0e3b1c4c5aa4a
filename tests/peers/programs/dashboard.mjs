// The dashboard in Chromium, over its DevTools protocol: URL CHROMIUM HOME AXE [PICTURES].
//
// Checks content, live updates, the console, keyboard and accessibility, and keeps pictures. node
// --experimental-websocket until Node 22.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const [url, chromium, home, axe, pictures] = process.argv.slice(2);
const PATIENCE_MS = 120_000;

async function until(what, condition) {
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end) {
    const found = await condition();
    if (found) return found;
    await pause(50);
  }
  throw new Error(`waited in vain for ${what}`);
}

const profile = path.join(home, 'profile');
// As root it has no sandbox.
const browser = spawn(chromium, [
  '--headless=new', '--no-sandbox', '--disable-gpu', '--no-proxy-server', '--hide-scrollbars',
  '--disable-background-networking', '--remote-debugging-port=0', `--user-data-dir=${profile}`, 'about:blank',
], { stdio: 'ignore', env: { ...process.env, HOME: home } });
process.on('exit', () => browser.kill('SIGKILL'));

const port = await until('Chromium', () => {
  try {
    return fs.readFileSync(path.join(profile, 'DevToolsActivePort'), 'utf8').split('\n')[0];
  } catch { return null; }
});
const pages = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json();
const socket = new WebSocket(pages.find((page) => page.type === 'page').webSocketDebuggerUrl);
await new Promise((resolve, reject) => { socket.onopen = resolve; socket.onerror = reject; });

let last = 0;
const waiting = new Map();
const complaints = [];
socket.onmessage = ({ data }) => {
  const message = JSON.parse(data);
  if (message.id) {
    const { resolve, reject } = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error) reject(new Error(JSON.stringify(message.error)));
    else resolve(message.result);
  } else if (message.method === 'Runtime.exceptionThrown') {
    complaints.push(JSON.stringify(message.params.exceptionDetails));
  } else if (message.method === 'Runtime.consoleAPICalled' && message.params.type !== 'log') {
    complaints.push(JSON.stringify(message.params.args));
  } else if (message.method === 'Log.entryAdded') {
    complaints.push(JSON.stringify(message.params.entry));
  }
};
const send = (method, params = {}) => new Promise((resolve, reject) => {
  last += 1;
  waiting.set(last, { resolve, reject });
  socket.send(JSON.stringify({ id: last, method, params }));
});
async function evaluate(expression) {
  const result = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
  assert.ok(!result.exceptionDetails, JSON.stringify(result.exceptionDetails));
  return result.result.value;
}
const reports = () => evaluate('Number(document.documentElement?.dataset.reports || 0)');
const text = (selector) => evaluate(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`);

for (const domain of ['Page', 'Runtime', 'Log']) await send(`${domain}.enable`);
await send('Page.navigate', { url });
await until('three reports', async () => await reports() >= 3);

// Content.
assert.equal(await text('#link'), 'live');
assert.match(await text('#version'), /^nowait\//);
assert.match(await text('#disks'), /default[^]*busy/);
await until('the disk that hangs', async () => /error.*hangs: no operation has ended for[^]*What to do: check the disk/.test(await text('#finding-list')));
assert.match(await text('#disks'), /hangs for/);
assert.match(await text('#disks'), /media[^]*2 of 2 busy/);
assert.match(await text('#traffic'), /www/);
assert.match(await text('#loops'), /epoll|io_uring/);
assert.match(await text('#events'), /configuration 1 is in use/);
const cells = await evaluate('document.querySelectorAll("tbody tr").length');
assert.ok(cells >= 6, `${cells} rows`);
// Text of others stays text.
assert.equal(await evaluate('document.querySelectorAll("main b, main img").length'), 0);
assert.match(await text('#traffic'), /<b>bold<\/b>/);
// Rows stay the same elements: focus and selection survive.
await evaluate('window.row = document.querySelector("#loops tbody tr"), 0');
const seen = await reports();
await until('live updates', async () => await reports() >= seen + 3);
assert.equal(await evaluate('window.row === document.querySelector("#loops tbody tr")'), true);

// The keyboard reaches the button, and it works.
await evaluate('document.getElementById("pause").focus(), 0');
const key = { key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13, text: '\r' };
await send('Input.dispatchKeyEvent', { type: 'keyDown', ...key });
await send('Input.dispatchKeyEvent', { type: 'keyUp', ...key });
await until('a pause', async () => await text('#link') === 'paused');
await evaluate('document.getElementById("pause").click(), 0');
await until('the stream again', async () => await text('#link') === 'live');

// Pictures, and whether anything is wider than the page.
for (const [name, width, height, scheme] of [
  ['wide', 1440, 1000, 'light'], ['dark', 1440, 1000, 'dark'], ['phone', 390, 844, 'light'],
]) {
  await send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
  await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  const before = await reports();
  await until('a report', async () => await reports() > before);
  assert.ok(await evaluate('document.documentElement.scrollWidth <= innerWidth'), `${name} scrolls sideways`);
  if (pictures) {
    const { data } = await send('Page.captureScreenshot', { format: 'png' });
    fs.writeFileSync(path.join(pictures, `dashboard-${name}.png`), Buffer.from(data, 'base64'));
  }
}
assert.deepEqual(complaints, []);

// Accessibility, in both schemes. The program of axe is not the page's: the policy is off for it.
await send('Page.setBypassCSP', { enabled: true });
for (const scheme of ['light', 'dark']) {
  await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  await send('Page.navigate', { url });
  await until('a report', async () => await reports() >= 2);
  await evaluate(`${fs.readFileSync(axe, 'utf8')}; 0`);
  const found = await evaluate(`axe.run(document, { resultTypes: ["violations"] }).then((result) =>
    result.violations.map(({ id, nodes }) => id + ": " + nodes.map((node) => node.html + " " + node.failureSummary).join("; ")))`);
  assert.deepEqual(found, [], scheme);
}
console.log(`${cells} rows, no complaints, no findings of axe`);
socket.close();
browser.kill('SIGTERM');
