"use strict";
// Curves over steps, all runs on the same axes, drawn by uPlot; beside each a table with the same numbers.

// Name, keys (a pattern makes one line for each key that matches, named by its group), logarithmic or not.
const CHARTS = [
  ["eval_chrf", ["eval_chrf_greedy", "eval_chrf"]],
  ["eval_reward", ["eval_reward_greedy", "eval_reward"]],
  ["eval_bleu", ["eval_bleu_greedy", "eval_bleu"]],
  ["eval_judge", ["eval_pair_accuracy", "eval_correlation"]],
  ["eval_pairs", [/^eval_((?:pair_accuracy|correlation|chrf|chrf_greedy|bleu|reward)\/.+)$/]],
  ["reward", ["reward_mean"]],
  ["pairs", [/^pair\/(.+)\/reward_mean$/]],
  ["data", [/^data\/(.+)\/reward_mean$/]],
  ["score", ["score_mean"]],
  ["judges", [/^part\/(.+)\/score_mean$/]],
  ["kl", ["kl"]],
  ["entropy", ["entropy"]],
  ["length", ["response_length_mean"]],
  ["unscored", ["frac_unscored", /^status\/(?!scored$|duplicate$)(.+)$/]],
  ["signal", ["frac_zero_variance", "frac_duplicate"]],
  ["gradient", [/^((?:global_)?grad(?:ient)?_norm)$/]],
  ["loss", ["loss", "eval_loss"]],
  ["clip", ["pg_clipfrac", "pg_clipfrac_lower"]],
  ["critic", ["explained_variance"]],
  ["gap", ["logprob_gap_mean", "logprob_gap_max"], true],
  ["tokens", ["train_tokens_a_second"]],
  ["seconds", ["seconds_rollout", "seconds_judge_waiting", "seconds_logprob", "seconds_update"]],
];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2]];
const MARKERS = ["solid", "dashed", "dotted", "double", "groove"]; // borders of the legend, for the same lines
const view = { smoothing: 0, from: null, to: null, other: "", plots: [] };

/** The lines of a chart: run number, key and position of the key, with steps and values. */
function linesOf(keys) {
  const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.metrics)))].sort();
  const expanded = keys.flatMap((key) => (key instanceof RegExp ? names.filter((name) => key.test(name)) : [key]));
  const titleOf = (key) => keys.map((one) => (one instanceof RegExp ? one.exec(key)?.[1] : null)).find(Boolean) ?? key;
  return data.runs.flatMap((run, number) =>
    expanded.flatMap((key, position) =>
      run.metrics[key] ? [{ number, key, position, title: titleOf(key), points: pointsOf(run.metrics, key) }] : [],
    ),
  );
}

/** Steps and values; a status that a step does not name had no sample in it. */
function pointsOf(metrics, key) {
  if (!key.startsWith("status/") || !metrics.frac_unscored) return metrics[key];
  const shares = new Map(metrics[key][0].map((step, i) => [step, metrics[key][1][i]]));
  return [metrics.frac_unscored[0], metrics.frac_unscored[0].map((step) => shares.get(step) ?? 0)];
}

function lineTitle(line, lines) {
  const alone = new Set(lines.map((one) => one.key)).size === 1;
  const run = data.runs[line.number].name;
  if (data.runs.length === 1) return line.title;
  return alone ? run : `${run}: ${line.title}`;
}

/** The mean of about 2·half+1 neighbours around each value, fewer at both ends. */
function smooth(values, half) {
  return values.map((_, i) => mean(values.slice(Math.max(0, i - half), i + half + 1)));
}

