"use strict";
// The page from top to bottom, drawn again when the language or the colours of the system change.

const DARK = window.matchMedia("(prefers-color-scheme: dark)");

function languageButtons() {
  const one = (language, title) =>
    button(
      title,
      () => {
        state.language = language;
        draw();
        document.querySelector(`button[data-language="${language}"]`).focus();
      },
      { "data-language": language, lang: language, "aria-pressed": String(state.language === language) },
    );
  return el(
    "div",
    { class: "language", role: "group", "aria-label": "Language / 语言" },
    one("en", "English"),
    one("zh", "中文"),
  );
}

function header(sections) {
  const several = data.runs.length > 1;
  const name = several ? t("title_several", { n: data.runs.length }) : data.runs[0].name;
  const links = sections.map((one) => el("a", { href: `#${one.id}` }, one.querySelector("h2").textContent));
  return el(
    "header",
    {},
    languageButtons(),
    el("p", { class: "soft kicker" }, t("kicker")),
    el("h1", {}, name),
    factsSection(),
    el("nav", { "aria-label": t("contents") }, links),
  );
}

function draw() {
  const top = window.scrollY;
  document.documentElement.lang = state.language;
  const sections = [heldOutSection(), chartsSection(), comparisonSection(), groupsSection(), settingsSection()].filter(
    Boolean,
  );
  document.getElementById("report").replaceChildren(header(sections), ...sections);
  if (data.groups.length) listGroups();
  redrawCharts();
  window.scrollTo(0, top);
}

draw();
DARK.addEventListener("change", redrawCharts);
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return; // a phone hides its address bar
  width = window.innerWidth;
  redrawCharts();
});
