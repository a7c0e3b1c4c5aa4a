(() => {
  "use strict";
  const table = document.querySelector("table");
  if (!table) return;
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const names = ["name", "size", "date"], down = [false, true, true];
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const parent = body.querySelector(".up");
  // Longer lists are sorted without regard to the visitor's language, which takes ten times as long.
  const COLLATED_MAX = 5000;
  let known = null, collated = true;

  // Read once, when first needed: cells are slow to look at.
  const read = () => {
    if (known) return known;
    const rows = [...body.rows].filter(row => row !== parent);
    collated = rows.length <= COLLATED_MAX;
    return known = rows.map(row => {
      const [name, size, date] = row.cells, data = size.firstElementChild, text = name.textContent;
      const lower = text.toLowerCase();
      return {
        row, lower, isFile: row.className !== "d",
        // Numbers compare as text once they are of the same length.
        plain: collated ? "" : lower.replace(/\d+/g, digits => digits.padStart(15, "0")),
        keys: [text, data ? Number(data.value) : -1, date.firstElementChild?.dateTime ?? ""],
      };
    });
  };

  const sort = (column, descending) => {
    const rows = read();
    const sign = descending ? -1 : 1;
    const plain = (a, b) => a < b ? -1 : a > b ? 1 : 0;
    const byName = (a, b) => (collated ? collator.compare(a.keys[0], b.keys[0]) : plain(a.plain, b.plain))
      || plain(a.keys[0], b.keys[0]);
    rows.sort((a, b) => a.isFile - b.isFile
      || sign * (column === 0 ? byName(a, b) : plain(a.keys[column], b.keys[column]))
      || byName(a, b));
    const sorted = document.createDocumentFragment();
    if (parent) sorted.append(parent);
    for (const { row } of rows) sorted.append(row);
    body.append(sorted);
    heads.forEach((head, n) => {
      const isKey = n === column;
      if (isKey) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      const next = isKey ? !descending : down[n];
      head.firstElementChild.search = `?sort=${names[n]}&order=${next ? "desc" : "asc"}`;
    });
  };

  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", event => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const link = event.currentTarget.href;
    sort(column, link.endsWith("desc"));
    history.replaceState(null, "", link);
  }));

  // A box that leaves the names with all of its words.
  const box = Object.assign(document.createElement("input"), {
    type: "search", placeholder: "Filter", ariaLabel: "Filter by name", title: "Press / to get here", autocomplete: "off",
    spellcheck: false,
  });
  const count = Object.assign(document.createElement("span"), { role: "status", className: "count" });
  const filter = document.createElement("div");
  filter.className = "filter";
  filter.append(box, count);
  table.before(filter);
  let planned = false;
  const apply = () => {
    planned = false;
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { row, lower } of read()) {
      const isShown = words.every(word => lower.includes(word));
      // Unchanged rows cost nothing.
      if (row.hidden === isShown) row.hidden = !isShown;
      shown += isShown;
    }
    count.textContent = words.length ? `${shown} of ${known.length}` : "";
  };
  box.addEventListener("input", () => {
    if (!planned) requestAnimationFrame(apply);
    planned = true;
  });

  // Keys: / for the box, arrows along the list, Enter for the first name that is left, Escape for all names.
  const link = row => row?.querySelector("a");
  const beside = (row, step) => {
    do row = row[step]; while (row?.hidden);
    return row;
  };
  const first = () => {
    const row = body.rows[0];
    return row && (row.hidden || row === parent && box.value) ? beside(row, "nextElementSibling") : row;
  };
  addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target, isBox = target === box, row = body.contains(target) ? target.closest("tr") : null;
    if (event.key === "/" && !target.closest("input, textarea")) box.focus();
    else if (event.key === "Escape" && (isBox || row) && box.value) {
      box.value = "";
      apply();
      box.focus();
    } else if (event.key === "Enter" && isBox) link(first())?.click();
    else if (event.key === "ArrowDown" && (isBox || row || target === document.body)) {
      link(row ? beside(row, "nextElementSibling") : first())?.focus();
    } else if (event.key === "ArrowUp" && row) (link(beside(row, "previousElementSibling")) ?? box).focus();
    else if ((event.key === "Home" || event.key === "End") && row) {
      let at = event.key === "Home" ? body.rows[0] : body.rows[body.rows.length - 1];
      if (at.hidden) at = beside(at, event.key === "Home" ? "nextElementSibling" : "previousElementSibling");
      link(at)?.focus();
    } else return;
    event.preventDefault();
  });

  // Times as the visitor writes them, in slices, so that long lists can be used at once.
  const times = [...body.querySelectorAll("time")];
  let at = 0;
  const slice = () => {
    for (const end = Math.min(at + 500, times.length); at < end; at++) {
      const time = times[at], date = new Date(time.dateTime);
      time.firstChild.data = day.format(date) + " ";
      time.lastChild.textContent = clock.format(date);
    }
    if (at < times.length) setTimeout(slice);
  };
  slice();
})();
