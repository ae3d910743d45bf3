import { parseArgs } from 'node:util';

import { runAsProgram } from '../program.ts';
import { createSimulatedGateway } from './gateway.ts';

/**
 * The simulated IPFS gateway as a program. It ends when its parent does.
 *
 *   node infra/embedded/ipfs/server.ts --port 5070 --control
 */
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    control: { type: 'boolean', default: false },
    /** Ends with its stdin, too. */
    'watch-stdin': { type: 'boolean', default: false },
  },
});

const port = Number(values.port);
if (!Number.isInteger(port) || port < 0) throw new RangeError(`--port wants a number, not ${values.port}`);
const gateway = await createSimulatedGateway({ port, control: values.control });
runAsProgram(gateway, { watchStdin: values['watch-stdin'] });
