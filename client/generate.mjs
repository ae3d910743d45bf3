/**
 * `npm run generate`: writes `src/generated`, `llms.txt` and `skill.md` from the declarations of the routes, and `document.json`: the hash
 * of the OpenAPI document, as the service sends it, and of what was written. `--check` writes nothing and exits with 1 if either
 * has changed since.
 */
import { createHash } from 'node:crypto';
import { globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describeApi } from '../api/http/openapi.ts';
import { apiRoutes } from '../api/routes.ts';

/** A page for language models: what there is, a line for each operation. */
function llmsText({ info, paths }) {
  const byTag = Map.groupBy(
    Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation })),
    ),
    ({ tags: [tag] }) => tag,
  );
  const line = ({ method, path, operationId, summary }) =>
    `- \`${method.toUpperCase()} ${path}\` (\`client.${operationId}\`): ${summary}`;
  const sections = [...byTag].map(([tag, operations]) => `## ${tag}\n\n${operations.map(line).join('\n')}\n`);
  const head = `# ${info.title}\n\n> Transfers, balances, prices and NFTs of Starknet over HTTP. ${info.description}\n`;
  return [head, ...sections].join('\n');
}

/** The operations that a page of questions names, with optional parameters to show. */
const QUESTIONS = [
  ['listTransfers', 'account'],
  ['getBalance'],
  ['getPortfolio'],
  ['getBalanceHistory'],
  ['getPriceAt'],
  ['listTokenHolders'],
  ['getTokenStats'],
  ['getAccountStats'],
  ['getChainStats'],
  ['traceTransfers'],
];

/** One page for programs that write programs: what to call for what. A call has the parameters that its operation requires. */
function skillText({ paths }) {
  const operations = new Map(
    Object.values(paths).flatMap((methods) =>
      Object.values(methods).map((operation) => [operation.operationId, operation]),
    ),
  );
  const operationOf = (id) => {
    const operation = operations.get(id);
    if (operation === undefined) throw new Error(`skill.md names ${id}, which is not in the document`);
    return operation;
  };
  const call = (id, optional = []) => {
    const { parameters = [] } = operationOf(id);
    const shown = parameters.filter(({ name, required }) => required === true || optional.includes(name));
    for (const name of optional)
      if (!shown.some((one) => one.name === name)) throw new Error(`${id} has no parameter ${name}`);
    const groups = ['path', 'query'].flatMap((place) => {
      const names = shown.filter((one) => one.in === place).map(({ name }) => name);
      return names.length === 0 ? [] : [`${place}: { ${names.join(', ')} }`];
    });
    return `client.${id}(${groups.length === 0 ? '' : `{ ${groups.join(', ')} }`})`;
  };
  const questions = QUESTIONS.map(
    ([id, ...optional]) => `- ${operationOf(id).summary}: \`await ${call(id, optional)}\``,
  ).join('\n');
  return `# Reading token data of Starknet

Use the package \`token-data-service-client\` with the service's address and an API key:

\`\`\`ts
import { TokenDataClient, formatAmount } from 'token-data-service-client';

const client = new TokenDataClient({ baseUrl: 'http://127.0.0.1:8080', apiKey: process.env.TDS_KEY });
\`\`\`

Every operation of \`llms.txt\` is a method, with \`path\`, \`query\` and \`body\`. A failure is an \`ApiError\` with \`status\`, \`code\` and
\`errors\` by parameter.

${questions}

- **All transfers**: \`for await (const t of client.transfers.iterate({ account }))\`. \`t.amount\` is a \`bigint\` in the smallest unit:
  \`formatAmount(t.amount, t.token_decimals ?? 0)\` is what people read. Never convert an amount to a number to add it up.
- **Any list with \`results\` and \`links\`**: \`client.pages((at) => ${call('listTokens', ['verified']).replace('verified }', 'verified: true, ...at }')})\`.
- **NFTs** (${['getNftCollection', 'listNftsOwnedBy'].map((id) => `\`client.${operationOf(id).operationId}\``).join(', ')}): lists with \`data\` and \`count\`; there is a
  next \`page\` while \`page * page_size\` is less than \`count\`.
- **Live**: \`for await (const message of client.stream({ token, from }))\`. Keep \`message.cursor\`; on \`undo\` drop every transfer above
  \`last_valid.height\` (all where it is null); what is at or below the height of a \`final\` no longer changes.
- **Webhooks**: \`await verifyWebhook(rawBody, headers, secret)\` before reading the body; ignore a \`webhook-id\` seen before.
- **Proofs**: \`const proof = await ${call('getTransferProof')}\`, then
  \`await verifyProof(proof, { txhash, event_index })\` returns the block; compare its hash with another node.
- **Writes** are repeated after 429 and 503 only with an \`Idempotency-Key\` header: send one with each.
- Addresses are \`0x\` and 64 digits in answers and any \`0x\` form in parameters. Times are ISO 8601 in UTC.
`;
}

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const sha256 = (text) => createHash('sha256').update(text).digest('hex');
const hashOfWritten = () =>
  sha256(
    [...globSync('src/generated/**/*.ts', { cwd: here('.') }).sort(), 'llms.txt', 'skill.md']
      .map((name) => `${name} ${sha256(readFileSync(here(name)))}\n`)
      .join(''),
  );

// The declarations need no store; only the handlers would.
const text = JSON.stringify(describeApi(apiRoutes({})));

if (process.argv.includes('--check')) {
  const known = JSON.parse(readFileSync(here('document.json'), 'utf8'));
  const changed = [
    known.sha256 === sha256(text) ? [] : 'The routes have changed',
    known.generated === hashOfWritten() ? [] : 'Generated files were edited',
  ].flat();
  for (const what of changed) console.error(`${what}: run \`npm run generate -w client\`.`);
  process.exit(changed.length === 0 ? 0 : 1);
}

const { createClient } = await import('@hey-api/openapi-ts');
const input = join(tmpdir(), `openapi-${process.pid}.json`);
const document = JSON.parse(text);
const operations = Object.values(document.paths).flatMap((methods) => Object.values(methods));
for (const response of operations.flatMap(({ responses }) => Object.values(responses))) {
  // `stream()` reads events, by hand; the generated call reads NDJSON.
  delete response.content?.['text/event-stream'];
  const content = Object.entries(response.content ?? {});
  const type = content[0]?.[0];
  // The generator takes the first type for the answer's; callers get JSON unless they ask for another.
  if (content.length > 1 && type !== 'application/json')
    response.content = { [type]: { schema: { anyOf: content.map(([, { schema }]) => schema) } } };
}
writeFileSync(input, JSON.stringify(document));
await createClient({
  input,
  output: {
    path: here('src/generated'),
    module: { extension: '.ts' },
    // The generator's own code is not written for `exactOptionalPropertyTypes`.
    header: ['// @ts-nocheck: generated by `npm run generate`', ''],
  },
  plugins: [
    { name: '@hey-api/client-fetch', throwOnError: true },
    '@hey-api/typescript',
    {
      name: '@hey-api/sdk',
      responseStyle: 'data',
      operations: { strategy: 'single', containerName: 'Operations', methods: 'instance' },
    },
  ],
  logs: { level: 'silent' },
});
rmSync(input);
writeFileSync(here('llms.txt'), llmsText(document));
writeFileSync(here('skill.md'), skillText(document));
const provenance = { version: document.info.version, sha256: sha256(text), generated: hashOfWritten() };
writeFileSync(here('document.json'), `${JSON.stringify(provenance, null, 2)}\n`);
