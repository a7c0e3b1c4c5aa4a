(() => {
  "use strict";
  const main = document.querySelector("main[data-upload]");
  if (!main) return;
  const mayReplace = main.dataset.upload === "replace";
  const make = (name, text, properties) => {
    const made = Object.assign(document.createElement(name), properties);
    if (text) made.append(text);
    return made;
  };
  const box = make("section", "", { className: "upload", ariaLabel: "Upload" });
  const label = make("label", "Upload files"), input = make("input", "", { type: "file", multiple: true });
  const list = make("ul");
  label.append(input);
  box.append(label, " or drop them here", list);
  main.prepend(box);

  const reasons = {
    0: "the connection was lost", 401: "a password is needed", 403: "not allowed here", 404: "this name is not allowed",
    409: "this name is not possible", 412: "there is a file of this name", 413: "too large", 507: "the disk is full",
  };
  const waiting = [];
  let active = 0, failed = 0, done = 0;

  const add = (file, path) => {
    const row = make("li"), state = make("span", "waiting", { role: "status" });
    row.append(make("span", path), state);
    list.append(row);
    waiting.push({ file, path, row, state, replaces: false });
    next();
  };

  // One after the other: more at once take no less time.
  const next = () => {
    if (active || !waiting.length) return;
    const job = waiting.shift(), { file, path, row, state } = job;
    const bar = make("progress", "", { max: file.size || 1, value: 0, ariaLabel: path });
    const cancel = make("button", "Cancel", { type: "button" });
    const request = new XMLHttpRequest();
    state.textContent = "";
    row.append(bar, cancel);
    active++;
    cancel.onclick = () => request.abort();
    request.upload.onprogress = event => { bar.value = event.loaded; };
    const end = text => {
      bar.remove();
      cancel.remove();
      state.textContent = text;
      active--;
      // The new list, unless there is something to read here.
      if (done && !active && !waiting.length && !failed) location.reload();
      else next();
    };
    const again = (text, replaces) => {
      const button = make("button", text, { type: "button" });
      button.onclick = () => {
        button.remove();
        failed--;
        waiting.push({ ...job, replaces });
        next();
      };
      row.append(button);
    };
    request.onabort = () => { failed++; end("cancelled"); again("Retry", job.replaces); };
    request.onloadend = () => {
      if (!cancel.isConnected) return;
      if (request.status >= 200 && request.status < 300) {
        done++;
        return end("done");
      }
      failed++;
      end(reasons[request.status] ?? `failed (${request.status})`);
      if (request.status !== 412) again("Retry", job.replaces);
      else if (mayReplace) again("Replace it", true);
    };
    request.open("PUT", path.split("/").map(encodeURIComponent).join("/"));
    if (!job.replaces) request.setRequestHeader("If-None-Match", "*");
    request.send(file);
  };

  // Directories come as entries; one call gives a part of their names.
  const walk = async (entry, path) => {
    if (entry.isFile) return entry.file(file => add(file, path + file.name));
    const reader = entry.createReader();
    const read = () => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    for (let part = await read(); part.length; part = await read()) {
      for (const inner of part) await walk(inner, `${path}${entry.name}/`);
    }
  };

  input.onchange = () => {
    for (const file of input.files) add(file, file.name);
    input.value = "";
  };
  const isFiles = event => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", event => {
    if (!isFiles(event)) return;
    event.preventDefault();
    box.classList.add("over");
  });
  addEventListener("dragleave", event => { if (!event.relatedTarget) box.classList.remove("over"); });
  addEventListener("drop", event => {
    if (!isFiles(event)) return;
    event.preventDefault();
    box.classList.remove("over");
    for (const item of [...event.dataTransfer.items]) {
      const entry = item.webkitGetAsEntry?.();
      if (entry) walk(entry, "");
    }
  });
  addEventListener("beforeunload", event => { if (active) event.preventDefault(); });
})();
