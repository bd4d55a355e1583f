/** Completion of a word in a text that is being written, whatever its language. */

export type OptionKind = "field" | "record" | "function" | "keyword" | "stream" | "key" | "value" | "node";

export interface Option {
  kind: OptionKind;
  /** The word that is put into the text. */
  text: string;
  /** The meaning, in a few words. */
  detail: string;
  /** The text that is put behind it, such as the colon of a key. */
  tail?: string;
}

export interface Completion {
  /** The word at the caret, which is replaced. */
  from: number;
  to: number;
  options: Option[];
}

/**
 * The options for the word at the caret. Null where there are none, and, unless `asked` for, where no word has begun
 * or the word is whole already.
 */
export type Complete = (text: string, caret: number, asked: boolean) => Completion | null;

/** More than this nobody reads. */
export const OPTIONS_MAX = 50;
