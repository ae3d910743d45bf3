import { parentPort, workerData } from 'node:worker_threads';

import { abusers } from './abusers.ts';
import type { Target } from './abusers.ts';

/** Runs one abuser in a thread of its own until it is told to leave; then reports what it got. */
const { name, target } = workerData as { readonly name: string; readonly target: Target };
const leaving = new AbortController();
parentPort?.once('message', () => leaving.abort());
const abuser = abusers.find((one) => one.name === name);
parentPort?.postMessage(await abuser?.run(target, leaving.signal));
