"use strict";
// Sentence chrF (Popović 2015, https://aclanthology.org/W15-3049): character n-grams up to 6, recall weighs twice as much.

const ORDER = 6, BETA_SQUARED = 4;

function ngrams(characters, n) {
  const found = new Map();
  for (let i = 0; i + n <= characters.length; i++) {
    const ngram = characters.slice(i, i + n).join("");
    found.set(ngram, (found.get(ngram) || 0) + 1);
  }
  return found;
}

function allNgrams(text) {
  const characters = Array.from(text.replace(/\s+/g, ""));
  return Array.from({ length: ORDER }, (_, i) => [ngrams(characters, i + 1), Math.max(0, characters.length - i)]);
}

/** 0 to 100, from `allNgrams` of both texts; orders that are longer than one of them do not count. */
function chrfOf(hypothesis, reference) {
  let precision = 0, recall = 0, orders = 0;
  hypothesis.forEach(([found, n_hypothesis], i) => {
    const [expected, n_reference] = reference[i];
    if (!n_hypothesis || !n_reference) return;
    let matches = 0;
    for (const [ngram, count] of found) matches += Math.min(count, expected.get(ngram) || 0);
    precision += matches / n_hypothesis;
    recall += matches / n_reference;
    orders += 1;
  });
  if (!precision || !recall) return 0;
  const [p, r] = [precision / orders, recall / orders];
  return (100 * (1 + BETA_SQUARED) * p * r) / (BETA_SQUARED * p + r);
}

/** Gives a group's samples their chrF to the reference, once; null where there is no reference translation. */
function measure(group) {
  if (group.isMeasured) return group;
  const { reference, trg_lang } = data.prompts[group.prompt];
  const expected = reference && reference.trim() && trg_lang ? allNgrams(reference) : null;
  for (const sample of group.samples) sample.chrf = expected && chrfOf(allNgrams(sample.parsed ? sample.text : ""), expected);
  group.isMeasured = true;
  return group;
}
