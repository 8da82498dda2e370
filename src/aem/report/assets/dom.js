// Elements from text alone: nothing here ever parses markup.
const record = JSON.parse(document.getElementById("data").textContent);
const columns = record.columns;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== null) made.textContent = text;
  return made;
}

const section = (id) => document.getElementById(id);
const paragraph = (text, kind = null) => element("p", { class: kind }, text);
// A column's name may be written in any direction; it must not turn its surroundings around.
const named = (column) => element("bdi", {}, columns[column]);

function checkbox(label, swatch, checked, change) {
  const box = element("input", { type: "checkbox", onchange: () => change(box.checked) });
  box.checked = checked;
  return element("label", {}, box, swatch ? element("span", { class: "swatch " + swatch }) : null, label);
}

function chooser(label, options, chosen, change) {
  const list = element("select", { onchange: () => change(list.value) },
    options.map(([value, text]) => element("option", { value }, text)));
  list.value = String(chosen);
  return element("label", {}, label, list);
}

// One floating line for all charts; it is a live region, so the keyboard is heard too.
const tip = section("tip");
function showTip(text, x, y) {
  if (tip.textContent !== text) tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(x - box.width / 2, 6), window.innerWidth - box.width - 6);
  const above = y - box.height - 14;
  tip.style.left = left + "px";
  tip.style.top = (above > 4 ? above : y + 18) + "px";
}
function hideTip() { tip.hidden = true; }

// Pictures are drawn again when their room or the colours change.
const redraws = new Set();
function mount(holder, draw) {
  let width = 0;
  const redraw = () => { if (width > 0) draw(width); };
  new ResizeObserver((entries) => {
    const now = Math.floor(entries[0].contentRect.width);
    if (now > 0 && now !== width) { width = now; redraw(); }
  }).observe(holder);
  redraws.add(redraw);
  return redraw;
}

// A heading a reader can sort by, with mouse or keyboard.
function sortable(heading, name, sort) {
  heading.dataset.name = name;
  heading.setAttribute("aria-sort", "none");
  heading.append(element("button", { type: "button", onclick: () => {
    const descending = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentElement.children) {
      if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    }
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    sort(descending ? -1 : 1);
  } }, name));
  return heading;
}
