import { isSymbol, isWord, tokens } from './statement.ts';
import type { Token } from './statement.ts';

/** The head of an INSERT with inline data. */
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
 * Finds where the data of an INSERT begins. The data may be binary, so the text is latin1: one character is one byte. Null:
 * not an INSERT, or one without inline data (`… SELECT`, `… FROM INFILE`).
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
  // Skips the table name, which may be `format` or `values`.
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

/** Skips to the closing bracket of the one just read, and returns the token after it. */
function skipBrackets(next: () => Token | undefined): Token | undefined {
  let depth = 1;
  for (let token = next(); token !== undefined; token = next()) {
    if (token.kind !== 'symbol') continue;
    if ('([{'.includes(token.text)) depth++;
    else if (')]}'.includes(token.text) && --depth === 0) return next();
  }
  return undefined;
}

/** Blanks and one line break after the format belong to the statement, everything else to the data. */
function afterFormat(text: string, end: number): number {
  const blanks = /[ \t\f]*\r?\n?/y;
  blanks.lastIndex = end;
  return end + (blanks.exec(text)?.[0].length ?? 0);
}
