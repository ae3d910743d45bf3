import { readFile, readdir } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

import type Router from '@koa/router';
import type { ParameterizedContext } from 'koa';

import { acceptedWeights } from '../http/accept.ts';
import type { RequestState } from '../http/request-state.ts';

/** The built web application (`console/dist`), held in memory. */
export interface Console {
  /** By path in the folder, such as `assets/main-1a2b3c.js`. */
  readonly files: ReadonlyMap<string, Buffer>;
  /** Origins besides the service's own from which images are shown: that of the IPFS gateway. Its page names them too. */
  readonly imageOrigins: readonly string[];
}

/** Paths that the application itself routes: all answer its page. */
const PAGE_PATHS = [
  '/',
  '/search',
  '/account/:address',
  '/token/:address',
  '/block/:height',
  '/tx/:hash',
  '/keys',
  '/webhooks',
  '/webhooks/:id',
  '/operations',
  '/verification',
];

const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Filled in the page, which shows no image of another origin. */
const ORIGINS_META = '<meta name="image-origins" content=""';

/** Their names hold a hash of their content. */
const FOREVER = 'public, max-age=31536000, immutable';

/**
 * Reads the built console; null if it is not built.
 *
 * @param ipfsGateway base URL of the gateway in links to images
 */
export async function loadConsole(root: string, ipfsGateway: string): Promise<Console | null> {
  let names: string[];
  try {
    names = await readdir(root, { recursive: true });
  } catch {
    return null;
  }
  const files = names.filter((name) => TYPES[extname(name)] !== undefined);
  if (!files.includes('index.html')) return null;
  const contents = await Promise.all(
    files.map(async (name) => [name, await readFile(join(root, name))] as const),
  );
  const gateway = URL.parse(ipfsGateway)?.origin ?? 'null';
  const imageOrigins = gateway === 'null' ? [] : [gateway];
  const index = new Map(contents).get('index.html')?.toString() ?? '';
  const named = index.replace(ORIGINS_META, `<meta name="image-origins" content="${imageOrigins.join(' ')}"`);
  return { files: new Map([...contents, ['index.html', Buffer.from(named)]]), imageOrigins };
}

/** Adds the paths of the console: its pages, its API reference at /docs, and its assets. */
export function mountConsole(router: Router<RequestState>, { files, imageOrigins }: Console): void {
  const compressed = createCompressor(files);
  const send = async (context: Context, name: string, headers: Readonly<Record<string, string>>) => {
    const encoding = encodingFor(context.get('Accept-Encoding'));
    context.state.path = 'console';
    context.set({ ...headers, 'Cross-Origin-Resource-Policy': 'same-origin', Vary: 'Accept-Encoding' });
    if (encoding !== 'identity') context.set('Content-Encoding', encoding);
    context.type = TYPES[extname(name)] ?? '';
    context.body = await compressed(name, encoding);
  };
  const page = (name: string, policy: string) => async (context: Context) => {
    await send(context, name, pageHeaders(policy));
  };
  // Koa's router matches a trailing slash too.
  for (const path of PAGE_PATHS) router.get(path, page('index.html', contentPolicy(imageOrigins)));
  // The explorer of the API reference writes style attributes.
  const withStyles = contentPolicy(imageOrigins, "style-src 'self' 'unsafe-inline'");
  if (files.has('docs.html')) router.get('/docs', page('docs.html', withStyles));
  for (const name of files.keys()) {
    if (extname(name) === '.html') continue;
    const cache = name.startsWith('assets/') ? FOREVER : 'public, max-age=3600';
    router.get(`/${name}`, async (context) => await send(context, name, { 'Cache-Control': cache }));
  }
}

type Context = ParameterizedContext<RequestState>;

/** Scripts, styles and connections of the service's own origin only; no inline script, no frame, no form target elsewhere. */
function contentPolicy(imageOrigins: readonly string[], styles = "style-src 'self'"): string {
  return [
    "default-src 'self'",
    styles,
    `img-src ${["'self'", 'data:', ...imageOrigins].join(' ')}`,
    "object-src 'none'",
    "frame-src 'none'",
    "worker-src 'none'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
  ].join('; ');
}

function pageHeaders(policy: string): Readonly<Record<string, string>> {
  return {
    'Cache-Control': 'no-cache',
    'Content-Security-Policy': policy,
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Permissions-Policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
  };
}

type Encoding = 'br' | 'gzip' | 'identity';

function encodingFor(accepted: string): Encoding {
  const weightOf = acceptedWeights(accepted);
  return (['br', 'gzip'] as const).find((name) => (weightOf(name) ?? 0) > 0) ?? 'identity';
}

const toBrotli = promisify(brotliCompress);
const toGzip = promisify(gzip);

/** Compresses a file when it is first asked for in an encoding. */
function createCompressor(files: Console['files']): (name: string, encoding: Encoding) => Promise<Buffer> {
  const made = new Map<string, Promise<Buffer>>();
  return async (name, encoding) => {
    const content = files.get(name) ?? Buffer.alloc(0);
    if (encoding === 'identity') return content;
    const key = `${encoding} ${name}`;
    const kept = made.get(key);
    if (kept !== undefined) return await kept;
    const making =
      encoding === 'gzip'
        ? toGzip(content)
        : toBrotli(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } });
    made.set(key, making);
    return await making;
  };
}
