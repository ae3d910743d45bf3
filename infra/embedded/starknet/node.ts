import { createServer } from 'node:http';

import { createChain, type ChainOptions, type SimulatedChain } from './chain.ts';
import { createControlHandler, describe, runCommand, type Command, type ControlOptions } from './control.ts';
import { createFaults, type Faults } from './faults.ts';
import { createRpcHandler, send } from './http.ts';
import { simulatedLedger, type Ledger } from './ledger.ts';
import type { Truth } from './oracle.ts';
import type { SpecVersion } from './params.ts';
import { openPrepared } from './prepared.ts';
import { readRecorded, recordedLedger, type RecordedOptions } from './recorded.ts';
import type { TrueMalformed, TrueTransfer } from './render.ts';

export type NodeOptions = {
  seed?: string | undefined;
  /** 0: any free port. */
  port?: number | undefined;
  /** Keeps the chain over restarts. */
  stateFile?: string | undefined;
  specVersion?: SpecVersion | undefined;
  chainId?: string | undefined;
  /** Height of the head at the first start. */
  initialHead?: number | undefined;
  genesisTime?: number | undefined;
  /** Seconds between blocks: of their timestamps, and of the clock unless `intervalMs` says otherwise. */
  blockSeconds?: number | undefined;
  intervalMs?: number | undefined;
  /** Blocks come by control only. */
  manual?: boolean | undefined;
  /** About how many transfers a block holds, 5 at least. */
  transfersPerBlock?: number | undefined;
  malformed?: number | undefined;
  l1?: ChainOptions['l1'] | undefined;
  reorgs?: ChainOptions['reorgs'] | undefined;
  /** Opens `/control`. */
  control?: boolean | undefined;
  /** How many blocks one getEvents call looks through. */
  eventScan?: number | undefined;
  /** Serves recorded blocks instead of a simulated chain. */
  recorded?: RecordedOptions | undefined;
  /** Serves the blocks up to `initialHead` from a folder, where they are ready JSON; they are made if missing. */
  preparedDir?: string | undefined;
};

export type SimulatedNode = {
  url: string;
  /** Null when recorded blocks are served. */
  chain: SimulatedChain | null;
  ledger: Ledger;
  faults: Faults;
  /** The commands of `POST /control`, in process; says where the chain stands then. */
  control(command: Command): Record<string, unknown>;
  /** The truth about prepared blocks. */
  preparedTruth: Truth | null;
  transfersAt(height: number): readonly TrueTransfer[];
  malformedAt(height: number): readonly TrueMalformed[];
  close(): Promise<void>;
};

/** A slot makes 1.8 transfers on average. */
const TRANSFERS_PER_SLOT = 1.8;
/** 2025-01-01. */
const PREPARED_GENESIS = 1_735_689_600;
/** 'SN_SIM' as a short string. */
const SIM_CHAIN_ID = '0x534e5f53494d';

export function chainOptionsOf(options: NodeOptions): ChainOptions {
  const { initialHead = 300, blockSeconds = 2, malformed = 0, transfersPerBlock = 28 } = options;
  return {
    seed: options.seed ?? 'demo',
    initialHead,
    blockSeconds,
    malformed,
    movesPerSlot: 3,
    slots: Math.max(3, Math.round(transfersPerBlock / TRANSFERS_PER_SLOT)),
    // What is prepared must be the same chain the next time.
    genesisTime: options.genesisTime ?? (options.preparedDir === undefined ? undefined : PREPARED_GENESIS),
    stateFile: options.stateFile,
    l1: options.l1 === undefined ? { lag: 30, step: 10 } : options.l1,
    reorgs: options.reorgs ?? null,
    now: () => Date.now() / 1000,
  };
}

/** Starts a node on loopback, in this process. */
export async function createSimulatedNode(options: NodeOptions = {}): Promise<SimulatedNode> {
  const chain = options.recorded === undefined ? createChain(chainOptionsOf(options)) : null;
  const live = chain === null ? recordedLedger(readRecorded(options.recorded)) : simulatedLedger(chain);
  const prepared =
    chain === null || options.preparedDir === undefined
      ? null
      : await openPrepared(options.preparedDir, chain, live);
  const ledger: Ledger = prepared === null ? live : { ...live, prepared: (height) => prepared.read(height) };
  const faults = createFaults();
  const context = {
    ledger,
    spec: options.specVersion ?? '0.10',
    chainId: options.chainId ?? SIM_CHAIN_ID,
    eventScan: options.eventScan ?? 512,
  } as const;

  let timer: NodeJS.Timeout | null = null;
  const clock = {
    pause() {
      if (timer !== null) clearInterval(timer);
      timer = null;
    },
    resume() {
      if (chain === null || timer !== null) return;
      chain.catchUp();
      timer = setInterval(() => chain.tick(), options.intervalMs ?? (options.blockSeconds ?? 2) * 1000);
    },
  };
  const preparedTruth = prepared?.truth ?? null;
  const controlled: ControlOptions = { chain, ledger, faults, clock, preparedTruth };
  const answerControl = createControlHandler(controlled);
  const answerRpc = createRpcHandler({
    context,
    faults,
    otherFork(fork) {
      if (chain === null) return ledger;
      return simulatedLedger(chain, fork ?? chain.tree.get(chain.fork()).parent);
    },
  });

  const server = createServer((request, response) => {
    const aimedAtControl = request.url?.startsWith('/control') === true && options.control === true;
    const answered = aimedAtControl
      ? answerControl(request, response)
      : request.method === 'POST'
        ? answerRpc(request, response)
        : Promise.resolve(send(response, 405, '{"error":"POST JSON-RPC"}', { allow: 'POST' }));
    answered.catch(() => response.destroy());
  });
  // A client that keeps its connection must never meet one that is just being closed.
  server.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port ?? 0, '127.0.0.1', resolve);
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('no TCP address');
  if (options.manual !== true) clock.resume();
  const closing = new AbortController();
  const warmed = chain?.balances.warm(chain.fork(), chain.l1(), closing.signal);

  return {
    url: `http://127.0.0.1:${address.port}`,
    chain,
    ledger,
    faults,
    preparedTruth,
    control(command) {
      runCommand(controlled, command);
      return describe(controlled);
    },
    transfersAt: (height) => ledger.at(height)?.transfers ?? [],
    malformedAt: (height) => ledger.at(height)?.malformed ?? [],
    async close() {
      clock.pause();
      closing.abort();
      await warmed;
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      await prepared?.close();
    },
  };
}
