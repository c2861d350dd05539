"use strict";
// What was run and what came of it: facts, held-out results before training rewards, outcomes, settings.

const FACTS = [
  "algorithm",
  "loss",
  "model",
  "judge",
  "train_data",
  "eval_data",
  "prompts",
  "samples",
  "learning_rate",
  "seed",
  "steps",
  "seconds",
  "tokens_a_second",
];
const DIGITS = { chrf: 1, bleu: 1, loss: 3, reward: 3, pair: 3, correlation: 3 };
const HIGHER_IS_BETTER = /chrf|bleu|pair_accuracy|correlation/; // a reward is the judge's word, and a loss falls

function digitsOf(key) {
  return DIGITS[Object.keys(DIGITS).find((name) => key.includes(name))] ?? 3;
}

function factText(name, value) {
  if (name === "seconds") return duration(value);
  if (name === "tokens_a_second") return number(value, 0);
  const parts = String(value).split("/");
  return parts.length > 3 && String(value).startsWith("/")
    ? el("span", { title: String(value) }, "…/" + parts.slice(-2).join("/"))
    : String(value);
}

/** What all runs have in common in one list, what they do not in a table. */
function factsSection() {
  const names = FACTS.filter((name) => data.runs.some((run) => name in run.facts));
  const first = data.runs[0].facts;
  const differs = (name) => data.runs.some((run) => run.facts[name] !== first[name]);
  const rows = names
    .filter(differs)
    .map((name) => [
      t(`fact_${name}`),
      ...data.runs.map((run) => (name in run.facts ? factText(name, run.facts[name]) : "–")),
    ]);
  const common = names
    .filter((name) => !differs(name))
    .map((name) => el("div", {}, el("dt", {}, t(`fact_${name}`)), el("dd", {}, factText(name, first[name]))));
  return el(
    "div",
    { class: "card facts" },
    el("dl", { class: "grid" }, common),
    data.runs.length > 1 ? table(["", ...data.runs.map((run) => run.name)], rows, { class: "small" }) : null,
  );
}

/** "gain" or "loss" only where the whole interval lies on one side of zero; "unsure" inside, "unknown" without one. */
function judgement(change) {
  if (!change.interval) return "unknown";
  const [low, high] = change.interval;
  if (low <= 0 && high >= 0) return "unsure";
  return low > 0 ? "gain" : "loss";
}

function differenceOf(change) {
  return change.evaluations > 1 ? change.last[1] - change.first[1] : null;
}

function intervalText(change, digits) {
  if (!change.interval) return t("no_interval");
  const [low, high, level] = change.interval;
  return t("interval", { level: Math.round(100 * level), low: signed(low, digits), high: signed(high, digits) });
}

function resultCard(run, change) {
  const digits = digitsOf(change.key),
    difference = differenceOf(change),
    says = judgement(change);
  const paint = HIGHER_IS_BETTER.test(change.key) && (says === "gain" || says === "loss") ? says : "plain";
  const ends = `${number(change.first[1], digits)} → ${number(change.last[1], digits)}`;
  const steps = t("between_steps", { first: change.first[0], last: change.last[0], n: change.evaluations });
  return el(
    "div",
    { class: `card result ${paint}` },
    data.runs.length > 1 ? el("div", { class: "small soft" }, run.name) : null,
    el("h3", {}, t(`metric_${change.key}`)),
    difference === null
      ? el("div", { class: "value" }, number(change.last[1], digits))
      : el("div", { class: "value" }, signed(difference, digits), el("span", { class: "ends" }, ends)),
    difference === null ? null : el("div", { class: "small" }, intervalText(change, digits)),
    says === "unsure" ? el("div", { class: "small verdict" }, t("inside_interval")) : null,
    el("div", { class: "small soft" }, difference === null ? onceText(run, change.last[0]) : steps),
  );
}

function onceText(run, step) {
  return t("one_evaluation", { step }) + (isRL(run) && step > 0 ? ` ${t("evaluate_on_start")}` : "");
}

function isRL(run) {
  return "reward_mean" in run.metrics;
}

function heldOutTable() {
  const keys = [...new Set(data.runs.flatMap((run) => run.held_out.map((change) => change.key)))];
  const cell = (run, key) => {
    const change = run.held_out.find((one) => one.key === key);
    if (!change) return { text: "–", class: "num" };
    const digits = digitsOf(key),
      difference = differenceOf(change);
    const ends = [change.first, change.last].map(([, value]) => number(value, digits)).join(" → ");
    return {
      text: difference === null ? number(change.last[1], digits) : `${ends}  (${signed(difference, digits)})`,
      class: "num",
    };
  };
  const head = [t("metric"), ...data.runs.map((run) => ({ text: run.name, class: "num" }))];
  return table(
    head,
    keys.map((key) => [t(`metric_${key}`), ...data.runs.map((run) => cell(run, key))]),
  );
}

