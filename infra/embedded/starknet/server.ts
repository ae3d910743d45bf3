import { parseArgs } from 'node:util';

import { AppError } from '../../../schemas/errors.ts';
import { readNumber, runAsProgram } from '../program.ts';
import { startSimulatedNode } from './node.ts';

/**
 * The simulated node as a program. It exits when its parent does.
 *
 *   node infra/embedded/starknet/server.ts --port 5050 --state chain.json --seed demo
 */
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    seed: { type: 'string', default: 'demo' },
    state: { type: 'string' },
    head: { type: 'string', default: '300' },
    'interval-ms': { type: 'string', default: '2000' },
    malformed: { type: 'string', default: '0' },
    'reorg-every': { type: 'string', default: '0' },
    'reorg-depth': { type: 'string', default: '5' },
    /** Exits when standard input ends, too. */
    'watch-stdin': { type: 'boolean', default: false },
  },
});

const every = readNumber('reorg-every', values['reorg-every']);
const node = await startSimulatedNode({
  port: readNumber('port', values.port),
  seed: values.seed,
  stateFile: values.state,
  initialHead: readNumber('head', values.head),
  intervalMs: readNumber('interval-ms', values['interval-ms']),
  malformed: readNumber('malformed', values.malformed),
  reorgs: every === 0 ? null : { every, maxDepth: readNumber('reorg-depth', values['reorg-depth']) },
}).catch((error: unknown): never => {
  if (!(error instanceof AppError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
});
runAsProgram(node, { watchStdin: values['watch-stdin'] });
