"use strict";
// The page: one group at a time, its work kept in the browser and saved to a file.

const LETTERS = "ABCDEFGH";
const KEY = `${data.format}:${data.id}`;
const work = {
  annotator: "",
  at: 0,
  groups: data.groups.map((group) => ({
    scores: group.mt_texts.map(() => null),
    spans: group.mt_texts.map(() => []),
  })),
};
let said = "";

try {
  Object.assign(work, JSON.parse(localStorage.getItem(KEY) || "{}"));
} catch {
  said = t("not_kept");
}

function keep() {
  try {
    localStorage.setItem(KEY, JSON.stringify(work));
  } catch {
    say(t("not_kept"));
  }
}

function say(text) {
  said = text;
  const line = document.getElementById("said"); // not there yet while the page is drawn
  if (line) line.textContent = text;
}

function download() {
  if (!work.annotator.trim()) {
    say(t("name_first"));
    document.querySelector(".who input").focus();
    return;
  }
  const groups = data.groups.map((group, i) => ({ ...group, ...work.groups[i] }));
  const content = { format: data.format, id: data.id, annotator: work.annotator.trim(), groups };
  const url = URL.createObjectURL(new Blob([JSON.stringify(content)], { type: "application/json" }));
  const name = work.annotator.trim().replace(/[^\p{L}\p{N}]+/gu, "-");
  const file = `annotation-${data.id}-${name}.json`;
  el("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
  say(t("saved", { file }));
}

function go(step) {
  work.at = Math.min(Math.max(work.at + step, 0), data.groups.length - 1);
  keep();
  draw();
  window.scrollTo(0, 0);
}

/** The card of a candidate: its text, the buttons for what is selected, the errors, the score. */
function candidate(group, own, i) {
  const text = group.mt_texts[i];
  const shown = el("p", { class: "target", tabindex: "0", lang: group.trg_lang, dir: "auto" });
  const errors = el("ul", { class: "errors" });
  const title = t("candidate", { name: LETTERS[i] });
  shown.setAttribute("aria-label", `${title}: ${text}`);
  let cursor = null;

  const refresh = () => {
    shown.replaceChildren(...markedText(text, own.spans[i]));
    errors.replaceChildren(...own.spans[i].map((span, at) => error(span, at)));
    keep();
    progress();
  };
  const error = (span, at) => {
    const wrong = [...text].slice(span.start, span.end).join("") || t("missing");
    const other = span.severity === "minor" ? "major" : "minor";
    const change = () => {
      own.spans[i][at] = { ...span, severity: other };
      refresh();
    };
    const remove = () => {
      own.spans[i].splice(at, 1);
      refresh();
      shown.focus();
    };
    return el(
      "li",
      {},
      el("span", { class: "wrong", dir: "auto" }, wrong),
      button(t(span.severity), change, { class: span.severity, "aria-label": `${t(span.severity)} → ${t(other)}` }),
      button("×", remove, { "aria-label": `${t("remove")}: ${wrong}` }),
    );
  };
  const mark = (severity, missing) => {
    const end = length(text);
    const span = missing ? { start: end, end } : selectedSpan(shown);
    if (span === null) return say(t("nothing"));
    const overlaps = (one) => (missing ? one.start === end : span.start < one.end && one.start < span.end);
    if (own.spans[i].some(overlaps)) return say(t("overlap"));
    own.spans[i].push({ ...span, severity });
    window.getSelection().removeAllRanges();
    say("");
    refresh();
  };
  shown.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      cursor = chooseWords(shown, event.key, event.shiftKey, cursor);
      event.preventDefault();
    } else if (event.key === "1") mark("minor", false);
    else if (event.key === "2") mark("major", false);
    else if (event.key === "3") mark("major", true);
  });

  const value = el("output", {}, own.scores[i] ?? t("unset"));
  const slider = el("input", { type: "range", min: 0, max: 100, step: 1, value: own.scores[i] ?? 50 });
  slider.setAttribute("aria-label", `${t("score")}, ${title}`);
  slider.classList.toggle("unset", own.scores[i] === null);
  const rate = () => {
    own.scores[i] = Number(slider.value);
    value.textContent = slider.value;
    slider.classList.remove("unset");
    keep();
    progress();
  };
  for (const name of ["input", "change", "pointerup"]) slider.addEventListener(name, rate);

  // A press of the button must not take the selection away.
  const hold = { onpointerdown: (event) => event.preventDefault(), onmousedown: (event) => event.preventDefault() };
  const buttons = el(
    "div",
    { class: "mark-as" },
    button(t("minor"), () => mark("minor", false), { class: "minor", ...hold }),
    button(t("major"), () => mark("major", false), { class: "major", ...hold }),
    button(t("omission"), () => mark("major", true), hold),
  );
  refresh();
  const score = el("div", { class: "score" }, el("span", {}, t("score")), slider, value);
  return el("article", { class: "card candidate" }, el("h3", {}, title), shown, buttons, errors, score);
}

function isDone(own) {
  return own.scores.every((score) => score !== null);
}

function progress() {
  const line = document.getElementById("progress");
  if (!line) return;
  const done = work.groups.filter(isDone).length;
  line.textContent = t("progress", { n: work.at + 1, all: data.groups.length, done });
}

function language(code, title) {
  const choose = () => {
    state.language = code;
    said = "";
    draw();
  };
  return button(title, choose, { lang: code, "aria-pressed": String(state.language === code) });
}

function draw() {
  const group = data.groups[work.at];
  const name = field(t("who"), { value: work.annotator, autocomplete: "name" }, () => {});
  name.classList.add("who");
  name.querySelector("input").addEventListener("input", (event) => {
    work.annotator = event.target.value;
    keep();
  });
  const before = group.context.map((segment) =>
    el(
      "p",
      { class: "soft before" },
      el("span", { lang: group.src_lang, dir: "auto" }, segment.src_text),
      segment.trg_text && [" → ", el("span", { lang: group.trg_lang, dir: "auto" }, segment.trg_text)],
    ),
  );
  const pair = [group.src_lang, group.trg_lang].map((code) => data.languages[code]).join(" → ");
  const where = [group.document, group.position].filter((part) => part !== null).join(", ");
  document.documentElement.lang = state.language;
  document.title = t("title");
  document.getElementById("report").replaceChildren(
    el("div", { class: "language" }, language("en", "English"), language("zh", "中文")),
    el("h1", {}, t("title")),
    el("p", { id: "progress", class: "soft" }),
    el("div", { class: "tools" }, name, button(t("save"), download, { id: "save" })),
    el("details", { class: "help" }, el("summary", {}, t("help")), ...["errors", "scores", "keys"].map((key) => el("p", {}, t(`help_${key}`)))),
    el(
      "section",
      { class: "card source", "aria-label": t("source") },
      before.length ? [el("p", { class: "small soft" }, t("before")), before] : null,
      el("p", { class: "small soft" }, [pair, where].filter(Boolean).join(" · ")),
      el("p", { class: "text", lang: group.src_lang, dir: "auto" }, group.src_text),
    ),
    el("div", { class: "candidates" }, group.mt_texts.map((_, i) => candidate(group, work.groups[work.at], i))),
    el("p", { id: "said", role: "status" }, said),
    el(
      "nav",
      { class: "tools" },
      button(t("back"), () => go(-1), { id: "back", disabled: work.at === 0 }),
      button(t("next"), () => go(1), { id: "next", disabled: work.at === data.groups.length - 1 }),
    ),
  );
  progress();
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement && event.target.type !== "range";
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "n") go(1);
  if (event.key === "p") go(-1);
});
draw();
