import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { test } from "node:test";

import { Feed, revive, unpack } from "../../assets/lens/feed.js";
import { formatHash, parseHash } from "../../assets/lens/hash.js";
import { actionOf, isTyping, keyName, KEYS } from "../../assets/lens/keys.js";
import { Ruler } from "../../assets/lens/ruler.js";
import { ariaLabel, asText, formatMs, formatP, listNames, sayP, shortName, STATES, verdictSentence } from "../../assets/lens/sentences.js";
import { Run } from "../../assets/lens/trace-model.js";
import { toHex } from "../../assets/lens/text.js";

globalThis.Element ??= class Element {};

const packed = (list) => gzipSync(JSON.stringify(list)).toString("base64");
const hex = (text) => toHex(new TextEncoder().encode(text));

test("the ruler gives every row the same place for the same byte, and room for every label", () => {
  const spans = [{ start: 10, end: 13, need: 70 }, { start: 13, end: 19, need: 40 }, { start: 10, end: 19, need: 90 }, { start: 18, end: 19, need: 44 }];
  const ruler = new Ruler(10, 19, spans);
  for (const span of spans) assert.ok(ruler.box(span.start, span.end).width >= span.need - 1e-9);
  for (let at = 10; at < 19; at += 1) assert.ok(ruler.x(at + 1) > ruler.x(at));
  assert.equal(ruler.x(10), 0);
  assert.equal(ruler.box(10, 13).width, ruler.x(13));
});

test("a token without bytes has a slot behind the last byte", () => {
  const ruler = new Ruler(0, 4, [], 60);
  assert.deepEqual(ruler.box(4, 4), { x: ruler.x(4), width: 60 });
  assert.equal(ruler.width, ruler.x(4) + 60);
});

test("thousands of bytes stay within reach, and an empty window has a width", () => {
  assert.ok(new Ruler(0, 5000, [{ start: 0, end: 5000, need: 200 }]).width < 2000);
  assert.equal(new Ruler(3, 3, [], 20).width, 20);
});

test("offsets outside the ruler stick to its ends", () => {
  const ruler = new Ruler(5, 8, []);
  assert.equal(ruler.x(0), 0);
  assert.equal(ruler.x(99), ruler.x(8));
});

test("probabilities never read as 0, 1 or one half when they are not", () => {
  assert.equal(formatP(0.5), ".50");
  assert.equal(formatP(0.5003), ".5003");
  assert.equal(formatP(0.500001), ">.5");
  assert.equal(formatP(0.499999), "<.5");
  assert.equal(formatP(0.999), ".999");
  assert.equal(formatP(0.9999999), ">.9999");
  assert.equal(formatP(1), "1.00");
  assert.equal(formatP(0), ".00");
  assert.equal(formatP(1e-9), "<.0001");
  assert.equal(formatP(null), "–");
  assert.equal(sayP(0.25), "0.25");
  assert.equal(sayP(1), "1.00");
  assert.equal(sayP(1e-9), "<0.0001");
});

test("times and names are short", () => {
  assert.equal(formatMs(210.4), "210 ms");
  assert.equal(formatMs(9.25), "9.3 ms");
  assert.equal(shortName("owner/model-1"), "model-1");
  assert.equal(listNames(["a/x", "y", "b/z"]), "x, y and z");
});

test("links to a moment go both ways", () => {
  const place = { trace: "tour & more", run: "right", window: 7, token: 41 };
  assert.deepEqual(parseHash(formatHash(place)), place);
  assert.deepEqual(parseHash("#trace=a&token=-1&window=x"), { trace: "a", run: null, window: null, token: null });
  assert.equal(formatHash({ trace: null, run: "left", window: 0, token: 0 }), "#run=left&window=0&token=0");
});

test("every key has one action, and modified keys are left to the browser", () => {
  const press = (key, extra = {}) => actionOf({ key, shiftKey: false, ctrlKey: false, metaKey: false, altKey: false, ...extra });
  assert.equal(press("ArrowRight"), "nextToken");
  assert.equal(press("ArrowRight", { shiftKey: true }), "nextWindow");
  assert.equal(press("o"), "nextOov");
  assert.equal(press("O", { shiftKey: true }), "previousOov");
  assert.equal(press("r", { ctrlKey: true }), null);
  assert.equal(press("q"), null);
  assert.equal(new Set(KEYS.map(keyName)).size, KEYS.length);
  assert.ok(KEYS.every((entry) => entry.help.length > 0));
});

