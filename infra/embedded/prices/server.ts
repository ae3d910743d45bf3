import { parseArgs } from 'node:util';

import { serveOnLoopback } from '../loopback.ts';
import { readNumber, runAsProgram } from '../program.ts';
import { createFeedListener } from './feed.ts';

/**
 * The simulated price feed and token list as a program. It exits when its parent does.
 *
 *   node infra/embedded/prices/server.ts --port 5060 --seed demo
 */
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    seed: { type: 'string', default: 'demo' },
    /** Exits when standard input ends, too. */
    'watch-stdin': { type: 'boolean', default: false },
  },
});

const feed = await serveOnLoopback(createFeedListener(values.seed), readNumber('port', values.port));
runAsProgram(feed, { watchStdin: values['watch-stdin'] });
