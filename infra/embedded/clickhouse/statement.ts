/**
 * ClickHouse's lexer, as far as telling one statement from another needs it: comments, the three kinds of quotes,
 * heredocs, words, and single symbols. Where a text could be read in two ways the token is `unknown`, and whoever must
 * be sure refuses it.
 */
export interface Token {
  readonly kind: 'word' | 'quoted' | 'string' | 'number' | 'symbol' | 'unknown';
  /** A word or symbol as written, what a quoted identifier names; for other kinds empty. */
  readonly text: string;
  readonly start: number;
  /** Behind its last character. */
  readonly end: number;
}

const space = /[\s]+/y;
const word = /[A-Za-z_][A-Za-z0-9_]*/y;
const number = /[0-9][A-Za-z0-9_]*/y;
const heredoc = /\$[A-Za-z0-9_]*\$/y;
const prefixed = /[xXbB]'[0-9A-Fa-f]*'/y;
const typographic: Readonly<Record<string, string>> = { '‘': '’', '“': '”' };

/** Reads as it is asked, so that only the head of an INSERT is looked at and never its data. */
export function* tokens(sql: string): Generator<Token> {
  let at = 0;
  const match = (pattern: RegExp): string | null => {
    pattern.lastIndex = at;
    return pattern.exec(sql)?.[0] ?? null;
  };
  const token = (kind: Token['kind'], end: number, text = ''): Token => {
    const made = { kind, text, start: at, end };
    at = end;
    return made;
  };

  while (at < sql.length) {
    const blank = match(space);
    if (blank !== null) {
      at += blank.length;
      continue;
    }
    const comment = commentEnd(sql, at);
    if (comment !== null) {
      if (comment > sql.length) yield token('unknown', sql.length);
      else at = comment;
      continue;
    }
    const char = sql.charAt(at);
    if (char === "'" || char === '`' || char === '"') {
      const end = quoteEnd(sql, at);
      if (end === null) yield token('unknown', sql.length);
      else if (char === "'") yield token('string', end);
      else yield token('quoted', end, unquote(sql.slice(at + 1, end - 1), char));
      continue;
    }
    const literal = match(prefixed);
    if (literal !== null) {
      yield token('string', at + literal.length);
      continue;
    }
    const name = match(word);
    if (name !== null) {
      // `x'…'` with anything but digits in it: its end is not found as that of other strings is.
      const odd = /^[xXbB]$/.test(name) && sql.charAt(at + 1) === "'";
      yield odd ? token('unknown', sql.length) : token('word', at + name.length, name);
      continue;
    }
    const digits = match(number);
    if (digits !== null) {
      yield token('number', at + digits.length, digits);
      continue;
    }
    const mark = match(heredoc);
    if (mark !== null) {
      const close = sql.indexOf(mark, at + mark.length);
      yield close === -1 ? token('unknown', sql.length) : token('string', close + mark.length);
      continue;
    }
    const closing = typographic[char];
    if (closing !== undefined) {
      const close = sql.indexOf(closing, at + 1);
      yield token('unknown', close === -1 ? sql.length : close + 1);
      continue;
    }
    const code = sql.charCodeAt(at);
    const plain = code > 0x20 && code < 0x7f && char !== '$' && char !== '#' && char !== '\\';
    yield token(plain ? 'symbol' : 'unknown', at + 1, char);
  }
}

/** Where a comment that begins here ends; past the text's end when it is never closed; null when none begins. */
function commentEnd(sql: string, at: number): number | null {
  const two = sql.slice(at, at + 2);
  if (two === '--' || two === '//' || two === '# ' || two === '#!') {
    const line = sql.indexOf('\n', at);
    return line === -1 ? sql.length : line + 1;
  }
  if (two !== '/*') return null;
  // They nest.
  let depth = 1;
  for (let i = at + 2; i < sql.length; i++) {
    const pair = sql.slice(i, i + 2);
    if (pair === '/*') depth++;
    else if (pair === '*/') depth--;
    else continue;
    i++;
    if (depth === 0) return i + 1;
  }
  return sql.length + 1;
}

/** Behind the closing quote; a doubled quote and a backslash escape do not close. */
function quoteEnd(sql: string, at: number): number | null {
  const quote = sql.charAt(at);
  for (let i = at + 1; i < sql.length; i++) {
    const char = sql.charAt(i);
    if (char === '\\') i++;
    else if (char === quote) {
      if (sql.charAt(i + 1) !== quote) return i + 1;
      i++;
    }
  }
  return null;
}

function unquote(inner: string, quote: string): string {
  return inner.replaceAll(quote + quote, quote).replaceAll(/\\(.)/gs, '$1');
}

export function isWord(token: Token | undefined, ...words: readonly string[]): boolean {
  return token?.kind === 'word' && words.includes(token.text.toUpperCase());
}

export function isSymbol(token: Token | undefined, symbol: string): boolean {
  return token?.kind === 'symbol' && token.text === symbol;
}

/** The statements in a text, each by its tokens; a last `;` makes no empty one. */
export function statements(sql: string): Token[][] {
  const found: Token[][] = [[]];
  for (const token of tokens(sql)) {
    if (isSymbol(token, ';')) found.push([]);
    else found.at(-1)?.push(token);
  }
  return found.filter((statement) => statement.length > 0);
}

/** Tokens outside all brackets, with their index in the statement. */
export function outermost(statement: readonly Token[]): { token: Token; index: number }[] {
  let depth = 0;
  return statement.flatMap((token, index) => {
    const opens = token.kind === 'symbol' && '([{'.includes(token.text);
    const closes = token.kind === 'symbol' && ')]}'.includes(token.text);
    if (closes) depth--;
    const here = depth === 0 && !opens && !closes;
    if (opens) depth++;
    return here ? [{ token, index }] : [];
  });
}

/** What a statement's `FORMAT` says, if it says it: it stands last, or before `SETTINGS`. */
export function formatOf(statement: readonly Token[]): string | null {
  const outer = outermost(statement).map(({ token }) => token);
  for (const [i, token] of outer.entries()) {
    const [name, after] = [outer[i + 1], outer[i + 2]];
    const last = after === undefined || isWord(after, 'SETTINGS');
    if (isWord(token, 'FORMAT') && name?.kind === 'word' && last) return name.text;
  }
  return null;
}
