import { unescape } from 'node:querystring';

/** Characters of an answer in an error. */
const SHOWN = 120;
/** Bytes of an answer that are searched for secrets. */
const READ = 10_000;
/** A shorter part of a path or query, or a shorter user name, is no API key. */
const KEY_LENGTH = 12;
/** Stands for what may be a secret, and for what was cut. */
const ELLIPSIS = '…';

export type Mask = (text: string) => string;

/**
 * Returns a function that leaves secrets out of what a node answers: it may repeat the URL or the headers of a request, of which
 * whatever may be an API key or a password counts as a secret.
 */
export function createMask(url: string): Mask {
  const { username, password, pathname, search } = new URL(url);
  const keys = [username, ...`${pathname}${search}`.split(/[/?&=]/)].filter(
    (part) => part.length >= KEY_LENGTH,
  );
  const secrets = [password, ...keys].filter((part) => part !== '').flatMap((part) => [part, unescape(part)]);
  if (username !== '' || password !== '')
    secrets.push(Buffer.from(`${unescape(username)}:${unescape(password)}`).toString('base64'));
  secrets.sort((a, b) => b.length - a.length);
  return (text) => secrets.reduce((rest, secret) => rest.replaceAll(secret, ELLIPSIS), text);
}

/** Shortens an answer for an error: its beginning in printable characters, without secrets. */
export function excerptOf(answer: Buffer, mask: Mask): string {
  const line = answer
    .toString('utf8', 0, READ)
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/[^\x20-\x7e]/g, '?')
    .trim();
  const masked = mask(line);
  return masked.length > SHOWN ? masked.slice(0, SHOWN) + ELLIPSIS : masked;
}
