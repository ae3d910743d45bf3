/** `node start-process.ts DATA_DIR`: an embedded start as a process that tests kill. Prints its URLs and pids. */
import { startEmbedded } from '../../../infra/embedded/index.ts';
import { createLogger } from '../../../infra/log.ts';

const [, , dataDir = ''] = process.argv;
const embedded = await startEmbedded({ dataDir, log: createLogger('child', 'silent'), env: {} });
const pids = embedded.services.map(({ pid }) => pid);
process.stdout.write(`${JSON.stringify({ urls: embedded.urls, pids })}\n`);
setInterval(() => {}, 1000);
