// The oddest rows: sortable, each opens to say what would have been likely.
const range = (intervals) => intervals.map(([low, high]) => (low === high ? pretty(low) : `${pretty(low)} to ${pretty(high)}`)).join(" or ");

function blamed(entry) {
  const { picture } = entry;
  const cells = picture.kind === "cells";
  const chart = curves(`What was likely in ${columns[entry.column]}`, {
    x: picture.at, bars: cells, zero: true, height: 150, left: 48,
    series: [{ name: cells ? "probability" : "density", kind: "data", values: picture.height }],
    marks: [{ at: entry.value, text: `this row: ${pretty(entry.value)}` }],
  });
  return element("div", {}, element("h3", {}, named(entry.column)), chart,
    element("p", { class: "caption" }, `Median ${pretty(entry.median)}; 90 % of values lie in ${range(entry.likely)}. ` +
      `Log density here ${pretty(entry.log_density)}, which is ${pretty(Math.abs(entry.surprise), 3)} nats ${entry.surprise < 0 ? "above" : "below"} the average.`));
}

function showSurprises() {
  const target = section("surprises");
  const { rows, screened, of, estimated } = record.surprises;
  target.append(paragraph(`The ${count(rows.length)} rows of lowest log density` +
    (screened < of ? `, found among ${count(screened)} of ${count(of)} rows chosen at random. ` : `, out of ${count(of)}. `) +
    (estimated ? "A quick estimate finds them, and their scores are then computed exactly. " : "") +
    "A column is to blame if its value is much less likely than values there are on average, given the columns before it: that is its surprise, in nats. Row numbers count from 0."));
  const body = element("tbody");
  const lines = rows.map((row) => {
    const worst = row.blame[0];
    const open = element("button", { type: "button", "aria-expanded": "false", "aria-label": `Explain row ${row.row}`, onclick: () => {
      const shown = open.getAttribute("aria-expanded") === "true";
      open.setAttribute("aria-expanded", String(!shown));
      open.textContent = shown ? "Explain" : "Close";
      if (shown) { detail.remove(); return; }
      // Made when first asked for: a page of hundreds of charts would open slowly.
      if (!detail.firstChild) detail.append(element("td", { colspan: 7 },
        element("div", { class: "blamed" }, row.blame.map(blamed)),
        element("div", { class: "values" }, row.values.map((value, column) =>
          element("span", {}, element("b", {}, named(column)), " " + pretty(value))))));
      summary.after(detail);
    } }, "Explain");
    const detail = element("tr", { class: "detail" });
    const cell = (label, kind, ...content) => element("td", { "data-label": label, class: kind }, ...content);
    const summary = element("tr", {},
      element("th", { scope: "row", class: "number" }, "row " + count(row.row)),
      cell("log density", "number", row.log_density === null ? "none" : row.log_density.toFixed(2).replace("-", "−")),
      cell("to blame", "name", named(worst.column)),
      cell("value", "number", pretty(worst.value)),
      cell("surprise", "number", worst.surprise.toFixed(2).replace("-", "−")),
      cell("90 % likely", null, range(worst.likely)),
      element("td", {}, open));
    return { row, summary, detail, open };
  });
  const fill = () => body.replaceChildren(...lines.flatMap((line) =>
    line.open.getAttribute("aria-expanded") === "true" ? [line.summary, line.detail] : [line.summary]));
  const sorter = (key) => (direction) => {
    lines.sort((a, b) => {
      const [one, two] = [key(a.row), key(b.row)];
      return direction * (typeof one === "string" ? one.localeCompare(two) : one - two);
    });
    fill();
  };
  const heading = (name, key, kind = "number") => sortable(element("th", { scope: "col", class: kind }), name, sorter(key));
  const first = heading("log density", (r) => r.log_density);
  first.setAttribute("aria-sort", "ascending");
  const head = element("tr", {},
    heading("row", (r) => r.row), first,
    heading("to blame", (r) => columns[r.blame[0].column], null),
    heading("value", (r) => r.blame[0].value),
    heading("surprise", (r) => r.blame[0].surprise),
    element("th", { scope: "col", "data-name": "90 % likely" }, "90 % likely"),
    element("th", { scope: "col" }, ""));
  fill();
  target.append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The most surprising rows" },
    element("table", { class: "stack" }, element("thead", {}, head), body)));
}
