import { parseArgs } from 'node:util';

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
process.stdout.write(`${JSON.stringify({ listening: true, url: gateway.url, pid: process.pid })}\n`);

const end = (): void => void gateway.close().then(() => process.exit(0));
process.on('SIGTERM', end);
process.on('SIGINT', end);
if (values['watch-stdin']) process.stdin.on('end', end).on('error', end).resume();
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) end();
}, 500).unref();
