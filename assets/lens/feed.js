// What the page hands to the lens: an append-only list of items, in order.

/** @import { Item, TraceEvent } from "./types.d.ts" */

/** Gets packs that the server holds, by name; null for one that is gone. @typedef {(names: string[]) => Promise<Array<string|null>>} FetchPacks */

/**
 * @typedef {Object} Sink
 * @property {(item: Item) => void} reset
 * @property {(run: string, events: TraceEvent[]) => void} events
 * @property {() => void} done
 * @property {(words: string) => void} lost
 */

/** @param {string} base64 @returns {Promise<TraceEvent[]>} */
export async function unpack(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/**
 * Events as they come live: what was left out because it follows from the rest is put back, and a fusion that has more
 * candidates learns where they are.
 * @param {string} json @param {string} [ref] @returns {TraceEvent[]}
 */
export function revive(json, ref) {
  /** @type {TraceEvent[]} */
  const events = JSON.parse(json);
  for (const event of events) {
    if (event.event !== "ensemble") continue;
    for (const candidate of event.candidates) candidate.sharpened ??= candidate.mean;
    if (event.of !== undefined && ref !== undefined) event.ref = ref;
  }
  return events;
}

/** Takes items in order, unpacking some, and hands on a list at a time. */
export class Feed {
  /** @param {Sink} sink @param {FetchPacks} [fetchPacks] */
  constructor(sink, fetchPacks = async (names) => names.map(() => null)) {
    this.sink = sink;
    this.fetchPacks = fetchPacks;
    /** @type {Promise<void>} */
    this.last = Promise.resolve();
    this.generation = 0;
  }

  /** Forgets what is still waiting. */
  clear() {
    this.generation += 1;
  }

  /** @param {Item[]} list @returns {Promise<void>} when they have been handed on */
  push(list) {
    const generation = this.generation;
    const items = list.map((item) => ({ ...item })); // the page takes events out of items that are no longer new
    const fetched = this.#fetch(items.flatMap((item) => (item.ref === undefined || item.live !== undefined ? [] : [item.ref])));
    this.last = this.last.then(async () => {
      const packs = await fetched;
      for (const item of items) {
        const pack = item.gz ?? packs.get(item.ref ?? "") ?? null;
        const events = item.live !== undefined ? revive(item.live, item.ref) : pack !== null ? await unpack(pack) : null;
        if (generation !== this.generation) return;
        if (events === null && item.ref !== undefined) this.sink.lost("Events of this run are no longer held by the server. Open its trace again to see all of it.");
        this.#take(item, events ?? []);
        if (pack !== null && item !== items.at(-1)) this.sink.done(); // to be seen while the next run is being unpacked
      }
      this.sink.done();
    });
    return this.last;
  }

  /** The whole events behind a name; null when the server does not give them. @param {string} ref */
  async whole(ref) {
    const pack = (await this.#fetch([ref])).get(ref) ?? null;
    return pack === null ? null : unpack(pack);
  }

  /** @param {string[]} names @returns {Promise<Map<string, string|null>>} */
  async #fetch(names) {
    if (names.length === 0) return new Map();
    const packs = (await this.fetchPacks(names).catch(() => null)) ?? [];
    return new Map(names.map((name, k) => [name, packs[k] ?? null]));
  }

  /** @param {Item} item @param {TraceEvent[]} events */
  #take(item, events) {
    if (item.reset === true) this.sink.reset(item);
    else if (item.run !== undefined) this.sink.events(item.run, item.event !== undefined ? [item.event] : events);
  }
}
