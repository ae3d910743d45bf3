import { parseArgs } from 'node:util';

import { runAsProgram } from '../program.ts';
import { createSimulatedFeed } from './feed.ts';

/**
 * The simulated price feed and token list as a program. It ends when its parent does.
 *
 *   node infra/embedded/prices/server.ts --port 5060 --seed demo --control
 */
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    seed: { type: 'string', default: 'demo' },
    control: { type: 'boolean', default: false },
    /** Ends with its stdin, too. */
    'watch-stdin': { type: 'boolean', default: false },
  },
});

const port = Number(values.port);
if (!Number.isInteger(port) || port < 0) throw new RangeError(`--port wants a number, not ${values.port}`);
const feed = await createSimulatedFeed({ port, seed: values.seed, control: values.control });
runAsProgram(feed, { watchStdin: values['watch-stdin'] });