test("a key with no element behind it is not typing", () => {
  assert.equal(isTyping({ target: null, key: "o" }), false);
});

function collected() {
  const got = [];
  const sink = {
    reset: (item) => got.push(["reset", item.trace]),
    events: (run, events) => got.push([run, ...events.map((event) => event.event)]),
    done: () => got.push("done"),
    lost: () => got.push("lost"),
  };
  return { got, sink };
}

test("items are taken in order, packed or not, fetched or not", async () => {
  const { got, sink } = collected();
  const feed = new Feed(sink, async (names) => names.map((name) => (name === "here" ? packed([{ event: "commit" }]) : null)));
  feed.push([{ reset: true, trace: "t" }, { run: "left", gz: packed([{ event: "start" }, { event: "draft" }]) }]);
  await feed.push([{ run: "left", ref: "here" }, { run: "right", event: { event: "start" } }, { run: "right", ref: "gone" }]);
  assert.deepEqual(got, [["reset", "t"], ["left", "start", "draft"], "done", ["left", "commit"], "done", ["right", "start"], "lost", ["right"], "done"]);
});

test("what was still on its way is dropped when a feed is cleared", async () => {
  const { got, sink } = collected();
  const feed = new Feed(sink);
  const first = feed.push([{ run: "left", gz: packed([{ event: "start" }]) }]);
  feed.clear();
  await first;
  await feed.push([{ run: "left", event: { event: "end" } }]);
  assert.deepEqual(got, [["left", "end"], "done"]);
});

test("events that stand in an item need no fetch, and what was left out of them is put back", async () => {
  const fused = { event: "ensemble", window: 3, index: 1, candidates: [{ hex: "61", mean: 0.4, sharpened: 0.7 }, { hex: "62", mean: 0.2 }], of: 9 };
  const live = JSON.stringify([{ event: "draft" }, fused, { ...fused, of: undefined }]);
  const [, first, second] = revive(live, "r1");
  assert.deepEqual(first.candidates.map((c) => c.sharpened), [0.7, 0.2]);
  assert.deepEqual([first.of, first.ref, second.of, second.ref], [9, "r1", undefined, undefined]);
  const asked = [];
  const { got, sink } = collected();
  const feed = new Feed(sink, async (names) => {
    asked.push(...names);
    return names.map((name) => (name === "r1" ? packed([{ event: "ensemble", window: 3 }]) : null));
  });
  const items = [{ run: "left", ref: "r1", live }, { run: "left", ref: "r2" }];
  const pushed = feed.push(items);
  delete items[0].live; // as the page does once an item is no longer new
  await pushed;
  assert.deepEqual(asked, ["r2"]);
  assert.deepEqual(got, [["left", "draft", "ensemble", "ensemble"], "lost", ["left"], "done"]);
  assert.deepEqual(await feed.whole("r1"), [{ event: "ensemble", window: 3 }]);
  assert.equal(await feed.whole("gone"), null);
});

test("a server that does not answer is told as events that are gone", async () => {
  const { got, sink } = collected();
  const feed = new Feed(sink, async () => undefined);
  await feed.push([{ run: "left", ref: "r" }]);
  assert.deepEqual(got, ["lost", ["left"], "done"]);
  const broken = new Feed(sink, async () => Promise.reject(new Error("offline")));
  assert.equal(await broken.whole("r"), null);
});

test("packed events come back as they were", async () => {
  const events = [{ event: "start", prompt: "\u202e</script>${x}\u2028" }];
  assert.deepEqual(await unpack(packed(events)), events);
});

function judged(verdict, extra, method = "safe") {
  const run = new Run("left");
  run.push({ event: "start", method, ensemble: "unite", prompt: "", settings: {}, models: [{ name: "SmolLM2", role: "drafter" }, { name: "google/Gemma", role: "verifier" }] });
  run.push({ event: "draft", window: 0, start: 0, tokens: [{ id: 1, hex: hex("Inc"), start: 0, p: 0.4 }, { id: 2, hex: hex("orrect"), start: 3, p: 0.9 }], ms: 1 });
  run.push({ event: "retokenize", window: 0, readings: [{ model: "google/Gemma", tokens: [{ id: 9, hex: hex("Incorrect"), start: 0, p: 0.2, argmax_hex: null }] }], ms: 1 });
  run.push({ event: "verify", window: 0, checks: [{ index: 0, start: 0, verdict: "unanimous", oov_for: [], p: [0.4, 0.2], mean_p: 0.3, edge: true }, { index: 1, start: 3, verdict, oov_for: [], p: [0.9, 0.8], mean_p: 0.85, edge: false, ...extra }], ms: 1 });
  return run;
}

