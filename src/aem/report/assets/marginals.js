// Each column of the data beside the same column of samples.
const FIRST_SHOWN = 24; // more at a click: a table may have hundreds of columns

function gallery(target, cards, { worst, table }) {
  const grid = element("div", { class: "grid" });
  let order = table;
  let all = cards.length <= FIRST_SHOWN;
  const more = element("button", { type: "button", onclick: () => { all = true; fill(); } },
    `Show all ${count(cards.length)} columns`);
  const made = new Map();
  const card = (column) => {
    if (!made.has(column)) made.set(column, cards[column]());
    return made.get(column);
  };
  const fill = () => {
    grid.replaceChildren(...order.slice(0, all ? order.length : FIRST_SHOWN).map(card));
    more.hidden = all;
  };
  fill();
  target.append(grid, element("p", {}, more));
  return (which) => { order = which === "worst" ? worst : table; fill(); };
}
const byColumn = columns.map((_, column) => column);
const ORDERS = [["table", "as in the table"], ["worst", "worst first"]];

function marginalCard(column) {
  const own = record.marginals.columns[column];
  const chart = histogram(`Distribution of ${columns[column]}, data against samples`, {
    edges: own.edges,
    series: [{ name: "data", kind: "data", shares: own.data }, { name: "samples", kind: "samples", shares: own.samples }],
  });
  const apart = own.distance > own.chance;
  const beyond = own.beyond.some((share) => share >= 0.001)
    ? ` Beyond the edges: ${percent(own.beyond[0])} of the data, ${percent(own.beyond[1])} of the samples.` : "";
  return element("figure", { class: apart ? "off" : null }, element("h3", {}, named(column)), chart.holder,
    element("figcaption", {}, "Distance ", element("strong", {}, pretty(own.distance, 2)),
      apart ? "; more than " : "; within ", `what chance explains (${pretty(own.chance, 2)}).`, beyond));
}

function showMarginals() {
  const target = section("marginals");
  const { rows, samples } = record.marginals;
  target.append(paragraph(`Shares of ${count(rows)} rows of the data and of ${count(samples)} rows drawn from the model. ` +
    "The distance is the largest between their cumulative distributions, which chance alone keeps below the value given in 19 of 20 cases."));
  const controls = element("div", { class: "controls" });
  target.append(controls);
  const excess = (c) => record.marginals.columns[c].distance;
  const sort = gallery(target, byColumn.map((c) => () => marginalCard(c)),
    { table: byColumn, worst: [...byColumn].sort((a, b) => excess(b) - excess(a)) });
  const toggle = (what) => (on) => target.classList.toggle("without-" + what, !on);
  controls.append(element("fieldset", {}, element("legend", {}, "Shown"),
    checkbox("data", "data", true, toggle("data")), checkbox("samples", "samples", true, toggle("samples"))),
    chooser("Order", ORDERS, "table", sort));
}
