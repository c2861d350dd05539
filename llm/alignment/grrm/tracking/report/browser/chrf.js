"use strict";
// Sentence chrF (Popović 2015, https://aclanthology.org/W15-3049): character n-grams up to 6, recall counts double.

const ORDER = 6,
  BETA_SQUARED = 4;

function charactersOf(text) {
  return Array.from(text.replace(/\s+/g, ""), (character) => character.codePointAt(0));
}

/** The n-grams of a reference as a tree: `next` leads from node and character to a longer n-gram, `counts` has each. */
function referenceTree(text) {
  const characters = charactersOf(text),
    next = new Map(),
    counts = [0];
  characters.forEach((_, start) => {
    let node = 0;
    for (const character of characters.slice(start, start + ORDER)) {
      const step = node * 0x110000 + character;
      if (!next.has(step)) next.set(step, counts.push(0) - 1);
      node = next.get(step);
      counts[node] += 1;
    }
  });
  return { length: characters.length, next, counts };
}

/** 0 to 100; orders that are longer than one of the texts do not count. */
function chrfOf(hypothesis, { length, next, counts }) {
  const characters = charactersOf(hypothesis),
    used = new Uint16Array(counts.length),
    matches = Array(ORDER).fill(0);
  for (let start = 0; start < characters.length; start++) {
    let node = 0;
    for (let n = 0; n < ORDER && start + n < characters.length; n++) {
      node = next.get(node * 0x110000 + characters[start + n]);
      if (node === undefined) break;
      if (used[node] < counts[node]) matches[n] += 1;
      used[node] += 1;
    }
  }
  const orders = Math.min(ORDER, characters.length, length);
  const share = (total) => mean(matches.slice(0, orders).map((count, n) => count / (total - n)));
  const precision = share(characters.length),
    recall = share(length);
  return precision ? (100 * (1 + BETA_SQUARED) * precision * recall) / (BETA_SQUARED * precision + recall) : 0;
}

/** Gives a group's samples their chrF to the reference, once; null where there is no reference translation. */
function measure(group) {
  if (group.isMeasured) return group;
  const prompt = data.prompts[group.prompt];
  if (prompt.tree === undefined)
    prompt.tree =
      prompt.reference && prompt.reference.trim() && prompt.trg_lang ? referenceTree(prompt.reference) : null;
  for (const sample of group.samples)
    sample.chrf = prompt.tree && chrfOf(sample.parsed ? sample.text : "", prompt.tree);
  group.isMeasured = true;
  return group;
}