function committed(run, source = "draft") {
  run.push({ event: "commit", window: 0, tokens: [{ id: 1, hex: hex("Inc"), start: 0, source: "draft" }, { id: 2, hex: hex("orrect"), start: 3, source }] });
  return asText(verdictSentence(run, run.windows[0], 1, run.tokens[1])).replace(/[\u2068\u2069]/g, "");
}

test("a sentence names who could not be asked, and why", () => {
  const words = committed(judged("oov", { oov_for: ["google/Gemma"], p: [0.9, null], mean_p: null }));
  assert.equal(words, "Not safe to ask: Gemma reads “Incorrect” as one token and would have to continue from “Inc”. The drafter's “orrect” is kept.");
});

test("sentences of agreement and majority carry the mean", () => {
  assert.match(committed(judged("unanimous", {})), /^Both models agree: .*\(mean 0\.85\)\. “orrect” is kept without fusing\.$/);
  assert.match(committed(judged("majority", {})), /mean 0\.85 is above 0\.5/);
});

test("a fusion's sentence says what won, with what mass, and what it replaced", () => {
  const run = judged("ensemble", { mean_p: 0.21 });
  run.push({ event: "ensemble", window: 0, index: 1, candidates: [{ hex: hex(" gallbladder"), p: [0.3, 0.5], mean: 0.4, sharpened: 0.62 }], smooth: true, sharpen: "heur", chosen_hex: hex(" gallbladder"), draft_hex: hex("orrect"), replaced: true, ms: 1 });
  run.push({ event: "commit", window: 0, tokens: [{ id: 1, hex: hex("Inc"), start: 0, source: "draft" }, { id: 3, hex: hex(" gall"), start: 3, source: "ensemble" }, { id: 4, hex: hex("bladder"), start: 8, source: "ensemble" }] });
  const words = asText(verdictSentence(run, run.windows[0], 1, run.tokens[2])).replace(/[\u2068\u2069]/g, "");
  assert.match(words, /the mean 0\.21 is not above 0\.5/);
  assert.match(words, /“␣gallbladder” won with 0\.40, sharpened to 0\.62 .*and replaced the drafter's “orrect”\./);
  assert.match(words, /“bladder”, is piece 2 of it/);
});

test("a broken prefix is said with what the model answered", () => {
  const run = judged("ensemble", { oov_for: ["google/Gemma"], p: [0.9, null], mean_p: null, broken: [{ model: "google/Gemma", hex: hex(" X"), p: 0.3 }] }, "unite");
  run.push({ event: "ensemble", window: 0, index: 1, candidates: [{ hex: hex("orrect"), p: [0.9, 0.1], mean: 0.5, sharpened: 0.5 }], smooth: false, sharpen: "none", chosen_hex: hex("orrect"), draft_hex: hex("orrect"), replaced: false, ms: 1 });
  assert.match(committed(run, "ensemble"), /^Asked on a broken prefix: Gemma reads “Incorrect” as one token .*; Gemma answered “␣X” \(0\.30\)\. Fused: the drafter's “orrect” won/);
});

test("edge decisions and discarded tokens say so", () => {
  const run = judged("unchecked", { p: [], mean_p: null });
  run.push({ event: "commit", window: 0, tokens: [{ id: 1, hex: hex("Inc"), start: 0, source: "draft" }] });
  assert.match(asText(verdictSentence(run, run.windows[0], 0, run.tokens[0])), /edge of the text drafted so far/);
  assert.match(asText(verdictSentence(run, run.windows[0], 1, null)), /was discarded/);
  assert.match(ariaLabel(run, run.tokens[0]), /^Token #0, \u2068Inc\u2069\. Both models agree/);
});

test("the six states of the legend are there, each with words", () => {
  assert.deepEqual(STATES.map((state) => state.key), ["agree", "majority", "oov", "kept", "replaced", "broken"]);
  assert.ok(STATES.every((state) => state.words.length > 0 && state.help.length > 0));
});
