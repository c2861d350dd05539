"use strict";
// The browser of groups: filters, an order, ten at a time; one prompt through time is a filter too.

const NOTHING = {
  run: "",
  pair: "",
  status: "",
  tau: "",
  text: "",
  tokens_from: "",
  tokens_to: "",
  step_from: "",
  step_to: "",
  prompt: null,
  order: "spread",
};
const browse = { ...NOTHING, shown: 10 };
const PAGE = 10;

for (const group of data.groups) {
  const rewards = group.samples.map((sample) => sample.reward).filter((reward) => reward !== null);
  group.spread = rewards.length ? Math.max(...rewards) - Math.min(...rewards) : null;
  group.tokens = groupMean(group, "tokens");
}

function pairOf(group) {
  const { src_lang, trg_lang } = data.prompts[group.prompt];
  return `${src_lang} → ${trg_lang}`;
}

/** How often each prompt comes in a run: the number of steps. */
const stepsOf = (() => {
  const steps = new Map();
  for (const group of data.groups) {
    const key = `${group.run} ${group.prompt}`;
    if (!steps.has(key)) steps.set(key, new Set());
    steps.get(key).add(group.step);
  }
  return (group) => steps.get(`${group.run} ${group.prompt}`).size;
})();

const bound = (text, otherwise) => (text === "" ? otherwise : Number(text));
const FILTERS = [
  (group) => browse.run === "" || group.run === Number(browse.run),
  (group) => browse.pair === "" || pairOf(group) === browse.pair,
  (group) =>
    browse.status === "" || group.use === browse.status || group.samples.some((one) => statusOf(one) === browse.status),
  (group) => browse.tau === "" || (group.tau !== null && group.tau < Number(browse.tau)),
  (group) => group.tokens >= bound(browse.tokens_from, 0) && group.tokens <= bound(browse.tokens_to, Infinity),
  (group) => group.step >= bound(browse.step_from, 0) && group.step <= bound(browse.step_to, Infinity),
  (group) => browse.prompt === null || group.prompt === browse.prompt,
  (group) => {
    const searched = browse.text.toLowerCase(),
      prompt = data.prompts[group.prompt];
    return [prompt.source, prompt.reference || "", ...group.samples.map((one) => one.text)].some((text) =>
      text.toLowerCase().includes(searched),
    );
  },
];
const ORDERS = {
  spread: (group) => -(group.spread ?? -1),
  tau: (group) => group.tau ?? 2,
  step: (group) => group.step,
  last: (group) => -group.step,
  low: (group) => groupMean(group, "reward") ?? Infinity,
  long: (group) => -group.tokens,
  recurring: (group) => -stepsOf(group),
};

function statusOf(sample) {
  return sample.status || "not judged";
}

function matching() {
  const groups = data.groups.filter((group) => FILTERS.every((fits) => fits(group)));
  const order = ORDERS[browse.prompt === null ? browse.order : "step"];
  return groups
    .map((group) => [order(group), group])
    .sort((a, b) => a[0] - b[0] || a[1].step - b[1].step)
    .map(([, group]) => group);
}

function sampleRow(group, sample) {
  const language = data.prompts[group.prompt].trg_lang;
  const sign = sample.advantage > 0 ? "up" : sample.advantage < 0 ? "down" : "";
  const cell = (text, more = "") => el("td", { class: `num ${more}` }, text);
  return el(
    "tr",
    {},
    el(
      "td",
      { class: "text", lang: language, dir: "auto" },
      sample.parsed ? null : el("bdi", { class: "none" }, t("no_translation"), " "),
      sample.text,
      sample.n > 1 ? el("span", { class: "soft" }, ` ×${sample.n}`) : null,
    ),
    el("td", {}, statusOf(sample)),
    cell(number(sample.tokens)),
    cell(number(sample.chrf, 1)),
    cell(number(sample.score, 2)),
    sample.others.map((score) => cell(number(score, 2), "judge")),
    cell(number(sample.reward, 3)),
    cell(number(sample.advantage, 2), sign),
  );
}

function samplesTable(group) {
  const heads = [
    t("translation"),
    t("status"),
    t("tokens"),
    "chrF",
    t("score"),
    ...group.judges,
    t("reward"),
    t("advantage"),
  ];
  const best = [...measure(group).samples].sort((a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity));
  const head = heads.map((title, i) => el("th", { scope: "col", class: i > 1 ? "num" : "" }, title));
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": t("samples_label", { step: group.step }) },
    el(
      "table",
      { class: "small sampled" },
      el("thead", {}, el("tr", {}, head)),
      el(
        "tbody",
        {},
        best.map((sample) => sampleRow(group, sample)),
      ),
    ),
  );
}

