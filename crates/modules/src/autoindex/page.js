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
  let rows = null;

  // Read once, when first sorted: cells are slow to look at.
  const read = () => [...body.rows].filter(row => row !== parent).map(row => {
    const [name, size, date] = row.cells, data = size.firstElementChild;
    return {
      row, isFile: row.className !== "d",
      keys: [name.textContent, data ? Number(data.value) : -1, date.firstElementChild?.dateTime ?? ""],
    };
  });

  const sort = (column, descending) => {
    rows ??= read();
    const sign = descending ? -1 : 1;
    const plain = (a, b) => a < b ? -1 : a > b ? 1 : 0;
    const byName = (a, b) => collator.compare(a.keys[0], b.keys[0]) || plain(a.keys[0], b.keys[0]);
    rows.sort((a, b) => a.isFile - b.isFile
      || sign * (column === 0 ? byName(a, b) : plain(a.keys[column], b.keys[column]))
      || byName(a, b));
    body.append(...(parent ? [parent] : []));
    for (const { row } of rows) body.append(row);
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
