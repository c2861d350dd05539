"use strict";
// Word differences: what a text has and another has not, by the longest common subsequence of their words.

const ALONE = "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}]"; // without blanks between words
const WORD = new RegExp(`\\s+|${ALONE}|(?:(?!${ALONE})[\\p{L}\\p{N}\\p{M}])+|[^\\s]`, "gu");
const LONGEST = 1500; // words; a table of more would take too long

function wordsOf(text) {
  return text.match(WORD) || [];
}

/** Pieces of `after` as [kind, text]: "same", "new" (not in `before`), and "old" (of `before`, gone). */
function wordDiff(before, after) {
  const a = wordsOf(before),
    b = wordsOf(after);
  if (a.length > LONGEST || b.length > LONGEST) return [["new", after]];
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i * width + j] =
        a[i] === b[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  const pieces = [];
  const put = (kind, text) => {
    const last = pieces[pieces.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else pieces.push([kind, text]);
  };
  let i = 0,
    j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) put("same", (i++, b[j++]));
    else if (j === b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1]))
      put("old", a[i++]);
    else put("new", b[j++]);
  }
  return pieces;
}

/** The nodes of a text with the words that another does not have marked. */
function marked(before, after) {
  const shown = wordDiff(before, after).filter(([kind]) => kind !== "old");
  return shown.map(([kind, text]) => (kind === "same" ? text : el("ins", {}, text)));
}
