// What scripts of page components are given by the page toolkit, and what they share.

interface SafeLensPage {
  /** The address's place that a reload goes back to instead of the present one; null for the present one. */
  returnTo: string | null;
  /** The address's place and the page's own name; `first` is the place of an address without one. */
  arrive(first: string): [string, string];
}

interface Window {
  SafeLensPage: SafeLensPage;
}

declare const element: HTMLElement;
declare const props: { value?: any };
declare function trigger(name: string, detail: object): void;
declare function watch(names: string | string[], call: () => void): void;
