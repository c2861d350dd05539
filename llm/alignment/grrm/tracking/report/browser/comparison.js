"use strict";
// Two runs on the same prompts: groups in columns, the best and the worst changes first, words that differ marked.

const compare = { runs: [0, 1], shown: 3 };

/** chrF where both groups have it, else the reward where both runs have the same judge; null where neither can be. */
function changeOf([before, after]) {
  const names = data.runs[before.run].facts.judge === data.runs[after.run].facts.judge ? ["chrf", "reward"] : ["chrf"];
  for (const name of names) {
    const means = [before, after].map((group) => groupMean(measure(group), name));
    if (means.every((value) => value !== null)) return { name, means, difference: means[1] - means[0] };
  }
  return null;
}

/** Of each prompt that both runs have, the last group of each run. */
function commonGroups() {
  const last = compare.runs.map((number) => {
    const groups = new Map();
    for (const group of data.groups)
      if (group.run === number && group.step >= (groups.get(group.prompt)?.step ?? 0)) groups.set(group.prompt, group);
    return groups;
  });
  const pairs = [...last[0]]
    .filter(([prompt]) => last[1].has(prompt))
    .map(([prompt, group]) => [group, last[1].get(prompt)]);
  return pairs.map((pair) => ({ pair, change: changeOf(pair) }));
}

function bestFirst(group, name) {
  return [...group.samples].sort((a, b) => (b[name] ?? -Infinity) - (a[name] ?? -Infinity));
}

function column(group, other, name) {
  const samples = bestFirst(group, name),
    against = other ? bestFirst(other, name)[0].text : null;
  const language = data.prompts[group.prompt].trg_lang;
  const rows = samples
    .slice(0, 4)
    .map((sample) =>
      el(
        "li",
        { lang: language, dir: "auto" },
        el(
          "span",
          { class: "mark" },
          number(sample[name], name === "chrf" ? 1 : 3),
          sample.n > 1 ? ` ×${sample.n}` : "",
        ),
        " ",
        against === null ? sample.text : marked(against, sample.text),
      ),
    );
  const rest = samples.slice(4).reduce((sum, sample) => sum + sample.n, 0);
  return el(
    "div",
    { class: "column" },
    el("h4", {}, data.runs[group.run].name, " ", el("span", { class: "chip" }, t("at_step", { step: group.step }))),
    el("ul", {}, rows),
    rest ? el("p", { class: "small soft" }, t("more_samples", { n: rest })) : null,
  );
}

function changeTitle({ name, means, difference }) {
  const [title, digits] = name === "chrf" ? ["chrF", 1] : [t("reward"), 3];
  return `${title} ${means.map((value) => number(value, digits)).join(" → ")} (${signed(difference, digits)})`;
}

function comparedCard({ pair, change }) {
  const prompt = data.prompts[pair[0].prompt],
    name = change ? change.name : "score";
  const title = change ? changeTitle(change) : t("at_step", { step: pair[0].step });
  return el(
    "article",
    { class: "card compared" },
    el("h3", {}, title, " ", el("span", { class: "chip" }, pairOf(pair[0]))),
    sourceAndReference(prompt),
    el("div", { class: "columns" }, column(pair[0], null, name), column(pair[1], pair[0], name)),
  );
}

function comparisonList(id, title, groups) {
  const list = el("div", { id });
  let shown = compare.shown;
  const fill = () => {
    list.replaceChildren(...groups.slice(0, shown).map(comparedCard));
    if (groups.length > shown)
      list.append(
        button(t("more"), () => {
          shown += PAGE;
          fill();
        }),
      );
  };
  fill();
  return groups.length ? [el("h3", { class: "kind-of" }, title), list] : [];
}

function comparisonSection() {
  if (data.runs.length < 2) return null;
  const groups = commonGroups();
  const known = groups
    .filter(({ change }) => change !== null)
    .sort((a, b) => b.change.difference - a.change.difference);
  const names = data.runs.map((run, i) => [String(i), run.name]);
  const pick = (place) => (value) => {
    compare.runs[place] = Number(value);
    document.getElementById("comparison").replaceWith(comparisonSection());
  };
  const tools =
    data.runs.length > 2
      ? el(
          "form",
          { class: "tools" },
          choice(t("compare_from"), names, compare.runs[0], pick(0)),
          choice(t("compare_to"), names, compare.runs[1], pick(1)),
        )
      : null;
  const better = known.filter(({ change }) => change.difference > 0);
  const worse = known.filter(({ change }) => change.difference < 0).reverse();
  const summary = t("compared", {
    n: groups.length,
    better: better.length,
    worse: worse.length,
    same: known.length - better.length - worse.length,
  });
  const lists = known.length
    ? [comparisonList("best", t("best_changes"), better), comparisonList("worst", t("worst_changes"), worse)]
    : [comparisonList("unordered", t("same_prompts"), groups)];
  return section(
    "comparison",
    t("comparison"),
    tools,
    el("p", { class: "small soft" }, groups.length ? summary : t("no_common")),
    ...lists,
  );
}
