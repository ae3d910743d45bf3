import { serveOnLoopback } from '../../../infra/embedded/loopback.ts';
import { simulatedLedger, type Ledger } from '../../../infra/embedded/starknet/ledger.ts';
import {
  EVENT_SCAN_BLOCKS,
  SIM_CHAIN_ID,
  chainOptionsOf,
  growChain,
  type NodeOptions as ChainNodeOptions,
} from '../../../infra/embedded/starknet/node.ts';
import type { TrueMalformed, TrueTransfer } from '../../../infra/embedded/starknet/render.ts';
import { createRpc, type RunCall } from '../../../infra/embedded/starknet/rpc.ts';
import { serveSubscriptions } from '../../../infra/embedded/starknet/subscriptions.ts';
import { createControlListener, describe, runCommand } from './control.ts';
import type { Clock, Command, ControlOptions } from './control.ts';
import { createFaults, createFaultyListener, type Faults } from './faults.ts';
import { openPrepared, servePrepared } from './prepared.ts';
import { readRecorded, recordedLedger, type RecordedOptions } from './recorded.ts';
import { createScriptedChain, type ScriptedChain } from './scripted-chain.ts';
import { speakSpec, type SpecVersion } from './spec-versions.ts';
import type { Truth } from './counts.ts';

export type NodeOptions = ChainNodeOptions & {
  specVersion?: SpecVersion | undefined;
  /** The chain advances by commands only. */
  manual?: boolean | undefined;
  /** Serves `/control`. */
  control?: boolean | undefined;
  /** Number of blocks that one getEvents call scans. */
  eventScan?: number | undefined;
  /** Serves recorded blocks instead of a simulated chain. */
  recorded?: RecordedOptions | undefined;
  /** Serves the blocks up to `initialHead` from files in this folder, generated if missing. */
  preparedDir?: string | undefined;
};

export type SimulatedNode = {
  url: string;
  /** Null when recorded blocks are served. */
  chain: ScriptedChain | null;
  ledger: Ledger;
  faults: Faults;
  /** The commands of `POST /control`, in process; returns the state of the chain. */
  control(command: Command): Record<string, unknown>;
  /** The truth about prepared blocks. */
  preparedTruth: Truth | null;
  transfersAt(height: number): readonly TrueTransfer[];
  malformedAt(height: number): readonly TrueMalformed[];
  close(): Promise<void>;
};

/** 2025-01-01; fixed, so that the same prepared chain is found again. */
const PREPARED_GENESIS = 1_735_689_600;

/** The simulated node in this process, with faults, commands, and recorded or prepared blocks. */
export async function createSimulatedNode(options: NodeOptions = {}): Promise<SimulatedNode> {
  const { recorded, preparedDir, specVersion = '0.10', eventScan = EVENT_SCAN_BLOCKS } = options;
  const genesisTime = options.genesisTime ?? (preparedDir === undefined ? undefined : PREPARED_GENESIS);
  const chain =
    recorded === undefined ? createScriptedChain(chainOptionsOf({ ...options, genesisTime })) : null;
  const ledger =
    recorded === undefined && chain !== null
      ? simulatedLedger(chain, { head: chain.servedHead })
      : recordedLedger(readRecorded(recorded));
  const prepared =
    chain === null || preparedDir === undefined ? null : await openPrepared(preparedDir, chain, ledger);
  // So that no call waits for the hashes of all blocks.
  chain?.source.hashes.at(chain.fork(), chain.head());

  const runOn = (from: Ledger): RunCall =>
    speakSpec(specVersion, createRpc({ ledger: from, chainId: SIM_CHAIN_ID, eventScan }));
  const run = prepared === null ? runOn(ledger) : servePrepared(prepared, ledger, runOn(ledger));
  const faults = createFaults();
  const clock = chain === null ? null : createClock(chain, options);
  const controlled: ControlOptions = { chain, ledger, faults, clock, preparedTruth: prepared?.truth ?? null };
  const answerRpc = createFaultyListener({
    faults,
    ledger,
    run,
    runOnFork(fork) {
      if (chain === null) return run;
      const other = fork ?? chain.tree.get(chain.fork()).parent;
      return runOn(simulatedLedger(chain, { head: chain.servedHead, fork: () => other }));
    },
  });
  const answerControl = createControlListener(controlled);
  const server = await serveOnLoopback((request, response) => {
    const isControl = options.control === true && request.url?.startsWith('/control') === true;
    (isControl ? answerControl : answerRpc)(request, response);
  }, options.port);
  const subscriptions = chain === null ? null : serveSubscriptions(server.server, { chain, ledger });
  if (options.manual !== true) clock?.resume();
  const closing = new AbortController();
  const warmed = chain?.balances.warm(chain.fork(), chain.l1(), closing.signal);

  return {
    url: server.url,
    chain,
    ledger,
    faults,
    preparedTruth: controlled.preparedTruth,
    control(command) {
      runCommand(controlled, command);
      return describe(controlled);
    },
    transfersAt: (height) => ledger.at(height)?.transfers ?? [],
    malformedAt: (height) => ledger.at(height)?.malformed ?? [],
    async close() {
      clock?.pause();
      closing.abort();
      await warmed;
      subscriptions?.close();
      await server.close();
      await prepared?.close();
    },
  };
}

function createClock(chain: ScriptedChain, options: NodeOptions): Clock {
  let stop: (() => void) | null = null;
  return {
    pause() {
      stop?.();
      stop = null;
    },
    resume() {
      stop ??= growChain(chain, options);
    },
  };
}
