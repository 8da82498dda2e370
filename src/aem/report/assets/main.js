// Colours follow the system until told otherwise.
function colours() {
  const button = section("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const names = { auto: "as the system has them", light: "light", dark: "dark" };
  let theme = "auto";
  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.setAttribute("aria-label", "Colours: " + names[theme]);
    button.querySelector("span").textContent = theme;
    for (const redraw of redraws) redraw();
  };
  button.addEventListener("click", () => { theme = { auto: "light", light: "dark", dark: "auto" }[theme]; apply(); });
  system.addEventListener("change", apply);
}

showScores();
showSurprises();
showMarginals();
showPairs();
showCalibration();
showTraining();
showNormaliser();
showMaking();
colours();
document.addEventListener("scroll", hideTip, { passive: true });
