// Settings and versions, in tabs.
function facts(rows) {
  return element("div", { class: "scroll" }, element("table", {}, element("tbody", {},
    rows.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value))))));
}

function columnTable() {
  const head = ["column", "mean", "deviation", "treated as"];
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Columns" },
    element("table", { class: "stack" },
      element("thead", {}, element("tr", {}, head.map((name) => element("th", { scope: "col", "data-name": "" }, name)))),
      element("tbody", {}, record.making.columns.map((own) => element("tr", {},
        element("th", { scope: "row", class: "name" }, named(own.column)),
        element("td", { "data-label": "mean" }, pretty(own.mean)),
        element("td", { "data-label": "deviation" }, pretty(own.deviation)),
        element("td", {}, own.treatment))))));
}

function showMaking() {
  const own = record.making;
  const tabs = [["The fit", facts(own.origin)], ["Columns", columnTable()], ["Model settings", facts(own.settings)]];
  if (own.training.length) tabs.push(["Training settings", facts(own.training)]);
  tabs.push(["This report", facts(own.report)]);
  const list = element("div", { role: "tablist", "aria-label": "How it was made" });
  const panels = tabs.map(([name, content], i) => element("div", { role: "tabpanel", id: `panel-${i}`, "aria-labelledby": `tab-${i}`, hidden: i > 0 }, content));
  const buttons = tabs.map(([name], i) => element("button", { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": `panel-${i}`,
    "aria-selected": String(i === 0), tabindex: i ? -1 : 0, onclick: () => select(i) }, name));
  const select = (chosen) => buttons.forEach((button, i) => {
    button.setAttribute("aria-selected", String(i === chosen));
    button.tabIndex = i === chosen ? 0 : -1;
    panels[i].hidden = i !== chosen;
  });
  list.addEventListener("keydown", (event) => {
    const now = buttons.indexOf(document.activeElement);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (now < 0 || next === undefined) return;
    event.preventDefault();
    const chosen = (next + buttons.length) % buttons.length;
    select(chosen);
    buttons[chosen].focus();
  });
  list.append(...buttons);
  section("making").append(list, ...panels);
}
