// Two columns at a time: as densities side by side, or as points over each other.
const CELLS = 36;

function showPairs() {
  const target = section("pairs");
  const points = record.points;
  const sets = {
    data: unpack(points.data.packed, points.data.rows),
    samples: unpack(points.samples.packed, points.samples.rows),
  };
  target.append(paragraph(`${count(points.data.rows)} rows of the data and ${count(points.samples.rows)} samples, chosen at random. ` +
    "The closer the samples come to the data, the better the model knows how the two columns belong together."));
  if (columns.length < 2) {
    target.append(paragraph("The table has one column, so there are no pairs.", "note"));
    return;
  }
  const chosen = { x: 0, y: 1, view: "density", data: true, samples: true, odd: false };
  const panels = { data: panel("Data"), samples: panel("Samples"), both: panel("Data and samples") };
  const holder = element("div", { class: "two" });
  const said = element("p", { class: "note", role: "status" });

  function panel(name) {
    const canvas = element("canvas", { role: "img", tabindex: 0 });
    const figure = element("figure", {}, element("h3", {}, name), canvas);
    return { name, canvas, figure };
  }
  const cellsOf = (column) => {
    const step = points.steps[column];
    if (!step) return CELLS;
    const [low, high] = points.ranges[column];
    const values = Math.round((high - low) / step);
    return values >= 1 && values <= 2 * CELLS ? values : CELLS;
  };
  function counts(set) {
    const [xs, ys] = [sets[set](chosen.x), sets[set](chosen.y)];
    const [nx, ny] = [cellsOf(chosen.x), cellsOf(chosen.y)];
    const grid = new Float32Array(nx * ny);
    for (let i = 0; i < xs.length; i++) {
      if (Number.isNaN(xs[i]) || Number.isNaN(ys[i])) continue;
      const cx = Math.min(Math.floor(xs[i] * nx), nx - 1);
      grid[Math.min(Math.floor(ys[i] * ny), ny - 1) * nx + cx] += 1 / xs.length;
    }
    return { grid, nx, ny };
  }
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const rgb = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));

  function prepare(canvas, width) {
    const height = Math.round(Math.min(width * 0.82, 420));
    const dense = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = width * dense;
    canvas.height = height * dense;
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    return { pen, width, height, left: 56, right: width - 8, top: 8, bottom: height - 40 };
  }
  function axes(area) {
    const { pen, left, right, top, bottom, height } = area;
    pen.strokeStyle = colour("rule");
    pen.fillStyle = colour("faint");
    pen.font = "11px system-ui, sans-serif";
    pen.strokeRect(left, top, right - left, bottom - top);
    const [xr, yr] = [points.ranges[chosen.x], points.ranges[chosen.y]];
    pen.textAlign = "center";
    for (const mark of ticks(xr[0], xr[1], (right - left) / 70)) {
      const at = left + ((mark - xr[0]) / (xr[1] - xr[0])) * (right - left);
      pen.fillText(pretty(mark, 3), Math.min(at, right - 10), bottom + 14);
    }
    pen.textAlign = "right";
    for (const mark of ticks(yr[0], yr[1], (bottom - top) / 45)) {
      pen.fillText(pretty(mark, 3), left - 5, bottom - ((mark - yr[0]) / (yr[1] - yr[0])) * (bottom - top) + 4);
    }
    pen.fillStyle = colour("ink");
    pen.textAlign = "center";
    pen.fillText(shortened(columns[chosen.x], 44), (left + right) / 2, height - 6);
    pen.save();
    pen.translate(10, (top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(shortened(columns[chosen.y], 34), 0, 0);
    pen.restore();
  }
  function ringOdd(area) {
    if (!chosen.odd) return;
    area.pen.strokeStyle = colour("ink");
    area.pen.lineWidth = 1.5;
    for (const row of record.surprises.rows) {
      const at = [chosen.x, chosen.y].map((c, k) => {
        const [low, high] = points.ranges[c];
        const share = Math.min(Math.max((row.values[c] - low) / (high - low), 0), 1);
        return k ? area.bottom - share * (area.bottom - area.top) : area.left + share * (area.right - area.left);
      });
      area.pen.beginPath();
      area.pen.arc(at[0], at[1], 5, 0, 2 * Math.PI);
      area.pen.stroke();
    }
    area.pen.lineWidth = 1;
  }
  function density(which, width, most) {
    const { canvas } = panels[which];
    const area = prepare(canvas, width);
    const { grid, nx, ny } = counts(which);
    const [from, to] = [rgb(colour("card")), rgb(colour(which))];
    const [w, h] = [(area.right - area.left) / nx, (area.bottom - area.top) / ny];
    for (let j = 0; j < ny; j++) for (let i = 0; i < nx; i++) {
      const share = grid[j * nx + i];
      if (!share) continue;
      // The root lets thin regions be seen beside dense ones.
      const depth = 0.08 + 0.92 * Math.sqrt(Math.min(share / most, 1));
      area.pen.fillStyle = `rgb(${from.map((c, k) => Math.round(c + (to[k] - c) * depth)).join(",")})`;
      area.pen.fillRect(area.left + i * w, area.bottom - (j + 1) * h, w + 0.5, h + 0.5);
    }
    if (which === "data") ringOdd(area);
    axes(area);
  }
  function scattered(which, width, names) {
    const area = prepare(panels[which].canvas, width);
    for (const name of names) {
      const [xs, ys] = [sets[name](chosen.x), sets[name](chosen.y)];
      area.pen.fillStyle = colour(name);
      area.pen.globalAlpha = xs.length > 1500 ? 0.35 : 0.55;
      for (let i = 0; i < xs.length; i++) {
        if (Number.isNaN(xs[i]) || Number.isNaN(ys[i])) continue;
        const [x, y] = [area.left + xs[i] * (area.right - area.left), area.bottom - ys[i] * (area.bottom - area.top)];
        if (name === "data") area.pen.fillRect(x - 1.1, y - 1.1, 2.2, 2.2);
        else { area.pen.beginPath(); area.pen.arc(x, y, 1.3, 0, 7); area.pen.fill(); }
      }
      area.pen.globalAlpha = 1;
    }
    if (names.includes("data")) ringOdd(area);
    axes(area);
  }
  const hidden = (set) => {
    const [xs, ys] = [sets[set](chosen.x), sets[set](chosen.y)];
    let lost = 0;
    for (let i = 0; i < xs.length; i++) if (Number.isNaN(xs[i]) || Number.isNaN(ys[i])) lost += 1;
    return lost / xs.length;
  };
  let most = 1;
  function draw() {
    const shown = ["data", "samples"].filter((name) => chosen[name]);
    const list = chosen.view === "overlay" ? ["both"] : shown;
    const wanted = list.map((name) => panels[name].figure);
    if (wanted.length !== holder.children.length || wanted.some((f, i) => holder.children[i] !== f)) holder.replaceChildren(...wanted);
    // One scale for both, set by the densest cell of either.
    most = Math.max(...["data", "samples"].flatMap((s) => [counts(s).grid.reduce((a, b) => Math.max(a, b), 0)]));
    for (const name of list) {
      const { canvas, figure, name: title } = panels[name];
      const width = Math.floor(figure.clientWidth - 30);
      if (width < 60) continue;
      canvas.setAttribute("aria-label", `${title}: ${columns[chosen.y]} against ${columns[chosen.x]}`);
      if (chosen.view === "density") density(name, width, most);
      else scattered(name, width, name === "both" ? shown : [name]);
    }
    const lost = [hidden("data"), hidden("samples")];
    said.textContent = (chosen.view === "density"
      ? `The densest cell holds ${percent(most)} of the rows; both pictures share the scale, which grows with the square root. `
      : "") + (lost.some((l) => l > 0) ? `Beyond the edges: ${percent(lost[0])} of the data, ${percent(lost[1])} of the samples.` : "");
  }
  function tellCell(which, canvas, clientX, clientY) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [(clientX - box.left - 56) / (box.width - 64), (box.bottom - clientY - 40) / (box.height - 48)];
    if (x < 0 || x > 1 || y < 0 || y > 1) { hideTip(); return; }
    const value = (column, share) => points.ranges[column][0] + share * (points.ranges[column][1] - points.ranges[column][0]);
    const lines = [`${shortened(columns[chosen.x], 24)} ${pretty(value(chosen.x, x))}`, `${shortened(columns[chosen.y], 24)} ${pretty(value(chosen.y, y))}`];
    for (const set of ["data", "samples"]) {
      const { grid, nx, ny } = counts(set);
      const cell = Math.min(Math.floor(y * ny), ny - 1) * nx + Math.min(Math.floor(x * nx), nx - 1);
      lines.push(`${set}: ${percent(grid[cell])} of the rows here`);
    }
    showTip(lines.join("\n"), clientX, clientY);
  }
  for (const [which, { canvas }] of Object.entries(panels)) {
    const place = { x: 0.5, y: 0.5 };
    canvas.addEventListener("pointermove", (event) => tellCell(which, canvas, event.clientX, event.clientY));
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("blur", hideTip);
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
      if (event.key === "Escape") hideTip();
      if (!(event.key in moves)) return;
      event.preventDefault();
      place.x = Math.min(Math.max(place.x + moves[event.key][0] / CELLS, 0), 1);
      place.y = Math.min(Math.max(place.y + moves[event.key][1] / CELLS, 0), 1);
      const box = canvas.getBoundingClientRect();
      tellCell(which, canvas, box.left + 56 + place.x * (box.width - 64), box.bottom - 40 - place.y * (box.height - 48));
    });
  }
  const options = columns.map((name, column) => [column, shortened(name, 60)]);
  const pick = (axis) => (value) => { chosen[axis] = Number(value); draw(); };
  const across = chooser("across", options, chosen.x, pick("x"));
  const up = chooser("up", options, chosen.y, pick("y"));
  const [listX, listY] = [across.querySelector("select"), up.querySelector("select")];
  const show = (x, y) => { Object.assign(chosen, { x, y }); listX.value = x; listY.value = y; draw(); };
  const pairs = byColumn.flatMap((x) => byColumn.slice(x + 1).map((y) => [x, y]));
  const step = (by) => () => {
    const now = pairs.findIndex(([x, y]) => x === Math.min(chosen.x, chosen.y) && y === Math.max(chosen.x, chosen.y));
    show(...pairs[(Math.max(now, 0) + by + pairs.length) % pairs.length]);
  };
  const views = [["density", "densities"], ["points", "points"], ["overlay", "points together"]].map(([value, text]) => {
    const radio = element("input", { type: "radio", name: "view", value, onchange: () => { chosen.view = value; draw(); } });
    radio.checked = value === chosen.view;
    return element("label", {}, radio, text);
  });
  const set = (what) => (on) => { chosen[what] = on; draw(); };
  target.append(element("div", { class: "controls" }, across, up,
    element("button", { type: "button", onclick: step(-1) }, "Previous pair"),
    element("button", { type: "button", onclick: step(1) }, "Next pair")),
  element("div", { class: "controls" },
    element("fieldset", {}, element("legend", {}, "View"), views),
    element("fieldset", {}, element("legend", {}, "Shown"),
      checkbox("data", "dot data", true, set("data")), checkbox("samples", "dot samples", true, set("samples")),
      checkbox("circle the most surprising rows", null, false, set("odd")))),
  holder, said);
  mount(holder, draw);
}
