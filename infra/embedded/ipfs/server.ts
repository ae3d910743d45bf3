import { parseArgs } from 'node:util';

import { serveOnLoopback } from '../loopback.ts';
import { readNumber, runAsProgram } from '../program.ts';
import { answerGateway } from './gateway.ts';

/**
 * The simulated IPFS gateway as a program. It exits when its parent does.
 *
 *   node infra/embedded/ipfs/server.ts --port 5070
 */
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    /** Exits when standard input ends, too. */
    'watch-stdin': { type: 'boolean', default: false },
  },
});

const gateway = await serveOnLoopback(answerGateway, readNumber('port', values.port));
runAsProgram(gateway, { watchStdin: values['watch-stdin'] });