/** Steps of all lines, and of each line its values there, null where it has none. */
function aligned(lines, half) {
  const steps = [...new Set(lines.flatMap((line) => line.points[0]))].sort((a, b) => a - b);
  const column = (line, values) => {
    const at = new Map(line.points[0].map((step, i) => [step, values[i]]));
    return steps.map((step) => at.get(step) ?? null);
  };
  const dense = (line) => (line.key.startsWith("eval_") ? 0 : half); // evaluations are few and not noisy alone
  return {
    steps,
    raw: lines.map((line) => column(line, line.points[1])),
    smooth: lines.map((line) => column(line, smooth(line.points[1], dense(line)))),
  };
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function drawPlot(box, lines, isLogarithmic) {
  const columns = aligned(lines, view.smoothing);
  const several = data.runs.length > 1;
  const series = lines.map((line, i) => {
    const stroke = colour(`--line-${(several ? line.number : line.position) % 6}`);
    return {
      label: lineTitle(line, lines),
      stroke,
      width: 2,
      dash: DASHES[(line.position + (several ? Math.floor(line.number / 6) : 0)) % DASHES.length],
      spanGaps: true,
      points: { show: columns.raw[i].filter((value) => value !== null).length < 12, size: 6, fill: stroke },
      value: (plot, value, s, at) => (at === null ? "–" : number(columns.raw[i][at])),
    };
  });
  const faint = view.smoothing
    ? lines.map((line, i) => ({
        ...series[i],
        width: 0.7,
        alpha: 0.4,
        dash: [],
        points: { show: false },
        class: "raw",
      }))
    : [];
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    width: Math.max(box.clientWidth, 200),
    height: 240,
    legend: { markers: { dash: (plot, i) => MARKERS[DASHES.indexOf(plot.series[i].dash)] ?? "solid" } },
    scales: { x: { time: false, range: rangeOf }, y: isLogarithmic ? { distr: 3 } : { range: paddedRange } },
    cursor: {
      sync: { key: "steps", setSeries: false, filters: { pub: isHover, sub: isHover } },
      points: { size: 7 },
      drag: { x: true, y: false, setScale: false },
    },
    axes: [
      {
        ...axis,
        size: 28,
        incrs: [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5].map((n) => one * 10 ** n)).sort((a, b) => a - b),
      },
      { ...axis, size: 62, values: (plot, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))) },
    ],
    series: [{ label: t("step"), value: (plot, step) => number(step) }, ...series, ...faint],
    hooks: { setSelect: [(plot) => zoomToSelection(plot)] },
  };
  const plot = new uPlot(options, [columns.steps, ...columns.smooth, ...(view.smoothing ? columns.raw : [])], box);
  plot.over.addEventListener("dblclick", () => zoom(null, null));
  plot.root.querySelectorAll(".u-series").forEach((row) => {
    row.classList.toggle("raw", [...row.parentNode.children].indexOf(row) > lines.length);
  });
  view.plots.push({ plot, box });
  return plot;
}

/** Charts share the position of the pointer; a selection is made in one and zooms all. */
function isHover(type) {
  return type === "mousemove" || type === "mouseleave";
}

function rangeOf({ data: [steps] }) {
  const from = view.from ?? steps[0],
    to = view.to ?? steps[steps.length - 1];
  return from < to ? [from, to] : [from - 0.5, from + 0.5];
}

/** A tenth of room above and below; a flat line gets a range of its own size. */
function paddedRange(plot, low, high) {
  if (low === null) return [0, 1];
  return low === high
    ? uPlot.rangeNum(low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2, 0, true)
    : uPlot.rangeNum(low, high, 0.1, true);
}

function zoomToSelection(plot) {
  if (plot.select.width < 4) return;
  const from = plot.posToVal(plot.select.left, "x"),
    to = plot.posToVal(plot.select.left + plot.select.width, "x");
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  zoom(Math.max(0, Math.round(from)), Math.round(to));
}

/** Show steps `from` to `to` in every chart; null leaves an end open. */
function zoom(from, to) {
  view.from = from;
  view.to = to;
  for (const [id, value] of [
    ["zoom-from", from],
    ["zoom-to", to],
  ])
    document.getElementById(id).value = value ?? "";
  for (const { plot } of view.plots) plot.setData(plot.data, true);
}

/** The chart's numbers as a table: made when it is opened. */
function numbersOf(lines) {
  const details = el("details", {}, el("summary", {}, t("as_table")));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const columns = aligned(lines, 0);
    const rows = columns.steps.map((step, i) => [String(step), ...columns.raw.map((column) => number(column[i]))]);
    const box = table([t("step"), ...lines.map((line) => lineTitle(line, lines))], rows, { class: "small numbers" });
    box.classList.add("tall");
    details.append(box);
  });
  return details;
}

