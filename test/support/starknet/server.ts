import { parseArgs } from 'node:util';

import { readNumber, runAsProgram } from '../../../infra/embedded/program.ts';
import { createSimulatedNode } from './node.ts';

/**
 * The simulated node with `/control`, as a program that advances by commands only; or, with `--blocks`, a node of recorded
 * blocks. It exits when its parent does.
 *
 *   node test/support/starknet/server.ts --port 5050 --head 1000 --transfers 60
 */
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    seed: { type: 'string', default: 'demo' },
    head: { type: 'string', default: '300' },
    transfers: { type: 'string', default: '28' },
    malformed: { type: 'string', default: '0' },
    /** Token contracts besides those of tokens.json. */
    'copied-tokens': { type: 'string', default: '0' },
    /** Folder of prepared blocks. */
    prepared: { type: 'string' },
    /** Folder of recorded blocks. */
    blocks: { type: 'string' },
    /** Renumbers recorded blocks from 0. */
    rebase: { type: 'boolean', default: false },
    /** Exits when standard input ends, too. */
    'watch-stdin': { type: 'boolean', default: false },
  },
});

const node = await createSimulatedNode({
  port: readNumber('port', values.port),
  seed: values.seed,
  initialHead: readNumber('head', values.head),
  transfersPerBlock: readNumber('transfers', values.transfers),
  malformed: readNumber('malformed', values.malformed),
  copiedTokens: readNumber('copied-tokens', values['copied-tokens']),
  manual: true,
  control: true,
  preparedDir: values.prepared,
  recorded: values.blocks === undefined ? undefined : { dir: values.blocks, rebase: values.rebase },
});
runAsProgram(node, { watchStdin: values['watch-stdin'] });
