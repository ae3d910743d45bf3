import { parseArgs } from 'node:util';

import { runAsProgram } from '../program.ts';
import { createSimulatedNode } from './node.ts';
import type { SpecVersion } from './params.ts';

/**
 * The simulated node as a program. It ends when its parent does.
 *
 *   node infra/embedded/starknet/server.ts --port 5050 --state chain.json --seed demo --control
 */
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    seed: { type: 'string', default: 'demo' },
    state: { type: 'string' },
    spec: { type: 'string', default: '0.10' },
    head: { type: 'string', default: '300' },
    'block-seconds': { type: 'string', default: '2' },
    'interval-ms': { type: 'string' },
    transfers: { type: 'string', default: '28' },
    malformed: { type: 'string', default: '0' },
    'l1-lag': { type: 'string', default: '30' },
    'reorg-every': { type: 'string', default: '0' },
    'reorg-depth': { type: 'string', default: '5' },
    manual: { type: 'boolean', default: false },
    control: { type: 'boolean', default: false },
    blocks: { type: 'string' },
    rebase: { type: 'boolean', default: false },
    prepared: { type: 'string' },
    /** Ends with its stdin, too. */
    'watch-stdin': { type: 'boolean', default: false },
  },
});

function number(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value < 0) throw new RangeError(`--${name} wants a number, not ${text}`);
  return value;
}

function spec(text: string): SpecVersion {
  if (text === '0.8' || text === '0.9' || text === '0.10') return text;
  throw new RangeError(`--spec is 0.8, 0.9 or 0.10, not ${text}`);
}

const every = number('reorg-every', values['reorg-every']);
const node = await createSimulatedNode({
  port: number('port', values.port),
  seed: values.seed,
  stateFile: values.state,
  specVersion: spec(values.spec),
  initialHead: number('head', values.head),
  blockSeconds: number('block-seconds', values['block-seconds']),
  intervalMs: values['interval-ms'] === undefined ? undefined : number('interval-ms', values['interval-ms']),
  transfersPerBlock: number('transfers', values.transfers),
  malformed: number('malformed', values.malformed),
  l1: { lag: number('l1-lag', values['l1-lag']), step: 10 },
  reorgs: every === 0 ? null : { every, maxDepth: number('reorg-depth', values['reorg-depth']) },
  manual: values.manual,
  control: values.control,
  recorded: values.blocks === undefined ? undefined : { dir: values.blocks, rebase: values.rebase },
  preparedDir: values.prepared,
});
runAsProgram(node, { watchStdin: values['watch-stdin'] });
