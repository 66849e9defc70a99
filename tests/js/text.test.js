import assert from "node:assert/strict";
import { test } from "node:test";

import { breaksLine, cells, characters, clusters, codePoints, exactText, fromHex, label, spellBytes, toHex, wholeCharacters } from "../../assets/lens/text.js";

const encoder = new TextEncoder();
const bytesOf = (text) => encoder.encode(text);

/** Tokens of the given sizes over a text's bytes. */
function tokensOf(text, sizes) {
  const bytes = typeof text === "string" ? bytesOf(text) : text;
  let at = 0;
  return sizes.map((size) => {
    const token = { bytes: bytes.subarray(at, at + size), start: at, end: at + size };
    at += size;
    return token;
  });
}

const HARD = [
  "", " ", "     ", "\n", "\r\n", "\t\t", "\u00a0", "\u200b", "\ufeff", "\u202e\u2066abc\u2069", "e\u0301 \u00e9", "\u0301", "\ufe0f",
  "\ufffd", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "漢字かな交じり", "שלום עולם", "مرحبا‌ abc", "<script>alert(1)</script>", "${x} {{y}} `z` \\", "<|im_end|>", "क्षि", "\u0000\u001b\u007f\u0085",
  "x".repeat(5000),
];

test("hex goes both ways", () => {
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
  assert.deepEqual(fromHex(toHex(bytes)), bytes);
  assert.equal(spellBytes(fromHex("f09f")), "F0 9F");
});

test("cells cover every byte once, in order, and show something for each", () => {
  for (const text of HARD) {
    const bytes = bytesOf(text);
    let at = 7;
    for (const cell of cells(bytes, 7)) {
      assert.equal(cell.start, at, JSON.stringify(text));
      assert.ok(cell.end > cell.start && cell.label.length > 0);
      at = cell.end;
    }
    assert.equal(at, 7 + bytes.length);
  }
});

test("labels never hold the replacement character, nor anything that cannot be seen", () => {
  for (const text of HARD) {
    const shown = label(bytesOf(text));
    assert.doesNotMatch(shown, /[\ufffd\n\r\t\u00a0\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/u, JSON.stringify(text));
    assert.doesNotMatch(shown, / /, "blanks are drawn as a sign");
  }
});

test("every single byte that is no character is shown as hexadecimal", () => {
  for (let byte = 0x80; byte < 0x100; byte += 1) {
    const [cell] = cells(Uint8Array.of(byte));
    assert.deepEqual([cell.kind, cell.label], ["byte", byte.toString(16).toUpperCase()]);
  }
});

test("overlong, surrogate and too large encodings are bytes, not characters", () => {
  for (const hex of ["c080", "eda080", "f4908080", "f5808080", "e08080"]) {
    assert.ok(codePoints(fromHex(hex)).every((point) => point.char === null), hex);
  }
});

test("special characters have names of their own", () => {
  const labels = (text) => cells(bytesOf(text)).map((cell) => cell.label);
  assert.deepEqual(labels("a b"), ["a", "␣", "b"]);
  assert.deepEqual(labels("\r\n"), ["CR", "↵"]);
  assert.deepEqual(labels("\t"), ["⇥"]);
  assert.deepEqual(labels("\u00a0"), ["NBSP"]);
  assert.deepEqual(labels("\u200b"), ["ZWSP"]);
  assert.deepEqual(labels("\ufeff"), ["BOM"]);
  assert.deepEqual(labels("\ufffd"), ["U+FFFD"]);
  assert.deepEqual(labels("        "), ["␣×8"]);
});

test("a sign that stands for a blank differs in kind from the same sign written by a model", () => {
  assert.equal(cells(bytesOf(" "))[0].kind, "glyph");
  assert.equal(cells(bytesOf("\u2423"))[0].kind, "text");
});

test("decomposed and composed letters each stay what they are", () => {
  assert.deepEqual(cells(bytesOf("e\u0301")).map((cell) => [cell.label, cell.end]), [["e\u0301", 3]]);
  assert.deepEqual(cells(bytesOf("\u00e9")).map((cell) => [cell.label, cell.end]), [["\u00e9", 2]]);
  assert.equal(cells(bytesOf("\u0301"))[0].label, "\u25cc\u0301");
});

test("a joined emoji is one character", () => {
  assert.equal(characters(bytesOf("👩‍👩‍👧")).length, 1);
  assert.equal(characters(bytesOf("🇩🇪")).length, 1);
});

test("exact text is exact, and stray bytes are spelled", () => {
  for (const text of HARD) assert.equal(exactText(bytesOf(text)), text);
  assert.equal(exactText(fromHex("61f09f62")), "a\\xf0\\x9fb");
});

test("tokens that share a character form one group; others stand alone", () => {
  const groups = clusters(tokensOf("a😀b", [1, 2, 2, 1]));
  assert.deepEqual(groups.map(({ first, last }) => [first, last]), [[0, 1], [1, 3], [3, 4]]);
  assert.deepEqual(groups[1].chars, [{ label: "😀", start: 1, end: 5 }]);
});

test("a joined emoji cut into many tokens is one character over all of them", () => {
  const text = "👩‍👩‍👧";
  const groups = clusters(tokensOf(text, [4, 3, 4, 3, 2, 2]));
  assert.equal(groups.length, 1);
  assert.equal(groups[0].chars[0].label, text);
});

test("a character still to be completed is held together without being guessed", () => {
  const groups = clusters(tokensOf(fromHex("61f09f98"), [1, 1, 1, 1]));
  assert.deepEqual(groups.map(({ first, last }) => [first, last]), [[0, 1], [1, 4]]);
  assert.equal(groups[1].chars[0].label, "…");
});

test("carriage return and newline stay two tokens", () => {
  assert.equal(clusters(tokensOf("\r\n", [1, 1])).length, 2);
});

test("tokens without bytes keep their place", () => {
  const groups = clusters([...tokensOf("ab", [1, 1]), { bytes: new Uint8Array(0), start: 2, end: 2 }]);
  assert.deepEqual(groups.map(({ first, last }) => [first, last]), [[0, 1], [1, 2], [2, 3]]);
});

test("grouping covers all tokens in order, wherever text is cut", () => {
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (const text of HARD) {
    const total = bytesOf(text).length;
    const sizes = [];
    for (let left = total; left > 0; ) {
      const size = Math.min(left, 1 + Math.floor(random() * 4));
      sizes.push(size);
      left -= size;
    }
    const groups = clusters(tokensOf(text, sizes));
    let at = 0;
    for (const group of groups) {
      assert.equal(group.first, at);
      assert.ok(group.last > group.first);
      at = group.last;
    }
    assert.equal(at, sizes.length);
  }
});

test("selections widen to whole characters", () => {
  const bytes = bytesOf("a😀b");
  assert.deepEqual(wholeCharacters(bytes, 2, 3), [1, 5]);
  assert.deepEqual(wholeCharacters(bytes, 1, 5), [1, 5]);
});

test("a newline anywhere in a token breaks the line", () => {
  assert.ok(breaksLine(bytesOf(".\n\n")));
  assert.ok(!breaksLine(bytesOf(" a")));
});
