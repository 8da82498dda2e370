// PIT histograms: flat if the model is right.
function calibrationCard(column) {
  const { columns: all, edges, band, rows } = record.calibration;
  const own = all[column];
  const chart = histogram(`Calibration of ${columns[column]}`, {
    edges, band, height: 150,
    series: [{ name: "rows", kind: "data", shares: own.shares }],
    tellBin: (i) => `PIT ${pretty(edges[i], 2)} to ${pretty(edges[i + 1], 2)}\nflat would be ${percent(1 / own.shares.length)}`,
  });
  return element("figure", { class: own.off ? "off" : null }, element("h3", {}, named(column)), chart.holder,
    element("figcaption", {}, element("strong", {}, own.off ? "Off: " + own.shape : "As chance allows"),
      `. Distance from flat ${pretty(own.distance, 2)}; chance alone exceeds it with probability ${own.p < 0.001 ? "below 0.001" : pretty(own.p, 2)}.`));
}

function showCalibration() {
  const target = section("calibration");
  const { rows, columns: all } = record.calibration;
  const off = all.filter((c) => c.off).length;
  target.append(
    paragraph("Each value has a place in the distribution the model expects for it, given the columns before it: 0 at its lowest end, 1 at its highest. " +
      `If the model is right, these places (PIT values) are spread evenly. Of ${count(rows)} rows chosen at random:`),
    element("p", { class: "note" }, element("span", { class: "swatch band" }),
      " where 19 of 20 bars lie if the model is right. A hump in the middle: values scatter less than expected; a bowl: more; a slope: they lie higher or lower."),
    paragraph(off ? `${count(off)} of ${count(all.length)} columns differ from even by more than chance allows.`
      : "No column differs from even by more than chance allows.", off ? "warn" : null));
  const controls = element("div", { class: "controls" });
  target.append(controls);
  const sort = gallery(target, byColumn.map((c) => () => calibrationCard(c)),
    { table: byColumn, worst: [...byColumn].sort((a, b) => all[a].p - all[b].p) });
  controls.append(chooser("Order", ORDERS, "table", sort));
}
