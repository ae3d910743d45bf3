/** A ClickHouse exception: code, type and message. */
export class ClickHouseException extends Error {
  readonly code: number;
  readonly type: string;

  constructor(code: number, type: string, message: string) {
    super(message);
    this.name = 'ClickHouseException';
    this.code = code;
    this.type = type;
  }
}

const wrapped = /^(?:Code: (?<code>\d+)\. DB::Exception: )+/;
const tail = /(?:\s*\(version [^()]*(?:\([^()]*\))?[^()]*\)\.?)?\s*\((?<type>[A-Z][A-Z0-9_]{2,})\)\.?\s*$/;

/** Parses the text of an engine error, which may contain nested exceptions. */
export function fromEngine(error: unknown): ClickHouseException {
  if (error instanceof ClickHouseException) return error;
  // This process writes the spool files, so a full disk may fail them first.
  if (error instanceof Error && 'code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT')) {
    return new ClickHouseException(243, 'NOT_ENOUGH_SPACE', error.message);
  }
  let text = (error instanceof Error ? error.message : String(error)).trim();
  const code = Number(wrapped.exec(text)?.groups?.['code'] ?? 1002);
  text = text.replace(wrapped, '');
  let type = 'UNKNOWN_EXCEPTION';
  for (let found = tail.exec(text); found !== null; found = tail.exec(text)) {
    type = found.groups?.['type'] ?? type;
    text = text.slice(0, found.index);
  }
  return new ClickHouseException(code, type, text);
}

/** The body of an error response, from which clients parse code and type. */
export function exceptionText(error: ClickHouseException, version: string): string {
  return `Code: ${error.code}. DB::Exception: ${error.message.replace(/\.$/, '')}. (${error.type}) (version ${version} (embedded))\n`;
}

/** HTTP status by exception code, as in ClickHouse; 500 for all others. */
const statuses: readonly (readonly [status: number, codes: readonly number[]])[] = [
  [401, [194]],
  [403, [192, 193, 497, 516]],
  [404, [46, 47, 50, 56, 60, 63, 72, 73, 81, 83, 113, 115, 177, 178, 179, 180]],
  [
    400,
    [
      6, 10, 26, 27, 32, 34, 36, 37, 38, 41, 43, 44, 51, 52, 53, 61, 62, 70, 117, 131, 167, 183, 184, 185,
      207, 215, 349, 377, 456, 457, 467, 674,
    ],
  ],
  [408, [159]],
  [411, [381]],
  [413, [307]],
  [501, [48]],
  [503, [202, 203, 209, 439]],
];

export function statusOf(error: ClickHouseException): number {
  return statuses.find(([, codes]) => codes.includes(error.code))?.[0] ?? 500;
}
