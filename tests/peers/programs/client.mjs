// Node as a client, by its own HTTP/1.1 and HTTP/2: ADDRESS CA.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import fs from 'node:fs';
import http2 from 'node:http2';
import https from 'node:https';

const [address, ca] = process.argv.slice(2);
const authority = fs.readFileSync(ca);

function content(size) {
  const bytes = Buffer.alloc(size);
  for (let n = 0; n < size; n++) bytes[n] = (Math.floor(n / 7) * 31) % 251;
  return bytes;
}

async function whole(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function check(get, post) {
  const names = (await get('/files/list')).body.toString().trim().split('\n');
  for (let round = 0; round < 5; round++) {
    await Promise.all(names.map(async (name) => {
      const { status, body } = await get(`/files/${name}`);
      assert.equal(status, 200);
      assert.ok(body.equals(content(Number(name))), name);
    }));
  }
  const upload = content(2_000_000);
  const echo = await post('/app/echo', upload);
  assert.ok(echo.body.equals(upload));
  const events = await get('/app/events');
  assert.equal(events.body.toString(), [0, 1, 2, 3, 4].map((n) => `data: ${n}\n\n`).join(''));
}

const agent = new https.Agent({ keepAlive: true, ca: authority });
const http1 = (method) => (path, content) => new Promise((resolve, reject) => {
  const request = https.request(address + path, { agent, method }, async (response) => {
    resolve({ status: response.statusCode, body: await whole(response) });
  });
  request.on('error', reject);
  request.end(content);
});
await check(http1('GET'), http1('POST'));
agent.destroy();

const session = http2.connect(address, { ca: authority });
session.on('error', (error) => { throw error; });
const http = (method) => async (path, content) => {
  const request = session.request({ ':path': path, ':method': method });
  request.end(content);
  let status;
  request.on('response', (fields) => { status = fields[':status']; });
  const body = await whole(request);
  return { status, body };
};
await check(http('GET'), http('POST'));
await new Promise((resolve, reject) => {
  session.ping((error) => (error ? reject(error) : resolve()));
});
// A WebSocket over a stream, frame by frame: a text of two bytes, masked with zeros, comes back unmasked.
await new Promise((resolve) => {
  if (session.remoteSettings.enableConnectProtocol !== undefined) resolve();
  else session.once('remoteSettings', resolve);
});
assert.equal(session.remoteSettings.enableConnectProtocol, true);
const socket = session.request({
  ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/app/socket', 'sec-websocket-version': '13',
});
socket.on('response', (fields) => {
  assert.equal(fields[':status'], 200);
  socket.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]));
});
const [frame] = await once(socket, 'data');
assert.deepEqual([...frame], [0x81, 2, 0x68, 0x69]);
socket.end(Buffer.from([0x88, 0x80, 0, 0, 0, 0]));
await once(socket, 'close');
// A request that is given up leaves the others alone.
const left = session.request({ ':path': '/files/3000000' });
left.on('response', () => left.close(http2.constants.NGHTTP2_CANCEL));
await new Promise((resolve) => left.on('close', resolve));
assert.equal((await http('GET')('/files/1')).status, 200);
await new Promise((resolve) => session.close(resolve));