/** Left and right arrows read the values of the next step; Escape takes the cursor away. */
function readByKeys(event, plot) {
  const steps = plot.data[0];
  const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -steps.length, End: steps.length };
  if (event.key === "Escape") plot.setCursor({ left: -10, top: -10 });
  if (!(event.key in moves)) return;
  event.preventDefault();
  const shown = steps.flatMap((step, i) => (step >= plot.scales.x.min && step <= plot.scales.x.max ? [i] : []));
  const at = shown.indexOf(plot.cursor.idx ?? -1);
  const next = shown[Math.min(shown.length - 1, Math.max(0, at + moves[event.key]))];
  if (next !== undefined) plot.setCursor({ left: plot.valToPos(steps[next], "x"), top: plot.over.clientHeight / 2 });
}

function chartCard(name, title, lines, isLogarithmic) {
  const box = el("div", { class: "plot", tabindex: "0", role: "group", "aria-label": t("chart_label", { title }) });
  const card = el("figure", { class: "card", id: `chart-${name}` }, el("h3", {}, title), box, numbersOf(lines));
  card.draw = () => {
    box.replaceChildren();
    const plot = drawPlot(box, lines, isLogarithmic);
    box.onkeydown = (event) => readByKeys(event, plot);
  };
  return card;
}

function smoothingText() {
  return view.smoothing ? t("smoothing_steps", { n: 2 * view.smoothing + 1 }) : t("smoothing_none");
}

function otherMetrics() {
  const known = new Set(CHARTS.flatMap(([, keys]) => linesOf(keys).map((line) => line.key)));
  return [...new Set(data.runs.flatMap((run) => Object.keys(run.metrics)))].filter((key) => !known.has(key)).sort();
}

function redrawCharts() {
  view.plots.forEach(({ plot }) => plot.destroy());
  view.plots = [];
  document.querySelectorAll("figure.card").forEach((card) => card.draw && card.draw());
}

function chartsSection() {
  const cards = CHARTS.flatMap(([name, keys, isLogarithmic]) => {
    const lines = linesOf(keys);
    return lines.length ? [chartCard(name, t(`chart_${name}`), lines, Boolean(isLogarithmic))] : [];
  });
  if (!cards.length) return section("curves", t("curves"), el("p", { class: "soft" }, t("no_metrics")));
  const others = otherMetrics();
  const other = el("div", { class: "other" });
  const showOther = (key) => {
    view.other = key;
    other.replaceChildren(...(key ? [chartCard("other", key, linesOf([key]), false)] : []));
    if (other.isConnected) redrawCharts();
  };
  showOther(others.includes(view.other) ? view.other : "");
  const smoothing = el("input", {
    type: "range",
    min: 0,
    max: 25,
    value: view.smoothing,
    id: "smoothing",
    oninput: (event) => {
      view.smoothing = Number(event.target.value);
      width.textContent = smoothingText();
      redrawCharts();
    },
  });
  const width = el("output", { for: "smoothing" }, smoothingText());
  const end = (id, label, name) =>
    field(label, { type: "number", min: 0, id, value: view[name] ?? "" }, (value) =>
      zoom(...["from", "to"].map((one) => (one === name ? (value === "" ? null : Number(value)) : view[one]))),
    );
  const tools = el(
    "form",
    { class: "tools", onsubmit: (event) => event.preventDefault() },
    el("label", { class: "field" }, el("span", {}, t("smoothing"), " ", width), smoothing),
    end("zoom-from", t("from_step"), "from"),
    end("zoom-to", t("to_step"), "to"),
    button(t("reset_zoom"), () => zoom(null, null), { id: "zoom-reset" }),
  );
  const more = others.length
    ? el(
        "form",
        { class: "tools", onsubmit: (event) => event.preventDefault() },
        choice(t("other_metric"), [["", "–"], ...others.map((key) => [key, key])], view.other, showOther),
      )
    : null;
  return section(
    "curves",
    t("curves"),
    el("p", { class: "small soft" }, t("curves_help")),
    tools,
    el("div", { class: "figures" }, cards),
    more,
    other,
  );
}