function sourceAndReference(prompt) {
  return el(
    "dl",
    {},
    el("dt", {}, t("source")),
    el("dd", { lang: prompt.src_lang, dir: "auto" }, prompt.source),
    prompt.reference
      ? [el("dt", {}, t("reference")), el("dd", { lang: prompt.trg_lang, dir: "auto" }, prompt.reference)]
      : null,
  );
}

function groupCard(group) {
  const prompt = data.prompts[group.prompt],
    n_steps = stepsOf(group);
  const chip = (text) => el("span", { class: "chip" }, text);
  return el(
    "article",
    { class: "card group" },
    el(
      "h3",
      {},
      t("at_step", { step: group.step }),
      " ",
      data.runs.length > 1 ? chip(data.runs[group.run].name) : null,
      chip(pairOf(group)),
      group.use === "trained" ? null : chip([group.use, group.signal].filter(Boolean).join(": ")),
      group.tau === null ? null : chip(`tau-b ${number(group.tau, 2)}`),
    ),
    sourceAndReference(prompt),
    samplesTable(group),
    group.analysis
      ? el("details", {}, el("summary", {}, t("analysis")), el("p", { class: "small said" }, group.analysis))
      : null,
    n_steps > 1 && browse.prompt === null
      ? button(
          t("through_time", { n: n_steps }),
          () => {
            Object.assign(browse, NOTHING, { run: String(group.run), prompt: group.prompt });
            replaceSection("groups", groupsSection());
          },
          { class: "through-time" },
        )
      : null,
  );
}

function listGroups() {
  const list = document.getElementById("group-list"),
    groups = matching();
  const shown = groups.slice(0, browse.shown);
  document.getElementById("group-count").textContent = t("matching", { shown: shown.length, all: groups.length });
  list.replaceChildren(...shown.map(groupCard));
  if (groups.length > shown.length)
    list.append(
      button(
        t("more"),
        () => {
          const next = browse.shown;
          browse.shown += PAGE;
          listGroups();
          list.children[next].querySelector("[tabindex]").focus();
        },
        { class: "more-groups" },
      ),
    );
}

function filterForm() {
  const change = (name) => (value) => {
    browse[name] = value;
    browse.shown = PAGE;
    listGroups();
  };
  const values = (of) => [...new Set(data.groups.flatMap(of))].sort().map((value) => [value, value]);
  const any = ["", t("any")];
  const select = (name, options) => choice(t(`filter_${name}`), [any, ...options], browse[name], change(name));
  const input = (name, attributes) =>
    field(t(`filter_${name}`), { ...attributes, value: browse[name], name }, change(name));
  const number = { type: "number", min: 0 };
  return el(
    "form",
    { class: "tools", onsubmit: (event) => event.preventDefault() },
    data.runs.length > 1
      ? select(
          "run",
          data.runs.map((run, i) => [String(i), run.name]),
        )
      : null,
    select(
      "pair",
      values((group) => [pairOf(group)]),
    ),
    select(
      "status",
      values((group) => [group.use, ...group.samples.map(statusOf)]),
    ),
    data.groups.some((group) => group.tau !== null)
      ? select("tau", [
          ["0.5", "tau-b < 0.5"],
          ["0", "tau-b < 0"],
          ["-0.5", "tau-b < −0.5"],
        ])
      : null,
    input("tokens_from", number),
    input("tokens_to", number),
    input("step_from", number),
    input("step_to", number),
    input("text", { type: "search" }),
    choice(
      t("order"),
      Object.keys(ORDERS).map((name) => [name, t(`order_${name}`)]),
      browse.order,
      change("order"),
    ),
    button(
      t("reset_filters"),
      () => {
        Object.assign(browse, NOTHING, { shown: PAGE });
        replaceSection("groups", groupsSection());
      },
      { id: "reset-filters" },
    ),
  );
}

function groupsSection() {
  if (!data.groups.length) return null;
  const disputed = data.groups.some((group) => group.tau !== null);
  const filtered =
    browse.prompt === null
      ? null
      : el(
          "p",
          { class: "notice card" },
          t("one_prompt"),
          " ",
          button(t("all_prompts"), () => {
            browse.prompt = null;
            replaceSection("groups", groupsSection());
          }),
        );
  return section(
    "groups",
    t("groups"),
    data.runs.map(outcomesOf),
    disputed
      ? null
      : el("p", { class: "small soft" }, t("one_judge"), " ", el("code", {}, "grrm replay RUN --judge NAME")),
    filterForm(),
    filtered,
    el("p", { class: "small soft", id: "group-count", role: "status" }),
    el("div", { id: "group-list" }),
  );
}

function replaceSection(id, replacement) {
  document.getElementById(id).replaceWith(replacement);
  listGroups();
  const heading = document.getElementById(`${id}-title`);
  heading.tabIndex = -1;
  heading.focus();
}
