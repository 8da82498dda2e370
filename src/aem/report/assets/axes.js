// Scales and ticks.
function ticks(low, high, about) {
  const raw = (high - low) / Math.max(about, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999) ?? raw;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}
function powerTicks(low, high, about) {
  const found = [];
  // Over less than two powers of ten, round numbers between them help.
  if (high / low < 100) {
    for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++) {
      for (const m of high / low < 4 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9] : [1, 2, 5]) {
        const mark = Number((m * 10 ** p).toPrecision(3));
        if (mark >= low && mark <= high) found.push(mark);
      }
    }
    const few = Math.ceil(found.length / Math.max(about, 2));
    return found.length ? found.filter((_, i) => i % few === 0) : [Number(low.toPrecision(2))];
  }
  const every = Math.max(Math.ceil((Math.log10(high) - Math.log10(low)) / about), 1);
  for (let p = Math.ceil(Math.log10(low) - 1e-9); p <= Math.log10(high) + 1e-9; p += every) found.push(10 ** p);
  return found.length > 1 ? found : [low, high];
}
function scale(low, high, from, to, logarithmic = false) {
  const place = logarithmic ? Math.log : (x) => x;
  const [a, b] = [place(low), place(high)];
  return (x) => from + ((place(x) - a) / (b - a || 1)) * (to - from);
}

// A frame with both axes; returns the drawing and where things go.
function frame(width, height, { x, y, xLabel, yLabel, yFormat = (v) => pretty(v, 3), logarithmic = false, left = 46 }) {
  const box = { left, right: width - 10, top: 10, bottom: height - (xLabel ? 38 : 22) };
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const toX = scale(x[0], x[1], box.left, box.right, logarithmic);
  const toY = scale(y[0], y[1], box.bottom, box.top);
  const room = (box.right - box.left) / 62;
  const marks = logarithmic ? powerTicks(x[0], x[1], room) : ticks(x[0], x[1], room);
  svg.append(drawn("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  for (const mark of marks) {
    const at = toX(mark);
    if (at < box.left - 1 || at > box.right + 1) continue;
    const text = pretty(mark, 4);
    // Labels at the ends lean inwards, so that none is cut off.
    const reach = 3.2 * text.length;
    const anchor = at + reach > width ? "end" : at - reach < 0 ? "start" : "middle";
    svg.append(drawn("line", { class: "axis", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }),
      drawn("text", { x: at, y: box.bottom + 16, "text-anchor": anchor }, text));
  }
  for (const mark of ticks(y[0], y[1], (box.bottom - box.top) / 38)) {
    const at = toY(mark);
    svg.append(drawn("line", { class: "axis", x1: box.left, x2: box.right, y1: at, y2: at, "stroke-opacity": 0.6 }),
      drawn("text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, yFormat(mark)));
  }
  if (xLabel) svg.append(drawn("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel));
  if (yLabel) {
    const middle = (box.top + box.bottom) / 2;
    svg.append(drawn("text", { x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, yLabel));
  }
  return { svg, box, toX, toY };
}
const shortened = (text, most = 34) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);

// A chart is a slider over its places: pointer and arrow keys move the same cursor.
function explorable(holder, label, places, { at, mark, tell }) {
  let current = -1;
  holder.className = "chart";
  holder.tabIndex = 0;
  holder.setAttribute("role", "slider");
  holder.setAttribute("aria-label", `${label}. Arrow keys read its values`);
  holder.setAttribute("aria-valuemin", 0);
  holder.setAttribute("aria-valuemax", Math.max(places - 1, 0));
  holder.setAttribute("aria-valuenow", 0);
  holder.setAttribute("aria-valuetext", places ? tell(0) : "empty");
  const show = (place, x, y) => {
    current = Math.min(Math.max(place, 0), places - 1);
    const where = mark(current);
    holder.setAttribute("aria-valuenow", current);
    holder.setAttribute("aria-valuetext", tell(current));
    const box = holder.getBoundingClientRect();
    showTip(tell(current), x ?? box.left + where, y ?? box.top + 12);
  };
  const leave = () => { mark(-1); hideTip(); };
  holder.addEventListener("pointermove", (event) => {
    const place = at(event.clientX - holder.getBoundingClientRect().left);
    if (place === null) leave(); else show(place, event.clientX, event.clientY);
  });
  holder.addEventListener("pointerleave", leave);
  holder.addEventListener("blur", leave);
  holder.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 };
    if (event.key === "Escape") { leave(); return; }
    if (event.key === "Home") show(0);
    else if (event.key === "End") show(places - 1);
    else if (event.key in moves) show(current + moves[event.key]);
    else return;
    event.preventDefault();
  });
}
