"use strict";
// Error spans of a text: counted in characters, not in UTF-16 units, shown as marks, chosen with mouse or keys.

const length = (text) => [...text].length;

/** The text in pieces, marked where a span is; they are text nodes, whatever the text looks like. */
function markedText(text, spans) {
  const characters = [...text];
  const nodes = [];
  let at = 0;
  for (const span of [...spans].sort((one, other) => one.start - other.start)) {
    nodes.push(characters.slice(at, span.start).join(""));
    if (span.end > span.start) {
      const wrong = characters.slice(span.start, span.end).join("");
      nodes.push(el("mark", { class: span.severity }, wrong));
    }
    at = span.end;
  }
  return [...nodes, characters.slice(at).join("")];
}

/** First and last character of what is selected within the element, without blanks at its ends; null for nothing. */
function selectedSpan(element) {
  const selection = window.getSelection();
  if (!selection.rangeCount || selection.isCollapsed) return null;
  const range = selection.getRangeAt(0).cloneRange();
  const whole = document.createRange();
  whole.selectNodeContents(element);
  if (!range.intersectsNode(element)) return null;
  if (range.compareBoundaryPoints(Range.START_TO_START, whole) < 0) range.setStart(whole.startContainer, whole.startOffset);
  if (range.compareBoundaryPoints(Range.END_TO_END, whole) > 0) range.setEnd(whole.endContainer, whole.endOffset);
  const text = range.toString();
  whole.setEnd(range.startContainer, range.startOffset);
  const start = length(whole.toString()) + length(text) - length(text.trimStart());
  const end = start + length(text.trim());
  return end > start ? { start, end } : null;
}

/** Beginning and end of each word in UTF-16 units; a language without blanks is cut by the browser. */
function words(text) {
  if (!window.Intl || !Intl.Segmenter) return [...text.matchAll(/\S+/g)].map((m) => [m.index, m.index + m[0].length]);
  return [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)]
    .filter((one) => one.segment.trim())
    .map((one) => [one.index, one.index + one.segment.length]);
}

/** Select characters (UTF-16 units) of an element that has text and marks. */
function select(element, start, end) {
  const range = document.createRange();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let before = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const here = node.data.length;
    if (start >= before && start < before + here) range.setStart(node, start - before);
    if (end > before && end <= before + here) range.setEnd(node, end - before);
    before += here;
  }
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

/** Let arrows choose words of the element, which may run from right to left: `cursor` has the first and the last, null
 * before the first key. */
function chooseWords(element, key, extend, cursor) {
  const all = words(element.textContent);
  if (!all.length) return cursor;
  const step = (key === "ArrowRight") === (getComputedStyle(element).direction === "ltr") ? 1 : -1;
  const last = cursor === null ? (step > 0 ? 0 : all.length - 1) : cursor[1] + step;
  const to = Math.min(Math.max(last, 0), all.length - 1);
  const next = [extend && cursor !== null ? cursor[0] : to, to];
  select(element, all[Math.min(...next)][0], all[Math.max(...next)][1]);
  return next;
}
