import assert from "node:assert/strict";
import { test } from "node:test";

import { Divergence, nextIn, Run } from "../../assets/lens/trace-model.js";
import { toHex } from "../../assets/lens/text.js";

const hex = (text) => toHex(new TextEncoder().encode(text));

const start = (method = "safe") => ({
  event: "start", format: "safe-trace", version: 1, method, ensemble: "unite", prompt: "p", settings: {},
  models: [{ name: "a/small", role: "drafter" }, { name: "b/big", role: "verifier" }],
});
const draft = (window, at, words, extra = {}) => {
  let offset = at;
  const tokens = words.map((word, id) => {
    const token = { id, hex: hex(word), start: offset, p: 0.5 };
    offset += word.length;
    return token;
  });
  return { event: "draft", window, start: at, tokens, ms: 10, ...extra };
};
const check = (index, at, verdict, extra = {}) => ({ index, start: at, verdict, oov_for: [], p: [0.5, 0.4], mean_p: 0.45, edge: false, ...extra });
const verify = (window, checks) => ({ event: "verify", window, checks, ms: 5 });
const fusion = (window, index, chosen, drafted) => ({
  event: "ensemble", window, index, candidates: [{ hex: hex(chosen), p: [0.5, 0.6], mean: 0.55, sharpened: 0.55 }], smooth: false,
  sharpen: "heur", chosen_hex: hex(chosen), draft_hex: hex(drafted), replaced: chosen !== drafted, ms: 1,
});
const commit = (window, at, parts) => {
  let offset = at;
  const tokens = parts.map(([word, source], id) => {
    const token = { id, hex: hex(word), start: offset, source };
    offset += word.length;
    return token;
  });
  return { event: "commit", window, tokens };
};

function runOf(events, key = "left") {
  const run = new Run(key);
  for (const event of events) run.push(event);
  return run;
}

const WINDOW = [
  start(),
  draft(0, 0, ["Inc", "orrect", " be", " gall", " x"]),
  { event: "retokenize", window: 0, readings: [], ms: 2 },
  verify(0, [check(0, 0, "unanimous"), check(1, 3, "oov", { oov_for: ["b/big"], mean_p: null }), check(2, 9, "majority", { edge: true }), check(3, 12, "ensemble"), check(4, 17, "unchecked", { p: [], mean_p: null })]),
  fusion(0, 3, " gallbladder", " gall"),
  commit(0, 0, [["Inc", "draft"], ["orrect", "draft"], [" be", "draft"], [" gall", "ensemble"], ["bladder", "ensemble"]]),
];

test("states follow the verdicts", () => {
  const run = runOf(WINDOW);
  assert.deepEqual(run.tokens.map((token) => token.state), ["agree", "oov", "majority", "replaced", "replaced"]);
  assert.deepEqual(run.tokens.map((token) => [token.index, token.piece]), [[0, 0], [1, 0], [2, 0], [3, 0], [3, 1]]);
  assert.equal(new TextDecoder().decode(run.bytes), "Incorrect be gallbladder");
});

test("numbers come from the events", () => {
  const stats = runOf(WINDOW).stats();
  assert.equal(stats.tokens, 5);
  assert.equal(stats.fusedShare, 1 / 5);
  assert.equal(stats.replaced, 1);
  assert.equal(stats.oov, 1);
  assert.equal(stats.discarded, 2, "the replaced token and the one behind it");
  assert.equal(stats.edges, 1);
  assert.equal(stats.tokensPerSecond, 5000 / 18);
});

test("pieces of one chosen string count once in lists of jumps", () => {
  const run = runOf(WINDOW);
  assert.deepEqual(run.replaced, [3]);
  assert.deepEqual(run.oov, [1]);
});

test("every prefix of a trace gives a valid view, and growing it gives the same as reading it at once", () => {
  const whole = runOf(WINDOW);
  const grown = new Run("left");
  for (const event of WINDOW) {
    grown.push(event);
    assert.ok(grown.stats().tokens >= 0);
  }
  assert.deepEqual(grown.tokens, whole.tokens);
  assert.deepEqual(grown.stats(), whole.stats());
});

test("an every-token method that asks on an OOV-like prefix is broken there, and broke where it then replaced", () => {
  const broken = { oov_for: ["b/big"], mean_p: null, p: [0.5, null] };
  const run = runOf([
    start("unite"),
    draft(0, 0, ["Inc"]), verify(0, [check(0, 0, "ensemble")]), fusion(0, 0, "Inc", "Inc"), commit(0, 0, [["Inc", "ensemble"]]),
    draft(1, 3, ["or"]), verify(1, [check(0, 3, "ensemble", broken)]), fusion(1, 0, "or", "or"), commit(1, 3, [["or", "ensemble"]]),
    draft(2, 5, ["rect"]), verify(2, [check(0, 5, "ensemble", broken)]), fusion(2, 0, "al", "rect"), commit(2, 5, [["al", "ensemble"]]),
  ]);
  assert.deepEqual(run.tokens.map((token) => [token.state, token.broken]), [["kept", false], ["kept", true], ["replaced", true]]);
  assert.equal(run.broke, 2);
  assert.deepEqual(run.oov, [1, 2]);
});

