import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';

import { send } from '../loopback.ts';

/** An IPFS gateway that serves the metadata and pictures of the NFTs of the simulated chain. */
export function answerGateway(request: IncomingMessage, response: ServerResponse): void {
  const { pathname } = new URL(request.url ?? '/', 'http://gateway');
  const file = pathname.startsWith('/ipfs/') ? fileAt(pathname.slice('/ipfs/'.length)) : null;
  if (file === null) return send(response, 404, 'no such file', { 'content-type': 'text/plain' });
  send(response, 200, file.body, { 'content-type': file.type });
}

interface File {
  readonly type: string;
  readonly body: string;
}

const COLOURS = ['amber', 'teal', 'plum', 'ochre', 'slate', 'coral'];
const MOODS = ['calm', 'curious', 'grumpy', 'brave'];

/** `CID/collection/id` is metadata, `CID/collection/id.svg` its picture, derived from the path; null: no such file. */
function fileAt(path: string): File | null {
  const [, cid, collection, name] = /^([A-Za-z0-9]{20,})\/([a-z0-9-]+)\/([A-Za-z0-9.]+)$/.exec(path) ?? [];
  if (cid === undefined || collection === undefined || name === undefined) return null;
  const [, id, extension] = /^([0-9]+|[0-9a-f]{64})(\.json|\.svg)?$/.exec(name) ?? [];
  if (id === undefined) return null;
  const digits = id.length === 64 ? BigInt(`0x${id}`).toString() : id;
  const draw = createHash('sha256').update(`${collection} ${digits}`).digest();
  return extension === '.svg' ? picture(draw) : metadata(cid, collection, digits, draw);
}

function metadata(cid: string, collection: string, id: string, draw: Buffer): File {
  const pick = (from: readonly string[], at: number): string | undefined =>
    from[(draw[at] ?? 0) % from.length];
  return {
    type: 'application/json',
    body: JSON.stringify({
      name: `${collection} #${id.length > 12 ? `${id.slice(0, 6)}…${id.slice(-4)}` : id}`,
      description: `Number ${id} of ${collection}, on a simulated chain.`,
      image: `ipfs://${cid}/${collection}/${id}.svg`,
      external_url: `https://${collection}.example/${id}`,
      attributes: [
        { trait_type: 'colour', value: pick(COLOURS, 0) },
        { trait_type: 'mood', value: pick(MOODS, 1) },
        { trait_type: 'level', display_type: 'number', value: (draw[2] ?? 0) % 100 },
        { trait_type: 'is first', value: id === '1' },
      ],
    }),
  };
}

function picture(draw: Buffer): File {
  const hue = (at: number): number => Math.round(((draw[at] ?? 0) * 360) / 256);
  const circle = (at: number): string =>
    `<circle cx="${(draw[at] ?? 0) % 100}" cy="${(draw[at + 1] ?? 0) % 100}" r="${10 + ((draw[at + 2] ?? 0) % 30)}" fill="hsl(${hue(at + 3)} 70% 55%)"/>`;
  return {
    type: 'image/svg+xml',
    body: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><rect width="100" height="100" fill="hsl(${hue(3)} 40% 85%)"/>${circle(4)}${circle(8)}${circle(12)}</svg>`,
  };
}
