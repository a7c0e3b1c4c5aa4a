"use strict";
(() => {
const HISTORY = 120;      // points of a sparkline
const WINDOW_MS = 60000;  // percentiles of zones
const SAMPLE_MS = 5000;   // between two kept histograms
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// ---- numbers as text

const trim = (value, digits) => value.toFixed(digits).replace(/\.?0+$/, "");
function number(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const abs = Math.abs(value);
  if (abs >= 1e9) return trim(value / 1e9, 2) + " G";
  if (abs >= 1e6) return trim(value / 1e6, 2) + " M";
  if (abs >= 1e4) return trim(value / 1e3, 1) + " k";
  if (abs >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return abs >= 10 ? value.toFixed(1) : value.toFixed(2);
}
function bytes(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return (unit === 0 ? Math.round(value) : value.toPrecision(3)) + " " + units[unit];
}
function time(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return us + " µs";
  if (us < 1e6) return trim(us / 1000, us < 1e4 ? 1 : 0) + " ms";
  if (us < 6e7) return trim(us / 1e6, 1) + " s";
  return trim(us / 6e7, 1) + " min";
}
const percent = (part) => part === null ? "–" : trim(part * 100, part > 0.999 || part < 0.1 ? 1 : 0) + " %";
const clock = (ms) => new Date(ms).toLocaleString();

// ---- the document: elements are made once, and changed only where a value has changed

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function tone(element, name) {
  if (element.className !== name) element.className = name;
}

/// A table whose rows are kept by key. Columns: [title, cell(row, td, key), class, explanation].
function table(section, id, caption, columns, empty) {
  const scroll = make("div", { class: "scroll", role: "group", "aria-labelledby": "c-" + id, tabindex: "0" });
  const head = make("tr");
  for (const [title, , kind, explanation] of columns) {
    const cell = make("th", { scope: "col", class: kind || "" }, title);
    if (explanation) cell.title = explanation;
    head.append(cell);
  }
  const body = make("tbody");
  scroll.append(make("table", {}, make("caption", { id: "c-" + id }, caption), make("thead", {}, head), body));
  const none = make("p", { class: "empty" });
  none.append(...(Array.isArray(empty) ? empty : [empty]));
  section.append(scroll, none);
  const known = new Map();
  return (rows, key) => {
    scroll.hidden = rows.length === 0;
    none.hidden = rows.length !== 0;
    const seen = new Set();
    let place = body.firstElementChild;
    for (const row of rows) {
      const name = key(row);
      if (seen.has(name)) continue;
      seen.add(name);
      let line = known.get(name);
      if (!line) {
        line = make("tr");
        columns.forEach(([, , kind], at) => {
          line.append(at === 0 ? make("th", { scope: "row", class: kind || "" }) : make("td", { class: kind || "" }));
        });
        known.set(name, line);
      }
      if (line === place) place = place.nextElementSibling;
      else body.insertBefore(line, place);
      columns.forEach(([, cell], at) => {
        const td = line.children[at];
        const text = cell(row, td, id + "/" + name);
        if (typeof text === "string") say(td, text);
      });
    }
    for (const [name, line] of known) {
      if (!seen.has(name)) { line.remove(); known.delete(name); }
    }
  };
}
function twoLines(td, first, second) {
  if (!td.firstElementChild) td.append("", make("span", { class: "sub" }));
  if (td.firstChild.nodeType !== 3) td.prepend("");
  if (td.firstChild.data !== first) td.firstChild.data = first;
  say(td.lastElementChild, second);
}
function judged(td, kind, text) {
  tone(td, kind);
  return text;
}
function gauge(td, value, max, text, isWarning) {
  if (!td.firstElementChild) td.append(make("meter", { min: "0", max: "1", "aria-hidden": "true" }), " ", make("span"));
  const share = max > 0 ? Math.min(1, value / max) : 0;
  const meter = td.firstElementChild;
  if (isWarning) { meter.low = 0.5; meter.high = 0.8; meter.optimum = 0; }
  if (meter.value !== share) meter.value = share;
  say(td.lastElementChild, text);
}

// ---- history

const lines = new Map();
function sparkline(td, key, value, text) {
  let points = lines.get(key);
  if (!points) lines.set(key, points = []);
  if (points.stamp !== current.time_ms) {
    points.stamp = current.time_ms;
    points.push(value === null || !isFinite(value) ? 0 : value);
    if (points.length > HISTORY) points.shift();
  }
  let svg = td.querySelector("svg");
  if (!svg) {
    svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "line");
    svg.setAttribute("viewBox", "0 0 " + (HISTORY - 1) + " 24");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    const drawn = document.createElementNS(SVG, "polyline");
    drawn.setAttribute("vector-effect", "non-scaling-stroke");
    svg.append(drawn);
    td.append(svg);
  }
  const top = Math.max(...points, 1e-9);
  const first = HISTORY - points.length;
  svg.firstElementChild.setAttribute("points",
    points.map((point, at) => (first + at) + "," + (23 - 22 * point / top).toFixed(1)).join(" "));
  svg.setAttribute("aria-label", "from " + text(Math.min(...points)) + " to " + text(Math.max(...points)));
}
let current = null;
let before = null;
/// The increase per second of a counter since the report before.
function rate(now, then) {
  if (!before || then === undefined || then === null || now < then) return null;
  const seconds = (current.time_ms - before.time_ms) / 1000;
  return seconds > 0 ? (now - then) / seconds : null;
}
/// The element of the report before that has the same name.
function was(list, name, by) {
  if (!before) return undefined;
  let names = list.names;
  if (!names) {
    names = new Map(list.map((one) => [by(one), one]));
    Object.defineProperty(list, "names", { value: names });
  }
  return names.get(name);
}
const named = (one) => one.name;

// Histograms of zones some time ago, to tell the percentiles of the time since.
const kept = new Map();
function recent(key, histogram) {
  let samples = kept.get(key);
  if (!samples) kept.set(key, samples = []);
  const now = current.time_ms;
  while (samples.length > 1 && samples[1].at <= now - WINDOW_MS) samples.shift();
  const then = samples.length ? samples[0].counts : new Map();
  const last = samples[samples.length - 1];
  if (!last || now - last.at >= SAMPLE_MS) samples.push({ at: now, counts: new Map(histogram) });
  const all = histogram.map(([bound, count]) => [bound, count - (then.get(bound) || 0)]);
  const total = all.reduce((sum, [, count]) => sum + count, 0);
  return (part) => {
    if (total <= 0) return null;
    let sum = 0;
    for (const [bound, count] of all) {
      sum += count;
      if (sum >= total * part) return bound === null ? Infinity : bound;
    }
    return null;
  };
}
function forget(names) {
  for (const key of kept.keys()) if (!names.has(key)) kept.delete(key);
}
const latency = (us) => us === Infinity ? "over 30 min" : time(us);

// ---- sections

const sum = (operations, ends) =>
  Object.entries(operations).reduce((all, [name, count]) => all + (name.endsWith(ends) ? count : 0), 0);
const slow = (td, us) => judged(td, us >= 200000 ? "n bad" : us >= 50000 ? "n warn" : "n", time(us));
const disk = (td, one) => twoLines(td, one.directory || one.name,
  [one.directory ? one.name : "", one.source || "", one.type].filter(Boolean).join(" · "));
const old = {
  disk: (one) => was(before ? before.file_systems : [], one.name, named),
  pool: (one) => was(before ? before.thread_pools : [], one.name, named),
  cache: (one) => was(before ? before.caches : [], one.name, named),
};
function operationRate(one, then, ends) {
  return rate(sum(one.operations, ends), then && sum(then.operations, ends));
}
const cachesOn = (one) => current.caches.filter((cache) => cache.device === one.name);
function cacheRate(one, name) {
  const on = cachesOn(one);
  if (!on.length) return null;
  return on.reduce((all, cache) => {
    const then = old.cache(cache);
    return all + (rate(cache.operations[name], then && then.operations[name]) || 0);
  }, 0);
}
const showDisks = table($("disks"), "disks", "Disks, by file system", [
  ["File system", (one, td) => disk(td, one)],
  ["State", (one, td) => one.stalled_us >= 1e6 ? judged(td, "bad", "hangs for " + time(one.stalled_us))
    : one.recent_read_us.p99 >= 200000 || one.recent_write_us.p99 >= 200000 ? judged(td, "warn", "slow")
    : judged(td, "good", one.in_progress ? "works" : "idle")],
  ["Waiting", (one, td) => judged(td, one.waiting ? "n warn" : "n", number(one.waiting)), "n", "operations that wait for a thread of a pool"],
  ["In progress", (one) => number(one.in_progress), "n", "operations that threads of pools are doing now"],
  ["Wait p99", (one, td) => slow(td, one.recent_wait_us.p99), "n", "time until a thread takes an operation, last minute"],
  ["Read p50", (one) => time(one.recent_read_us.p50), "n", "time of opening and reading in pools, last minute"],
  ["p99", (one, td) => slow(td, one.recent_read_us.p99), "n"],
  ["p999", (one, td) => slow(td, one.recent_read_us.p999), "n"],
  ["Trend of read p99", (one, td, key) => sparkline(td, key, one.recent_read_us.p99 || 0, (us) => time(Math.round(us)))],
  ["Write p99", (one, td) => slow(td, one.recent_write_us.p99), "n", "time of creating, writing, renaming and removing, last minute"],
  ["Inline/s", (one) => number(operationRate(one, old.disk(one), "_inline")), "n", "served on the event loop, from memory"],
  ["Fall-backs/s", (one) => number(operationRate(one, old.disk(one), "_fallback")), "n", "tried on the loop, then done by a pool: not in memory"],
  ["Pool/s", (one) => number(operationRate(one, old.disk(one), "_pool")), "n", "done by a pool without a try"],
  ["Cache fills/s", (one) => number(cacheRate(one, "stored")), "n", "objects stored by caches on this file system"],
  ["Evicted/s", (one) => number(cacheRate(one, "evicted")), "n", "objects removed by caches on it, to make room"],
  ["Errors", (one, td) => judged(td, one.errors ? "n bad" : "n", number(one.errors)), "n"],
], "No file was used yet.");
const operations = (one, name) => Object.values(one.operations).reduce((all, op) => all + op[name], 0);
const showPools = table($("disks"), "pools", "Thread pools", [
  ["Pool", (one) => one.name],
  ["Threads", (one, td) => judged(td, one.busy >= one.threads ? "n warn" : "n", one.busy + " of " + one.threads + " busy"), "n"],
  ["Queue", (one, td) => gauge(td, one.waiting, one.max_queue, number(one.waiting) + " of " + number(one.max_queue), true)],
  ["Trend", (one, td, key) => sparkline(td, key, one.waiting, number)],
  ["Clients", (one) => number(one.clients), "n", "clients that wait for this pool"],
  ["Wait p50", (one) => time(one.recent_wait_us.p50), "n", "time until a thread takes a task, last minute"],
  ["p99", (one, td) => slow(td, one.recent_wait_us.p99), "n"],
  ["p999", (one, td) => slow(td, one.recent_wait_us.p999), "n"],
  ["Service p50", (one) => time(one.recent_service_us.p50), "n", "time that a thread takes: mostly that of the disk, last minute"],
  ["p99", (one) => time(one.recent_service_us.p99), "n"],
  ["p999", (one) => time(one.recent_service_us.p999), "n"],
  ["Done/s", (one) => { const then = old.pool(one); return number(rate(operations(one, "completed"), then && operations(then, "completed"))); }, "n"],
  ["Refused", (one, td) => { const all = operations(one, "overflowed"); return judged(td, all ? "n bad" : "n", number(all)); }, "n", "tasks refused because the queue was full, since the start"],
], "There are no thread pools.");
const sessionZones = (report) => report.stream ? report.stream.zones : [];
const zones = (report) => [
  ...report.zones.servers.map((zone) => ({ zone, kind: "server" })),
  ...report.zones.locations.map((zone) => ({ zone, kind: "location" })),
  ...sessionZones(report).map((zone) => ({ zone, kind: "stream" })),
];
const zoneKey = (one) => one.kind + " " + one.zone.name;
const oldZone = (one) => {
  if (!before) return undefined;
  const list = one.kind === "server" ? before.zones.servers
    : one.kind === "location" ? before.zones.locations : sessionZones(before);
  return was(list, one.zone.name, named);
};
const zoneRate = (one, get) => { const then = oldZone(one); return rate(get(one.zone), then && get(then)); };
// Sessions of stream are to their zones what requests are to others.
const ended = (zone) => (zone.connections || zone.requests || 0) - zone.processing;
const byStatus = (name) => (zone) => (zone.sessions || zone.responses)[name];
const part = (value) => (one) => latency(one.percentile(value));
const showZones = table($("traffic"), "zones", "Requests and sessions by status_zone", [
  ["Zone", (one, td) => twoLines(td, one.zone.name, one.kind)],
  ["Requests/s", (one) => number(one.rate), "n"],
  ["Trend", (one, td, key) => sparkline(td, key, one.rate, number)],
  ["Active", (one) => one.kind === "location" ? "–" : number(one.zone.processing), "n"],
  ["2xx/s", (one) => number(zoneRate(one, byStatus("2xx"))), "n"],
  ["3xx/s", (one) => number(zoneRate(one, byStatus("3xx"))), "n"],
  ["4xx/s", (one) => number(zoneRate(one, byStatus("4xx"))), "n"],
  ["5xx/s", (one, td) => { const value = zoneRate(one, byStatus("5xx")); return judged(td, value > 0 ? "n bad" : "n", number(value)); }, "n"],
  ["Sent/s", (one) => bytes(zoneRate(one, (zone) => zone.sent)), "n"],
  ["Received/s", (one) => bytes(zoneRate(one, (zone) => zone.received)), "n"],
  ["p50", part(0.5), "n", "time of requests, from the first byte to the end of the response"],
  ["p90", part(0.9), "n"],
  ["p99", part(0.99), "n"],
  ["p999", part(0.999), "n"],
], ["No zones: count the requests of a server or location by ", make("code", {}, "status_zone NAME;"), "."]);
const showLoops = table($("loops"), "loops", "Workers", [
  ["Worker", (one) => String(one.worker)],
  ["Events by", (one) => one.event_method],
  ["Connections", (one) => number(one.connections), "n"],
  ["Working", (one) => {
    const then = was(before ? before.workers : [], one.worker, (other) => other.worker);
    const share = rate(one.event_loop_blocked.total_us, then && then.event_loop_blocked.total_us);
    return share === null ? "–" : percent(Math.min(1, share / 1e6));
  }, "n", "share of the time that the loop works"],
  ["Trend", (one, td, key) => {
    const then = was(before ? before.workers : [], one.worker, (other) => other.worker);
    sparkline(td, key, (rate(one.event_loop_blocked.total_us, then && then.event_loop_blocked.total_us) || 0) / 1e6, percent);
  }],
  ["Turns/s", (one) => {
    const then = was(before ? before.workers : [], one.worker, (other) => other.worker);
    return number(rate(one.event_loop_blocked.turns, then && then.event_loop_blocked.turns));
  }, "n"],
  ["Longest turn", (one, td) => judged(td, one.event_loop_blocked.longest_us >= 50000 ? "n warn" : "n", time(one.event_loop_blocked.longest_us)), "n", "since the start: other clients of the worker waited so long"],
  ["At work then", (one) => one.event_loop_blocked.longest_at || "–"],
], "No event loop runs.");
const HITS = ["hits_memory", "hits_inline", "hits_pool", "hits_filling"];
const hits = (one) => HITS.reduce((all, name) => all + one.operations[name], 0);
const cacheOperation = (name) => (one) => { const then = old.cache(one); return number(rate(one.operations[name], then && then.operations[name])); };
const showCaches = table($("caches"), "caches", "State of caches", [
  ["Cache", (one, td) => twoLines(td, one.name, [one.directory, one.device].filter(Boolean).join(" · "))],
  ["State", (one, td) => !one.in_use ? judged(td, "bad", "out of use: " + one.out_of_use_because)
    : !one.stores ? judged(td, "bad", "stores nothing: " + one.stores_nothing_because)
    : one.cold ? judged(td, "warn", "reads its disk") : judged(td, "good", "in use")],
  ["Size", (one, td) => one.max_size ? gauge(td, one.size, one.max_size, bytes(one.size) + " of " + bytes(one.max_size)) : bytes(one.size)],
  ["Objects", (one) => number(one.objects), "n"],
  ["Hit ratio", (one) => {
    const then = old.cache(one);
    const found = rate(hits(one), then && hits(then));
    const missed = rate(one.operations.misses, then && then.operations.misses);
    return found === null || found + missed === 0 ? "–" : percent(found / (found + missed));
  }, "n", "in the last interval"],
  ["Memory/s", cacheOperation("hits_memory"), "n", "hits in memory"],
  ["Inline/s", cacheOperation("hits_inline"), "n", "hits in files opened on the loop"],
  ["Pool/s", cacheOperation("hits_pool"), "n", "hits that needed the disk"],
  ["Filling/s", cacheOperation("hits_filling"), "n", "requests that joined a fetch"],
  ["Misses/s", cacheOperation("misses"), "n"],
  ["Stored/s", cacheOperation("stored"), "n"],
  ["Evicted/s", cacheOperation("evicted"), "n"],
  ["Being filled", (one) => number(one.filling), "n"],
  ["On the disk", (one) => number(one.under_way), "n", "operations that wait for the disk now"],
  ["Errors", (one, td) => judged(td, one.operations.errors ? "n bad" : "n", number(one.operations.errors)), "n"],
], "There are no caches.");
const groups = (report) => [...report.upstreams, ...(report.stream ? report.stream.upstreams : [])];
const peers = (report) => groups(report).flatMap((group) => group.peers.map((peer) => ({ peer, group: group.name })));
const peerKey = (one) => one.group + " " + one.peer.name + " " + one.peer.server;
const oldPeer = (one) => { const then = was(before ? before.peerList : [], peerKey(one), peerKey); return then && then.peer; };
const peerRate = (one, get) => { const then = oldPeer(one); return rate(get(one.peer), then && get(then)); };
const showPeers = table($("upstreams"), "peers", "Servers of upstreams", [
  ["Server", (one, td) => twoLines(td, one.peer.name, one.group + (one.peer.backup ? " · backup" : "") + (one.peer.server !== one.peer.name ? " · " + one.peer.server : ""))],
  ["State", (one, td) => judged(td, one.peer.state === "up" ? "good" : one.peer.state === "draining" || one.peer.state === "down" ? "warn" : "bad", one.peer.state)],
  ["Weight", (one) => String(one.peer.weight), "n"],
  ["Active", (one) => number(one.peer.active) + (one.peer.max_conns ? " of " + number(one.peer.max_conns) : ""), "n"],
  ["Idle", (one) => number(one.peer.idle), "n"],
  ["Requests/s", (one) => number(peerRate(one, (peer) => peer.requests)), "n"],
  ["Trend", (one, td, key) => sparkline(td, key, peerRate(one, (peer) => peer.requests), number)],
  ["4xx/s", (one) => number(peerRate(one, (peer) => peer.responses["4xx"])), "n"],
  ["5xx/s", (one, td) => { const value = peerRate(one, (peer) => peer.responses["5xx"]); return judged(td, value > 0 ? "n bad" : "n", number(value)); }, "n"],
  ["Header", (one) => time(one.peer.header_time_us), "n", "average time until the header"],
  ["Response", (one) => time(one.peer.response_time_us), "n", "average time of a response"],
  ["Fails", (one) => number(one.peer.fails), "n", "failed tries since the start"],
  ["Checks", (one) => number(one.peer.health_checks.checks) + (one.peer.health_checks.fails ? ", " + number(one.peer.health_checks.fails) + " failed" : ""), "n"],
  ["Down for", (one) => time(one.peer.downtime_us), "n", "total time without requests because of failures"],
], "There are no upstream blocks.");
const showCertificates = table($("certificates"), "certificates", "Certificates in use", [
  ["Name", (one, td) => twoLines(td, one.name, one.names.slice(1).join(", ")), "wide"],
  ["Expires in", (one, td) => {
    const days = one.seconds_left / 86400;
    return judged(td, days <= 0 ? "n bad" : days < 10 ? "n warn" : "n good", days <= 0 ? "expired" : Math.floor(days) + " days");
  }, "n"],
  ["At", (one) => clock(one.not_after_ms)],
  ["File", (one) => one.source, "wide"],
  ["Issuer", (one) => one.issuer, "wide"],
], "No certificate is in use.");
const limits = (report) => {
  const rows = [];
  const add = (kind, zones) => {
    for (const [name, counts] of Object.entries(zones)) rows.push({ kind, name, counts });
  };
  add("limit_req", report.limits.limit_reqs);
  add("limit_conn", report.limits.limit_conns);
  if (report.stream) add("limit_conn of stream", report.stream.limit_conns);
  return rows;
};
const limitKey = (one) => one.kind + " " + one.name;
const limitRate = (name) => (one) => {
  const then = was(before ? before.limitList : [], limitKey(one), limitKey);
  return one.counts[name] === undefined ? "–" : number(rate(one.counts[name], then && then.counts[name]));
};
const showLimits = table($("limits"), "limits", "Decisions of limits", [
  ["Zone", (one, td) => twoLines(td, one.name, one.kind)],
  ["Passed/s", limitRate("passed"), "n"],
  ["Delayed/s", limitRate("delayed"), "n"],
  ["Rejected/s", limitRate("rejected"), "n"],
  ["Rejected", (one, td) => judged(td, one.counts.rejected ? "n warn" : "n", number(one.counts.rejected)), "n", "since the start"],
], "There are no limits.");
const TONES = { error: "bad", warning: "warn", info: "" };
const showEvents = table($("events"), "events", "Events, newest first", [
  ["Time", (one) => clock(one.time_ms)],
  ["Severity", (one, td) => judged(td, TONES[one.severity], one.severity)],
  ["What", (one) => one.text, "wide"],
  ["Times", (one) => one.count > 1 ? one.count + " since " + clock(one.first_ms) : "1"],
], "Nothing has happened yet.");

// ---- findings

let heard = "";
function showFindings(report) {
  const list = report.findings;
  const text = list.map((one) => one.severity + one.text).join("\n");
  document.title = (list.length ? "(" + list.length + ") " : "") + "Nowait";
  const subjects = list.map((one) => one.severity + one.of + one.subject).join("\n");
  if (subjects !== heard) {
    heard = subjects;
    say($("news"), list.length ? list.length + (list.length === 1 ? " finding: " : " findings, first: ") + list[0].text : "Nothing calls for attention.");
  }
  const place = $("finding-list");
  if (place.dataset.text === text && place.dataset.known) return;
  place.dataset.text = text;
  place.dataset.known = "yes";
  if (!list.length) {
    place.replaceChildren(make("p", { class: "good" }, "Nothing calls for attention."));
    return;
  }
  place.replaceChildren(make("ul", { class: "findings" }, ...list.map((one) =>
    make("li", { class: one.severity },
      make("strong", { class: TONES[one.severity] }, one.severity), one.text,
      make("span", { class: "hint" }, "What to do: " + one.hint)))));
}
const numbers = new Map();
function showNumber(name, text) {
  let dd = numbers.get(name);
  if (!dd) {
    dd = make("dd");
    $("numbers").append(make("div", {}, make("dt", {}, name), dd));
    numbers.set(name, dd);
  }
  say(dd, text);
}
function showNumbers(report) {
  const then = before || {};
  const waits = report.thread_pools.reduce((all, pool) => all + pool.clients, 0);
  showNumber("Requests per second", number(rate(report.requests.total, then.requests && then.requests.total)));
  showNumber("Open connections", number(report.connections.active));
  showNumber("Being answered", number(report.connections.writing));
  showNumber("Clients that wait for a pool", number(waits));
  showNumber("Operations on disks", number(report.file_systems.reduce((all, one) => all + one.in_progress, 0)));
  showNumber("TLS handshakes per second", number(rate(report.ssl.handshakes, then.ssl && then.ssl.handshakes)));
  showNumber("Handshakes failed", number(report.ssl.handshakes_failed));
  if (report.stream) showNumber("TCP and UDP sessions", number(report.stream.sessions.active));
  showNumber("Resident files", number(report.resident_files.entries) + " · " + bytes(report.resident_files.bytes));
}

// ---- the stream

function show(report) {
  before = current;
  current = report;
  if (before && before.pid !== report.pid) { before = null; lines.clear(); kept.clear(); }
  report.limitList = limits(report);
  report.peerList = peers(report);
  say($("version"), report.version);
  say($("facts"), location.host + " · configuration " + report.generation + " of " + clock(report.loaded_ms) + " · process " + report.pid + " · " + clock(report.time_ms));
  showFindings(report);
  showNumbers(report);
  showDisks(report.file_systems, named);
  showPools(report.thread_pools, named);
  const all = zones(report);
  for (const one of all) {
    one.percentile = recent(zoneKey(one), one.zone.request_time_histogram || []);
    one.rate = zoneRate(one, ended);
  }
  forget(new Set(all.map(zoneKey)));
  showZones(all, zoneKey);
  showLoops(report.workers, (one) => String(one.worker));
  showCaches(report.caches, named);
  showPeers(report.peerList, peerKey);
  showCertificates(report.certificates, (one) => one.source + one.serial);
  showLimits(report.limitList, limitKey);
  showEvents(report.events.toReversed(), (one) => String(one.number));
  document.documentElement.dataset.reports = String(Number(document.documentElement.dataset.reports || 0) + 1);
}
let source = null;
function link(state, kind) {
  say($("link"), state);
  tone($("link"), "state " + kind);
}
function open() {
  source = new EventSource(location.pathname);
  source.addEventListener("open", () => link("live", "good"));
  source.addEventListener("report", (event) => { link("live", "good"); show(JSON.parse(event.data)); });
  source.addEventListener("error", () => {
    const isOver = source.readyState === EventSource.CLOSED;
    link(isOver ? "refused; reload this page" : "not connected, trying again", "bad");
  });
}
$("pause").addEventListener("click", () => {
  const paused = $("pause").getAttribute("aria-pressed") !== "true";
  $("pause").setAttribute("aria-pressed", String(paused));
  say($("pause"), paused ? "Continue" : "Pause");
  if (paused) { source.close(); link("paused", "warn"); } else { link("connecting", ""); open(); }
});
for (const [show, key] of [[showDisks], [showPools], [showZones], [showLoops], [showCaches], [showPeers], [showCertificates], [showLimits], [showEvents]]) show([], key);
open();
})();