test("a gate that let the drafter decide asked nobody", () => {
  const gated = check(0, 0, "gated", { oov_for: ["b/big"], p: [0.9, null], mean_p: null });
  const run = runOf([start("gac"), draft(0, 0, ["a"]), verify(0, [gated]), commit(0, 0, [["a", "draft"]])]);
  assert.equal(run.tokens[0].broken, false);
  assert.equal(run.tokens[0].state, "gated");
});

test("checking may go on behind a confirmed token, and later checks replace earlier ones", () => {
  const run = runOf([
    start(), draft(0, 0, ["a", "b", "c"]),
    verify(0, [check(0, 0, "ensemble"), check(1, 1, "unchecked"), check(2, 2, "unchecked")]), fusion(0, 0, "a", "a"),
    verify(0, [check(1, 1, "unanimous"), check(2, 2, "ensemble")]), fusion(0, 2, "z", "c"),
    commit(0, 0, [["a", "ensemble"], ["b", "draft"], ["z", "ensemble"]]),
  ]);
  assert.deepEqual(run.tokens.map((token) => [token.state, token.index]), [["kept", 0], ["agree", 1], ["replaced", 2]]);
});

test("drafted tokens taken over by the next window are not discarded", () => {
  const run = runOf([
    start(), draft(0, 0, ["a", "b"]), verify(0, [check(0, 0, "unanimous"), check(1, 1, "unchecked")]), commit(0, 0, [["a", "draft"]]),
    draft(1, 1, ["b", "c"], { carried: 1 }), verify(1, [check(0, 1, "unanimous"), check(1, 2, "unanimous")]), commit(1, 1, [["b", "draft"], ["c", "draft"]]),
  ]);
  assert.equal(run.stats().discarded, 0);
  assert.equal(run.fate(run.windows[0], 1), "passed on");
  assert.equal(run.fate(run.windows[0], 0), "stands");
});

test("a lone model's tokens make no claim", () => {
  const run = runOf([start("single"), draft(0, 0, ["a"]), commit(0, 0, [["a", "draft"]])]);
  assert.equal(run.tokens[0].state, "plain");
});

test("tokens are found by byte", () => {
  const run = runOf(WINDOW);
  assert.equal(run.tokenAtByte(0), 0);
  assert.equal(run.tokenAtByte(3), 1);
  assert.equal(run.tokenAtByte(8), 1);
  assert.equal(run.tokenAtByte(10_000), 4);
  assert.equal(new Run("x").tokenAtByte(0), -1);
});

test("jumps find the next and the previous place", () => {
  assert.equal(nextIn([2, 5, 9], 5, 1), 9);
  assert.equal(nextIn([2, 5, 9], 5, -1), 2);
  assert.equal(nextIn([2, 5, 9], 9, 1), -1);
  assert.equal(nextIn([2, 5, 9], 2, -1), -1);
  assert.equal(nextIn([2, 5, 9], -1, 1), 2);
  assert.equal(nextIn([2, 5, 9], 100, -1), 9);
  assert.equal(nextIn([], 0, 1), -1);
});

const said = (words, ended = false) => {
  const run = runOf([start("single")]);
  let at = 0;
  words.forEach((word, window) => {
    run.push(draft(window, at, [word]));
    run.push(commit(window, at, [[word, "draft"]]));
    at += word.length;
  });
  if (ended) run.push({ event: "end", reason: "eos", text: "", stats: {}, ms: 0 });
  return run;
};

test("divergence is the first byte that differs, whatever the tokens", () => {
  const apart = new Divergence(said(["ab", "cd"]), said(["abc", "x"]));
  apart.update();
  assert.equal(apart.at, 3);
});

test("a response that is merely behind has not diverged; one that ended has", () => {
  const [left, right] = [said(["abc"]), said(["ab"])];
  const apart = new Divergence(left, right);
  apart.update();
  assert.equal(apart.at, -1);
  right.push({ event: "end", reason: "eos", text: "", stats: {}, ms: 0 });
  apart.update();
  assert.equal(apart.at, 2);
});

test("equal responses never part", () => {
  const apart = new Divergence(said(["abc"], true), said(["a", "bc"], true));
  apart.update();
  assert.equal(apart.at, -1);
});
