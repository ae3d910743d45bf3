import { unescape } from 'node:querystring';

/** Characters of an answer in an error. */
const SHOWN = 120;
/** Bytes of an answer that are searched for secrets. */
const READ = 10_000;
/** A shorter part of a path or query is no API key. */
const KEY_LENGTH = 12;
/** Stands for what may be a secret, and for what was cut. */
const ELLIPSIS = '…';

/**
 * Returns a function that shortens an answer for an error: its beginning in printable characters. A proxy may repeat the URL or
 * the headers of a request, so whatever of them may be an API key or a password is left out.
 */
export function createExcerpt(url: string): (answer: Buffer) => string {
  const { username, password, pathname, search } = new URL(url);
  const credentials = [username, password].filter((part) => part !== '');
  const keys = `${pathname}${search}`.split(/[/?&=]/).filter((part) => part.length >= KEY_LENGTH);
  const secrets = [...credentials, ...keys].flatMap((part) => [part, unescape(part)]);
  if (credentials.length > 0)
    secrets.push(Buffer.from(`${unescape(username)}:${unescape(password)}`).toString('base64'));
  secrets.sort((a, b) => b.length - a.length);
  return (answer) => {
    const line = answer
      .toString('utf8', 0, READ)
      .replaceAll(/\s+/g, ' ')
      .replaceAll(/[^\x20-\x7e]/g, '?')
      .trim();
    const masked = secrets.reduce((rest, secret) => rest.replaceAll(secret, ELLIPSIS), line);
    return masked.length > SHOWN ? masked.slice(0, SHOWN) + ELLIPSIS : masked;
  };
}
