// Histograms: filled steps for data, a line of steps for samples, a band for what chance allows.
function histogram(label, { edges, series, band = null, logarithmic = false, height = 170, xLabel = null,
  yLabel = null, tellBin = null }) {
  const holder = element("div");
  const bins = edges.length - 1;
  const top = Math.max(...series.flatMap((s) => s.shares), band ? band[1] : 0, 1e-9) * 1.06;
  let view = null;
  let cursor = null;
  const redraw = mount(holder, (width) => {
    view = frame(width, height, { x: [edges[0], edges[bins]], y: [0, top], xLabel, yLabel, logarithmic,
      yFormat: (v) => pretty(100 * v, 3) + "%", left: yLabel ? 54 : 42 });
    const { svg, box, toX, toY } = view;
    if (band) svg.append(drawn("rect", { class: "band", x: box.left, width: box.right - box.left,
      y: toY(band[1]), height: toY(band[0]) - toY(band[1]) }));
    for (const { shares, kind } of series) {
      const corners = shares.map((share, i) => `L${toX(edges[i])},${toY(share)}L${toX(edges[i + 1])},${toY(share)}`).join("");
      const outline = `M${toX(edges[0])},${toY(0)}${corners}L${toX(edges[bins])},${toY(0)}`;
      if (kind !== "samples") svg.append(drawn("path", { class: kind + "-bar", d: outline + "Z" }));
      if (kind !== "plain") svg.append(drawn("path", { class: kind + "-line", d: outline }));
    }
    cursor = drawn("rect", { class: "cursor", y: box.top, height: box.bottom - box.top, width: 0 });
    svg.append(cursor);
    holder.replaceChildren(svg);
  });
  const tell = (i) => {
    const from = tellBin ? tellBin(i) : `${pretty(edges[i])} to ${pretty(edges[i + 1])}`;
    return [from, ...series.map((s) => `${s.name}: ${percent(s.shares[i])}`)].join("\n");
  };
  explorable(holder, label, bins, {
    tell,
    at: (x) => {
      if (!view || x < view.box.left || x > view.box.right) return null;
      for (let i = 0; i < bins; i++) if (x <= view.toX(edges[i + 1])) return i;
      return bins - 1;
    },
    mark: (i) => {
      if (!view) return 0;
      const from = i < 0 ? 0 : view.toX(edges[i]);
      const to = i < 0 ? 0 : view.toX(edges[i + 1]);
      cursor.setAttribute("x", from);
      cursor.setAttribute("width", to - from);
      return (from + to) / 2;
    },
  });
  return { holder, redraw };
}
