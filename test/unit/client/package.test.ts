import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';

import { rolldown } from 'rolldown';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { installPackedClient } from '../../support/packed-client.ts';
import type { ClientProject } from '../../support/packed-client.ts';

let project: ClientProject;
const tsc = resolve('node_modules/.bin/tsc');

beforeAll(() => {
  project = installPackedClient();
}, 120_000);
afterAll(() => rmSync(project.dir, { recursive: true }));

const MAIN = `
import { ApiError, TokenDataClient, formatAmount, verifyWebhook } from 'token-data-service-client';
import type { StreamMessage, Transfer } from 'token-data-service-client';

const client = new TokenDataClient({ baseUrl: 'http://service.example', apiKey: 'k' });
for await (const row of client.transfers.iterate({ account: '0x1', order: 'asc' })) {
  const transfer: Transfer = row;
  console.log(formatAmount(transfer.amount, row.token_decimals ?? 0));
}
for await (const { symbol } of client.pages((at) => client.listTokens({ query: at }))) console.log(symbol?.length);
for await (const message of client.stream({ token: '0x1' })) {
  const { cursor }: StreamMessage = message;
  if (message.type === 'undo') console.log(cursor, message.data.hashes.length);
}
const total: number = (await client.getPortfolio({ query: { account_address: '0x1' } })).data.total_usd;
const { event } = await verifyWebhook('{}', new Headers(), 'whsec_');
console.log(total, event, new ApiError(400, {}).errors['limit']?.[0]);
// @ts-expect-error a parameter that the document does not have
await client.listTokens({ query: { colour: 'red' } });
// @ts-expect-error a required parameter is missing
await client.getPortfolio({ query: {} });
// @ts-expect-error a field that the answer does not have
(await client.getPortfolio({ query: { account_address: '0x1' } })).total;
`;

describe('the package', () => {
  it('has every file that its exports name, the hash of the document, and no dependency', () => {
    const read = (name: string): unknown => JSON.parse(readFileSync(join(project.installed, name), 'utf8'));
    const { exports, dependencies } = read('package.json') as {
      exports: { '.': Record<string, string> };
      dependencies?: unknown;
    };
    const missing = Object.values(exports['.']).filter((file) => !existsSync(join(project.installed, file)));
    expect(missing).toEqual([]);
    expect(dependencies).toBeUndefined();
    expect(read('document.json')).toEqual(JSON.parse(readFileSync('client/document.json', 'utf8')));
    expect(
      ['README.md', 'llms.txt', 'skill.md'].filter((name) => !existsSync(join(project.installed, name))),
    ).toEqual([]);
  });

  it.each([
    ['node16', 'node16'],
    ['bundler', 'esnext'],
  ])('has types that compile with moduleResolution %s', (moduleResolution, module) => {
    project.write('main.ts', MAIN);
    const compilerOptions = {
      target: 'es2022',
      lib: ['es2022', 'dom', 'dom.iterable', 'dom.asynciterable'],
      types: [],
      module,
      moduleResolution,
      strict: true,
      noEmit: true,
      skipLibCheck: false,
    };
    project.write('tsconfig.json', JSON.stringify({ compilerOptions, files: ['main.ts'] }));
    const { stdout, status } = spawnSync(tsc, ['-p', '.'], { cwd: project.dir, encoding: 'utf8' });
    expect([status, stdout]).toEqual([0, '']);
  });

  it('runs in Node', () => {
    project.write(
      'main.mjs',
      `import { TokenDataClient } from 'token-data-service-client';
      const fetch = async ({ url }) => Response.json({ url });
      console.log(await new TokenDataClient({ baseUrl: 'http://service.example', fetch }).getProgress());`,
    );
    const { stdout, stderr } = spawnSync(process.execPath, ['main.mjs'], {
      cwd: project.dir,
      encoding: 'utf8',
    });
    expect([stdout, stderr]).toEqual(["{ url: 'http://service.example/api/indexer/progress/' }\n", '']);
  });

  it('is below 15 KB compressed, all of it, and imports nothing of a runtime', async () => {
    project.write('all.mjs', "export * from 'token-data-service-client';");
    const bundle = await rolldown({ input: join(project.dir, 'all.mjs'), platform: 'browser' });
    const [{ code, imports }] = (await bundle.generate({ minify: true })).output;
    await bundle.close();
    const bytes = gzipSync(code).length;
    console.log(`client: ${bytes} bytes compressed`);
    expect(bytes).toBeLessThan(15_000);
    expect(imports).toEqual([]);
  });
});