function noEvaluations(runs) {
  return el(
    "div",
    { class: "card notice" },
    el("p", {}, t("no_evaluations", { runs: runs.map((run) => run.name).join(", ") })),
    el(
      "pre",
      {},
      "eval_datasets: held-out.jsonl\nevaluation_strategy: steps\neval_steps: 20" +
        (runs.some(isRL) ? "\neval_on_start: true" : ""),
    ),
  );
}

function heldOutSection() {
  const without = data.runs.filter((run) => !run.held_out.length);
  const shown = data.runs.flatMap((run) => {
    const first = run.held_out.filter((change) => /chrf|pair_accuracy|loss/.test(change.key)).slice(0, 2);
    return (first.length ? first : run.held_out.slice(0, 2)).map((change) => resultCard(run, change));
  });
  return section(
    "held-out",
    t("held_out"),
    without.length ? noEvaluations(without) : null,
    data.runs.some((run) => run.verdict)
      ? el("div", { class: "results verdicts-of-runs" }, data.runs.map(verdictCard))
      : null,
    shown.length ? el("div", { class: "results" }, shown) : null,
    shown.length ? el("div", { class: "card more" }, heldOutTable()) : null,
    rewardCard(),
  );
}

/** Names and values of a record however deep, one pair for each value that is no object. */
function flat(value, prefix = "") {
  if (value === null || typeof value !== "object") return [[prefix, value === null ? "–" : String(value)]];
  if (Array.isArray(value) && value.every((one) => one === null || typeof one !== "object"))
    return [[prefix, value.map((one) => (typeof one === "number" ? number(one) : String(one))).join(", ")]];
  return Object.entries(value).flatMap(([name, one]) => flat(one, prefix ? `${prefix}.${name}` : name));
}

const VERDICTS = { helped: "verdict_helped", "did not help": "verdict_not", "cannot tell": "verdict_unsure" };

/** What the end of the run says of it, before the numbers it is made of. */
function verdictCard(run) {
  if (!run.verdict) return null;
  const { verdict, reason, ...rest } = run.verdict;
  const paint = { verdict_helped: "gain", verdict_not: "loss" }[VERDICTS[verdict]] || "plain";
  const rows = flat(rest).map(([name, value]) => [el("code", {}, name), value]);
  return el(
    "div",
    { class: `card result verdict-file ${paint}` },
    data.runs.length > 1 ? el("div", { class: "small soft" }, run.name) : null,
    el("h3", {}, t("verdict")),
    el("div", { class: "value" }, VERDICTS[verdict] ? t(VERDICTS[verdict]) : String(verdict ?? "–")),
    reason ? el("p", {}, String(reason)) : null,
    el(
      "details",
      {},
      el("summary", {}, t("details")),
      table([t("name"), t("value")], rows, { class: "small numbers" }),
    ),
  );
}

/** Training rewards, in grey: what was optimised is no evidence, and prompts differ from step to step. */
function rewardCard() {
  const rows = data.runs
    .filter((run) => run.reward)
    .map((run) => {
      const { first, last, interval, steps } = run.reward;
      const change = t("interval", { level: 95, low: signed(interval[0], 3), high: signed(interval[1], 3) });
      return el(
        "p",
        { class: "small" },
        data.runs.length > 1 ? el("b", {}, run.name, ": ") : null,
        t("reward_change", { first: number(first, 3), last: number(last, 3), change: signed(last - first, 3), steps }),
        " ",
        change,
      );
    });
  if (!rows.length) return null;
  return el(
    "div",
    { class: "card soft reward" },
    el("h3", {}, t("training_reward")),
    rows,
    el("p", { class: "small" }, t("reward_note")),
  );
}

function outcomesOf(run) {
  const shown = data.groups.filter((group) => data.runs[group.run] === run).length;
  const line = (key, of) =>
    Object.keys(of).length ? el("div", {}, el("dt", {}, t(key)), el("dd", {}, counts(of))) : null;
  return el(
    "dl",
    { class: "card facts grid outcomes" },
    data.runs.length > 1 ? el("div", {}, el("dt", {}, t("run")), el("dd", {}, run.name)) : null,
    line("outcome_groups", run.uses),
    line("outcome_samples", run.statuses),
    line("outcome_rejections", run.rejections),
    el("div", {}, el("dt", {}, t("on_this_page")), el("dd", {}, t("shown_of", { shown, all: run.n_groups }))),
  );
}

function settingsSection() {
  if (!data.settings.length) return null;
  const several = data.runs.length > 1;
  const plain = (value) =>
    value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const rows = data.settings.map(([name, values]) => [el("code", {}, name), ...values.map(plain)]);
  const box = table([t("name"), ...data.runs.map((run) => run.name)], rows, { class: "small numbers" });
  return section(
    "settings",
    t(several ? "settings_differ" : "settings"),
    el("details", { class: "card", open: several }, el("summary", {}, t("show")), box),
  );
}
