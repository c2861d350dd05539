"use strict";
// What all parts of the page share: its data, the language, elements, numbers. Texts of runs become text nodes only.

const data = JSON.parse(document.getElementById("data").textContent);
const state = { language: (navigator.language || "").startsWith("zh") ? "zh" : "en" };

/** A string of the page in the language that is shown, with the `values` it names in braces. */
function t(key, values = {}) {
  const text = data.strings[state.language][key];
  if (text === undefined) return key;
  return text.replace(/\{(\w+)\}/g, (match, name) => (name in values ? String(values[name]) : match));
}

/** An element with attributes, listeners (`onclick: ...`) and children, which are nodes, texts or null. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** A table in a box that scrolls by itself; a cell is a node, a text, or {text, class}. The first column names rows. */
function table(head, rows, attributes = {}) {
  const cell = (tag, content, more = {}) => {
    const plain = content === null || content === undefined || content instanceof Node || typeof content !== "object";
    return plain ? el(tag, more, content ?? "–") : el(tag, { ...more, class: content.class }, content.text ?? "–");
  };
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      row.map((content, i) => (i ? cell("td", content) : cell("th", content, { scope: "row" }))),
    ),
  );
  const header = el(
    "thead",
    {},
    el(
      "tr",
      {},
      head.map((content) => cell("th", content, { scope: "col" })),
    ),
  );
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": attributes.label || t("table") },
    el("table", { class: attributes.class }, header, el("tbody", {}, body)),
  );
}

/** A labelled select; `options` are [value, title]. */
function choice(label, options, value, onchange) {
  const select = el(
    "select",
    { onchange: (event) => onchange(event.target.value) },
    options.map(([name, title]) => el("option", { value: name, selected: String(name) === String(value) }, title)),
  );
  return el("label", { class: "field" }, el("span", {}, label), select);
}

/** A labelled input. */
function field(label, attributes, onchange) {
  const input = el("input", { ...attributes, onchange: (event) => onchange(event.target.value) });
  return el("label", { class: "field" }, el("span", {}, label), input);
}

function button(label, onclick, attributes = {}) {
  return el("button", { type: "button", ...attributes, onclick }, label);
}

/** A number for people: four significant digits or `digits` after the point, a count in full, a dash for none. */
function number(value, digits = null) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (digits !== null) return value.toFixed(digits);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));
}

function signed(value, digits) {
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(digits);
}

function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return t("seconds", { s: whole });
  if (whole < 3600) return t("minutes", { m: Math.floor(whole / 60), s: whole % 60 });
  return t("hours", { h: Math.floor(whole / 3600), m: Math.floor((whole % 3600) / 60) });
}

function mean(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** The mean of one number of a group's samples, each counted as often as it was sampled. */
function groupMean(group, name) {
  return mean(group.samples.flatMap((sample) => Array(sample.n).fill(sample[name])));
}

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), children);
}

function counts(of) {
  return Object.entries(of)
    .map(([name, count]) => `${name} ${count}`)
    .join(", ");
}
