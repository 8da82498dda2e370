// How exact the scores are, and what that took.
function showNormaliser() {
  const target = section("normaliser");
  const own = record.normaliser;
  if (own.exact === own.rows) {
    target.append(paragraph("Every conditional is a mixture of Gaussians, without an energy to correct it: its normaliser is known, and there is no error to show."));
    return;
  }
  target.append(paragraph(`A density has to integrate to one. For every value the integral is computed, with as many nodes as it takes to keep the error of a row’s log density below ${own.tolerance} nats. ` +
    (own.missed ? `${count(own.missed)} of ${count(own.rows)} rows missed that` : `All ${count(own.rows)} scored rows meet that`) +
    (own.exact ? `; ${count(own.exact)} of them have no error to speak of, because their normalisers are known exactly.` : ".")));
  const charts = element("div", { class: "two" });
  if (own.errors.edges.length) charts.append(element("figure", {}, element("h3", {}, "Estimated error of each row’s log density"),
    histogram("Estimated errors", { edges: own.errors.edges, logarithmic: true, height: 200, xLabel: "nats", yLabel: "rows",
      series: [{ name: "rows", kind: "plain", shares: own.errors.series.error }] }).holder,
    element("figcaption", {}, `Mean ${pretty(own.mean_error, 2)}, largest ${pretty(own.largest_error, 2)}.`)));
  if (own.nodes.edges.length) charts.append(element("figure", {}, element("h3", {}, "Nodes of each normaliser"),
    histogram("Nodes", { edges: own.nodes.edges, logarithmic: true, height: 200, xLabel: "nodes", yLabel: "normalisers",
      series: [{ name: "normalisers", kind: "plain", shares: own.nodes.series.nodes }] }).holder,
    element("figcaption", {}, `Of ${count(own.counted)} rows: ${pretty(own.mean_nodes, 3)} on average, ${count(own.most_nodes)} at most.`)));
  target.append(charts);
  const most = Math.max(...own.columns.map((c) => c.nodes));
  const hardest = own.columns.findIndex((c) => c.nodes === most);
  target.append(element("p", {}, "The column that takes most nodes is ", named(hardest), `, ${pretty(most, 3)} on average.`));
}

function showScores() {
  const own = record.scores;
  if (!own.edges.length) return;
  const beyond = own.beyond.data > 0 ? ` ${percent(own.beyond.data)} of the data lie beyond the edges; the lowest scored ${pretty(own.lowest, 5)}.` : "";
  section("scores").append(element("figure", {}, element("h3", {}, "Log densities of rows and of samples"),
    histogram("Log densities, data against samples", { edges: own.edges, height: 210, xLabel: "log density of a row (nats)", yLabel: "rows",
      series: [{ name: "data", kind: "data", shares: own.series.data }, { name: "samples", kind: "samples", shares: own.series.samples }] }).holder,
    element("figcaption", {}, element("span", { class: "swatch data" }), ` ${count(own.rows)} rows of the data, mean ${pretty(own.mean, 4)}  `,
      element("span", { class: "swatch samples" }), ` ${count(own.samples)} samples, mean ${pretty(own.mean_samples, 4)}. If the model is right, both look alike.` + beyond)));
}
