/**
 * The part of ClickHouse's lexer that is needed to separate statements: comments, the three kinds of quotes, heredocs,
 * words and symbols. Ambiguous text becomes a token of kind `unknown`, which strict callers reject.
 */
export interface Token {
  readonly kind: 'word' | 'quoted' | 'string' | 'number' | 'symbol' | 'unknown';
  /** A word or symbol as written, a quoted identifier without quotes; empty for other kinds. */
  readonly text: string;
  readonly start: number;
  /** Index after its last character. */
  readonly end: number;
}

const space = /[\s]+/y;
const word = /[A-Za-z_][A-Za-z0-9_]*/y;
const number = /[0-9][A-Za-z0-9_]*/y;
const heredoc = /\$[A-Za-z0-9_]*\$/y;
const prefixed = /[xXbB]'[0-9A-Fa-f]*'/y;
const typographic: Readonly<Record<string, string>> = { '‘': '’', '“': '”' };

/** A lazy lexer, so that only the head of an INSERT is read and never its data. */
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
      // `x'…'` with invalid digits: the end of the string is unclear.
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

/** End of the comment that begins here; beyond the text if it is unclosed; null if none begins. */
function commentEnd(sql: string, at: number): number | null {
  const two = sql.slice(at, at + 2);
  if (two === '--' || two === '//' || two === '# ' || two === '#!') {
    const line = sql.indexOf('\n', at);
    return line === -1 ? sql.length : line + 1;
  }
  if (two !== '/*') return null;
  // Block comments nest.
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

/** Index after the closing quote, or null; doubled and escaped quotes do not close. */
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

/** The non-empty statements of a text, as tokens. */
export function statements(sql: string): Token[][] {
  const found: Token[][] = [[]];
  for (const token of tokens(sql)) {
    if (isSymbol(token, ';')) found.push([]);
    else found.at(-1)?.push(token);
  }
  return found.filter((statement) => statement.length > 0);
}

/** Tokens outside all brackets, with their indexes in the statement. */
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

/** The `FORMAT` of a statement, which is last or before `SETTINGS`; null if it has none. */
export function formatOf(statement: readonly Token[]): string | null {
  const outer = outermost(statement).map(({ token }) => token);
  for (const [i, token] of outer.entries()) {
    const [name, after] = [outer[i + 1], outer[i + 2]];
    const last = after === undefined || isWord(after, 'SETTINGS');
    if (isWord(token, 'FORMAT') && name?.kind === 'word' && last) return name.text;
  }
  return null;
}
