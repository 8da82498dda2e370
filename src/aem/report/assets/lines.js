// Curves over a common x, with a cursor that jumps from point to point.
function curves(label, { x, series, marks = [], height = 240, xLabel = null, yLabel = null, zero = false, bars = false, left = 54 }) {
  const holder = element("div");
  const known = series.flatMap((s) => s.values).filter((v) => v !== null);
  const low = zero ? 0 : Math.min(...known);
  const high = Math.max(...known);
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  const gap = bars ? (x.length > 1 ? x[1] - x[0] : 1) : 0;
  const span = [x[0] - gap / 2, x[x.length - 1] + gap / 2];
  if (!(span[1] > span[0])) { span[0] -= 0.5; span[1] += 0.5; }
  let view = null;
  let cursor = null;
  mount(holder, (width) => {
    view = frame(width, height, { x: span, y: [zero ? 0 : low - margin, high + margin], xLabel, yLabel, left,
      yFormat: (v) => pretty(v, 4) });
    const { svg, box, toX, toY } = view;
    for (const { values, kind, cut = null } of series) {
      if (bars) {
        const broad = Math.max((toX(x[0] + gap) - toX(x[0])) * 0.8, 1);
        values.forEach((v, i) => svg.append(drawn("rect", { class: kind + "-bar", x: toX(x[i]) - broad / 2, width: broad,
          y: toY(v), height: Math.max(box.bottom - toY(v), 0) })));
        continue;
      }
      let pen = "M";
      const path = values.map((v, i) => {
        if (v === null) { pen = "M"; return ""; }
        if (cut !== null && i > 0 && x[i - 1] <= cut && x[i] > cut) pen = "M";
        const point = `${pen}${toX(x[i]).toFixed(1)},${toY(v).toFixed(1)}`;
        pen = "L";
        return point;
      }).join("");
      svg.append(drawn("path", { class: kind + "-line", d: path }));
    }
    for (const { at, text } of marks) {
      const where = toX(at);
      const end = where > (box.left + box.right) / 2;
      svg.append(drawn("line", { class: "here", x1: where, x2: where, y1: box.top, y2: box.bottom }),
        drawn("circle", { class: "mark", cx: where, cy: box.bottom, r: 4 }),
        drawn("text", { x: where + (end ? -6 : 6), y: box.top + 9, "text-anchor": end ? "end" : "start" }, text));
    }
    cursor = drawn("rect", { class: "cursor", y: box.top, height: box.bottom - box.top, width: 0 });
    svg.append(cursor);
    holder.replaceChildren(svg);
  });
  explorable(holder, label, x.length, {
    tell: (i) => [`${xLabel ?? "at"} ${pretty(x[i])}`,
      ...series.map((s) => `${s.name}: ${pretty(s.values[i])}`)].join("\n"),
    at: (px) => {
      if (!view || px < view.box.left - 8 || px > view.box.right + 8) return null;
      let best = 0;
      x.forEach((value, i) => { if (Math.abs(view.toX(value) - px) < Math.abs(view.toX(x[best]) - px)) best = i; });
      return best;
    },
    mark: (i) => {
      if (!view) return 0;
      const where = i < 0 ? 0 : view.toX(x[i]);
      cursor.setAttribute("x", where - 1.5);
      cursor.setAttribute("width", i < 0 ? 0 : 3);
      return where;
    },
  });
  return holder;
}
