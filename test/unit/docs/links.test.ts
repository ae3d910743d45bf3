import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { settings } from '../../../infra/config.ts';
import { errorCodes } from '../../../schemas/errors.ts';

const pages = [
  'README.md',
  'client/README.md',
  ...readdirSync('docs').flatMap((name) => (name.endsWith('.md') ? [`docs/${name}`] : [])),
];
const topFolders = ['schemas', 'pipeline', 'projections', 'api', 'client', 'infra', 'test', 'docs', '.ci'];

/** Environment variables that are read outside of infra/config.ts: by tests, by Node, by the AWS SDK. */
const otherVariables = [
  'FAULT_KILLS',
  'WEBHOOK_KILLS',
  'SOAK_MINUTES',
  'ABUSE_SECONDS',
  'BROKER_ROUNDS',
  'PAIR_SECONDS',
  'TEST_BACKEND',
  'NODE_EXTRA_CA_CERTS',
  'AWS_ENDPOINT_URL_S3',
  'TDS_URL',
  'TDS_KEY',
  'NODE_URL',
];

const textOf = (page: string): string => readFileSync(page, 'utf8');

/** The anchors that GitHub gives a page's headings. */
function anchorsOf(page: string): string[] {
  return textOf(page)
    .split('\n')
    .flatMap((line) => /^#+ (.*)$/.exec(line)?.[1] ?? [])
    .map((title) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    );
}

describe.each(pages)('%s', (page) => {
  test('has no broken link to a file or heading', () => {
    const targets = [...textOf(page).matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)];
    const broken = targets.filter(([, path = '', anchor]) => {
      const file = path === '' ? page : join(dirname(page), path);
      return !existsSync(file) || (anchor !== undefined && !anchorsOf(file).includes(anchor));
    });
    expect(broken.map(([text]) => text)).toEqual([]);
  });

  test('names no path that does not exist', () => {
    const code = [...textOf(page).matchAll(/`([^`\n]+)`/g)].map(([, text = '']) => text);
    const paths = code.filter(
      (text) => /^[\w./-]+$/.test(text) && topFolders.includes(text.split('/')[0] ?? ''),
    );
    // `projections/<name>` and the like are patterns, and a bare word such as `api` may be a role.
    const missing = paths.filter((text) => text.includes('/') && !existsSync(text));
    expect(missing).toEqual([]);
  });

  test('names no npm script that does not exist', () => {
    const scriptsOf = (file: string): string[] =>
      Object.keys((JSON.parse(textOf(file)) as { scripts: Record<string, string> }).scripts);
    const named = [...textOf(page).matchAll(/npm run ([a-z:]+)(?: -w (client|console))?/g)];
    const unknown = named.filter(
      ([, name = '', workspace = '.']) => !scriptsOf(join(workspace, 'package.json')).includes(name),
    );
    expect(unknown.map(([text]) => text)).toEqual([]);
  });

  test('names no setting or error code that does not exist', () => {
    const known = new Set<string>([
      ...Object.values(settings).map(({ env }) => env),
      ...Object.keys(errorCodes),
      ...otherVariables,
    ]);
    const named = [...textOf(page).matchAll(/`([A-Z]+(?:_[A-Z0-9]+)+)(?:=[^`]*)?`/g)].map(
      ([, name = '']) => name,
    );
    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });
});
