// What travels from the engine to the page: the records of safe_core/events.py, field by field (a test compares them), and
// what the page adds. Fields with "?" are left out where they have their default.

export type Verdict = "unanimous" | "majority" | "ensemble" | "oov" | "gated" | "unaligned" | "unchecked";

export interface ModelInfo {
  name: string;
  role: "drafter" | "verifier";
  vocab_size: number;
  prompt_ids: number[];
}

export interface Fed {
  model: string;
  passes: number;
  tokens: number;
}

export interface DraftToken {
  id: number;
  hex: string;
  start: number;
  p: number;
  eos?: boolean;
  control?: boolean;
}

export interface ReadToken {
  id: number;
  hex: string;
  start: number;
  p: number | null;
  argmax_hex: string | null;
  argmax_eos?: boolean;
  eos?: boolean;
}

export interface Reading {
  model: string;
  tokens: ReadToken[];
  unaligned?: [number, number][];
}

export interface Broken {
  model: string;
  hex: string;
  p: number;
  eos?: boolean;
}

export interface Check {
  index: number;
  start: number;
  verdict: Verdict;
  oov_for: string[];
  p: (number | null)[];
  mean_p: number | null;
  edge: boolean;
  broken?: Broken[];
}

export interface CandidateRecord {
  hex: string;
  p: number[];
  mean: number;
  sharpened: number;
  eos?: boolean;
}

export interface CommitToken {
  id: number;
  hex: string;
  start: number;
  source: "draft" | "ensemble";
  eos?: boolean;
  control?: boolean;
}

export interface Start {
  event: "start";
  format: string;
  version: number;
  method: "safe" | "unite" | "gac" | "single";
  ensemble: "unite" | "gac";
  models: ModelInfo[];
  prompt: string;
  settings: Record<string, unknown>;
}

export interface Draft {
  event: "draft";
  window: number;
  start: number;
  tokens: DraftToken[];
  ms: number;
  forward_ms?: number;
  fed?: Fed[];
  carried?: number;
}

export interface Retokenize {
  event: "retokenize";
  window: number;
  readings: Reading[];
  ms: number;
}

export interface Verify {
  event: "verify";
  window: number;
  checks: Check[];
  ms: number;
  forward_ms?: number;
  fed?: Fed[];
}

export interface Ensemble {
  event: "ensemble";
  window: number;
  index: number;
  candidates: CandidateRecord[];
  smooth: boolean;
  sharpen: "heur" | "geom" | "none";
  chosen_hex: string;
  draft_hex: string;
  replaced: boolean;
  ms: number;
  chosen_eos?: boolean;
  draft_eos?: boolean;
  forced?: boolean;
}

export interface Commit {
  event: "commit";
  window: number;
  tokens: CommitToken[];
}

export interface End {
  event: "end";
  reason: "eos" | "length" | "stop" | "cancelled" | "error";
  text: string;
  stats: Record<string, unknown>;
  ms?: number;
  error?: string | null;
  oov_like?: Record<string, number[]>;
}

export type TraceEvent = Start | Draft | Retokenize | Verify | Fusion | Commit | End;

// ---- what the page adds -------------------------------------------------------------------------------------------------

/** An ensemble event of which only the best candidates are here: there are `of`, and the server holds all under `ref`. */
export interface Fusion extends Ensemble {
  of?: number;
  ref?: string;
}

/**
 * What the page hands to the lens, an append-only list of these. `reset` starts a new view (`panes` name its runs, `trace` is
 * its name in links); `event` is one trace event of a run; `gz` is several of them: base64 of gzip of a JSON list; `ref` is
 * the name under which the server holds such a pack, `live` what is drawn of it at once, as a JSON list.
 */
export interface Item {
  reset?: true;
  id?: string;
  panes?: PaneInfo[];
  trace?: string | null;
  run?: string;
  event?: TraceEvent;
  gz?: string;
  ref?: string;
  live?: string;
}

export interface PaneInfo {
  run: string;
  title?: string;
}

/** How a committed token came to stand. The first five read as rows of the legend; the rest are quiet. */
export type State = "agree" | "majority" | "oov" | "kept" | "replaced" | "gated" | "unaligned" | "unchecked" | "plain";

/** What became of a drafted token. */
export type Fate = "stands" | "waits" | "passed on" | "gone";

export type Phase = "draft" | "retokenize" | "verify" | "ensemble";

/** A token of the response. */
export interface Tok {
  /** place in the response, from 0 */
  i: number;
  id: number;
  hex: string;
  bytes: Uint8Array<ArrayBuffer>;
  /** byte offset in the response */
  start: number;
  /** byte offset just behind it */
  end: number;
  eos: boolean;
  control: boolean;
  /** its source is the ensemble */
  fused: boolean;
  /** place of its window in `Run.windows` */
  window: number;
  /** place of its position in the window's draft */
  index: number;
  /** which piece of the chosen string it is, from 0 */
  piece: number;
  state: State;
  /** a model was asked here although it read an OOV-like prefix (every-token methods) */
  broken: boolean;
}

/** One cycle. */
export interface Win {
  number: number;
  /** place in `Run.windows` */
  at: number;
  /** byte offset */
  start: number;
  /** drafted tokens taken over from an earlier cycle */
  carried: number;
  /** how many of its last drafted tokens the next cycle took over */
  passedOn: number;
  draft: DraftToken[];
  readings: Reading[];
  /** by draft index, with holes */
  checks: (Check | undefined)[];
  /** by draft index, with holes */
  fusions: (Fusion | undefined)[];
  /** first committed token */
  first: number;
  /** one behind the last committed token */
  last: number;
  ms: Record<Phase, number>;
}

/** A place in the runs, as links and listeners name it. `token` counts from 0 in the response; `window` is its number. */
export interface Place {
  trace?: string | null;
  run: string | null;
  window: number | null;
  token: number | null;
}

/** What a listener for `select` is told. */
export interface Selected {
  run: string;
  window: number;
  token: number;
  index: number;
  value: string;
}

/** The wish to go on from another choice. */
export interface ForkWish {
  run: string;
  window: number;
  index: number;
  hex: string;
  eos: boolean;
}

/** A part of a sentence: words of the page, bytes a model wrote, or the end of the sequence. */
export type Part = string | { quote: Uint8Array } | { eos: true };

/**
 * A drawn part of a token. `text`: ordinary characters, drawn as they are. `glyph`: one special character (or a run of the
 * same one) under a visible name. `byte`: bytes that are no whole character here, as hexadecimal.
 */
export interface Cell {
  kind: "text" | "glyph" | "byte";
  label: string;
  start: number;
  end: number;
  title: string;
}

/** A character whose bytes come from several tokens. Offsets in the response. */
export interface SharedCharacter {
  label: string;
  start: number;
  end: number;
}

/** A stretch of tokens in which characters are whole: one token, or several that share a character (`chars`). */
export interface Cluster {
  first: number;
  last: number;
  chars: SharedCharacter[];
}

/** A node that draws a cell and knows its bytes in the response, for copying. */
export type CellNode = HTMLElement & { fromByte?: number; toByte: number; isText: boolean };

/** A node that draws a token and knows its place. */
export type Chip = HTMLElement & { token: number };

/** A window or a fusion as drawn: names at the left, the body that scrolls. Pixels. */
export interface Board {
  names: SVGElement;
  body: SVGElement;
  labelWidth: number;
  width: number;
  height: number;
}
