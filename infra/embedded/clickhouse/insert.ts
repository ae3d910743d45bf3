import { isSymbol, isWord, tokens } from './statement.ts';
import type { Token } from './statement.ts';

/** An INSERT that carries rows, by the offsets of its parts. */
export interface InsertHead {
  /** `INSERT INTO t (columns)`, without what follows. */
  readonly target: string;
  /** `SETTINGS …`, or empty. */
  readonly settings: string;
  readonly format: string;
  /** Offset of the first byte of data in the text that was given. */
  readonly dataStart: number;
}

/**
 * Finds where an INSERT's data begins. The text may hold any bytes behind that point, so it is given as latin1 (one
 * character is one byte, and offsets are bytes). Null: it is no INSERT, or one without rows of its own (`… SELECT`,
 * `… FROM INFILE`), which runs as it stands.
 */
export function insertHead(latin1: string): InsertHead | null {
  const read = tokens(latin1);
  const next = (): Token | undefined => {
    const step = read.next();
    return step.done === true ? undefined : step.value;
  };
  if (!isWord(next(), 'INSERT') || !isWord(next(), 'INTO')) return null;

  let token = next();
  if (isWord(token, 'TABLE', 'FUNCTION')) token = next();
  // The name itself is passed over, so that a table called `format` or `values` is none of the words looked for below.
  token = isSymbol(token, '{') ? skipBrackets(next) : next();
  while (isSymbol(token, '.')) {
    token = next();
    token = isSymbol(token, '{') ? skipBrackets(next) : next();
  }

  let settingsStart: number | null = null;
  const utf8 = (from: number, to: number): string =>
    Buffer.from(latin1.slice(from, to), 'latin1').toString('utf8');
  while (token !== undefined) {
    if (isSymbol(token, '(')) {
      token = skipBrackets(next);
      continue;
    }
    if (isWord(token, 'SELECT', 'WITH', 'FROM', 'WATCH')) {
      return null;
    } else if (isWord(token, 'SETTINGS')) {
      settingsStart ??= token.start;
    } else if (isWord(token, 'VALUES', 'FORMAT')) {
      const format = isWord(token, 'VALUES') ? token : next();
      if (format?.kind !== 'word') return null;
      return {
        target: utf8(0, settingsStart ?? token.start),
        settings: settingsStart === null ? '' : utf8(settingsStart, token.start),
        format: format === token ? 'Values' : format.text,
        dataStart: afterFormat(latin1, format.end),
      };
    }
    token = next();
  }
  return null;
}

/** Reads to behind the bracket that closes the one just read, and gives the token after it. */
function skipBrackets(next: () => Token | undefined): Token | undefined {
  let depth = 1;
  for (let token = next(); token !== undefined; token = next()) {
    if (token.kind !== 'symbol') continue;
    if ('([{'.includes(token.text)) depth++;
    else if (')]}'.includes(token.text) && --depth === 0) return next();
  }
  return undefined;
}

/** Blanks and one line end behind the format's name belong to the statement, everything after to the data. */
function afterFormat(text: string, end: number): number {
  const blanks = /[ \t\f]*\r?\n?/y;
  blanks.lastIndex = end;
  return end + (blanks.exec(text)?.[0].length ?? 0);
}
