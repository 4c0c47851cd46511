
"use strict";
// Sorts, searches and draws the ranking from the data in the page. Labels are shown as text only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const columns = data.columns;
  const table = document.getElementById("ranking-table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const [search, chooser, more, status, scale] = ["search", "group", "more", "status", "scale"].map(
    (id) => document.getElementById(id),
  );
  const SVG = "http://www.w3.org/2000/svg";
  const STEP = 500; // rows that the button adds
  const ALL = -1;

  columns.width = columns.lower.map((x, i) => (x === null ? null : columns.upper[i] - x));
  const folded = columns.item.map(fold);
  const collator = new Intl.Collator(undefined, { numeric: true });
  // Columns in which larger is better: a first click shows the largest first.
  const DESCENDING = new Set(["score", "lower", "upper", "comparisons"]);
  const state = { key: "rank", descending: false, group: data.start, size: data.first };
  let found = []; // numbers of the rows that are chosen, in order
  let ends = [0, 1]; // of the bars' scale

  function fold(text) {
    return text.normalize("NFC").toLowerCase();
  }

  function number(value, decimals) {
    if (value === null) return "–";
    const shown = value.toLocaleString("en-US", {
      minimumFractionDigits: decimals,
      maximumFractionDigits: decimals,
    });
    return (/[1-9]/.test(shown) ? shown : shown.replace("-", "")).replace("-", "−");
  }

  function element(name, text, kind) {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function label(text) {
    const made = element("bdi", text, "label");
    if (text.length > 80) made.title = text;
    return made;
  }

  function path(kind, d) {
    const made = document.createElementNS(SVG, "path");
    made.setAttribute("class", kind);
    made.setAttribute("d", d);
    return made;
  }

  function bar(i) {
    const place = (x) => ((100 * (x - ends[0])) / (ends[1] - ends[0] || 1)).toFixed(2);
    const made = document.createElementNS(SVG, "svg");
    made.setAttribute("viewBox", "0 0 100 10");
    made.setAttribute("preserveAspectRatio", "none");
    made.setAttribute("aria-hidden", "true");
    if (ends[0] <= data.zero && data.zero <= ends[1]) {
      made.append(path("zero", `M${place(data.zero)} 0V10`));
    }
    made.append(path("span", `M${place(columns.lower[i])} 5H${place(columns.upper[i])}`));
    made.append(path("point", `M${place(columns.score[i])} 5h0`));
    return made;
  }

  function interval(i) {
    const cell = element("td", "", "interval");
    if (columns.lower[i] !== null) cell.append(bar(i));
    return cell;
  }

  function item(i) {
    const cell = element("th", "");
    cell.scope = "row";
    cell.append(label(columns.item[i]));
    return cell;
  }

  function group(i) {
    const cell = element("td", "");
    cell.append(label(data.groups[columns.group[i]]));
    return cell;
  }

  function ranks(i) {
    const [low, high] = [columns.rank_lower[i], columns.rank_upper[i]].map((x) => number(x, 0));
    return low === high ? low : `${low}–${high}`;
  }

  function row(i) {
    const made = document.createElement("tr");
    made.append(element("td", number(columns.rank[i], 0), "n"), item(i));
    if (state.group === ALL) made.append(group(i));
    made.append(
      element("td", number(columns.score[i], data.decimals), "n"),
      interval(i),
      element("td", number(columns.lower[i], data.decimals), "n"),
      element("td", number(columns.upper[i], data.decimals), "n"),
      element("td", number(columns.std[i], data.decimals), "n"),
      element("td", ranks(i), "n"),
      element("td", number(columns.comparisons[i], 0), "n"),
      element("td", number(columns.component[i], 0), "n"),
    );
    return made;
  }

  // Unknown values come last in either direction; equal ones keep the order of the data.
  function order(i, j) {
    const [x, y] = [columns[state.key][i], columns[state.key][j]];
    if (x === null || y === null) return (x === null) - (y === null) || i - j;
    const difference = typeof x === "string" ? collator.compare(x, y) : x - y;
    return (state.descending ? -difference : difference) || i - j;
  }

  function members() {
    const all = [...columns.item.keys()];
    return state.group === ALL ? all : all.filter((i) => columns.group[i] === state.group);
  }

  function rescale(rows) {
    const known = rows.filter((i) => columns.lower[i] !== null);
    const smaller = (x, i) => Math.min(x, columns.lower[i]);
    const larger = (x, i) => Math.max(x, columns.upper[i]);
    ends = [known.reduce(smaller, Infinity), known.reduce(larger, -Infinity)];
    const shown = known.length ? ends.map((x) => number(x, data.decimals)) : ["–", "–"];
    scale.replaceChildren(...shown.map((text) => element("span", text)));
  }

  function choose() {
    const mine = members();
    rescale(mine);
    const wanted = fold(search.value);
    found = mine.filter((i) => folded[i].includes(wanted)).sort(order);
    state.size = data.first;
    status.textContent =
      (wanted ? `${number(found.length, 0)} of ` : "") +
      `${number(mine.length, 0)} ${mine.length === 1 ? "item" : "items"}`;
    body.replaceChildren();
    draw();
  }

  function draw() {
    const start = body.rows.length;
    body.append(...found.slice(start, state.size).map(row));
    const left = found.length - body.rows.length;
    more.hidden = left === 0;
    more.textContent = `Show ${number(Math.min(left, STEP), 0)} more of ${number(left, 0)}`;
  }

  function mark() {
    for (const head of heads) {
      const direction = state.descending ? "descending" : "ascending";
      head.setAttribute("aria-sort", head.dataset.key === state.key ? direction : "none");
      if (head.dataset.key === "group") head.hidden = state.group !== ALL;
    }
  }

  function sortBy(key) {
    state.descending = state.key === key ? !state.descending : DESCENDING.has(key);
    state.key = key;
    mark();
    choose();
  }

  for (const head of heads) {
    const button = element("button", head.firstElementChild.textContent);
    button.type = "button";
    button.addEventListener("click", () => sortBy(head.dataset.key));
    head.firstElementChild.replaceWith(button);
  }
  search.addEventListener("input", choose);
  chooser?.addEventListener("change", () => {
    state.group = Number(chooser.value);
    if (state.key === "group" && state.group !== ALL) state.key = "rank";
    mark();
    choose();
  });
  more.addEventListener("click", () => {
    state.size += STEP;
    draw();
  });
  document.getElementById("controls").hidden = false;
  if (chooser) chooser.value = String(state.group);
  search.value = ""; // browsers keep what was typed when a page is loaded again
  mark();
  choose();
})();
