import { serveOnLoopback } from '../loopback.ts';
import { createChain, type ChainOptions, type SimulatedChain } from './chain.ts';
import { createRpcListener } from './http.ts';
import { simulatedLedger } from './ledger.ts';
import { createRpc } from './rpc.ts';
import { serveSubscriptions } from './subscriptions.ts';

export type NodeOptions = {
  seed?: string | undefined;
  /** Default: any free port. */
  port?: number | undefined;
  /** Stores the chain, so that a restart resumes it. */
  stateFile?: string | undefined;
  /** Height of the head at the first start. */
  initialHead?: number | undefined;
  genesisTime?: number | undefined;
  /** Seconds between the timestamps of two blocks. */
  blockSeconds?: number | undefined;
  /** Milliseconds between two blocks; default: `blockSeconds`. */
  intervalMs?: number | undefined;
  /** Average number of transfers in a block, at least 5. */
  transfersPerBlock?: number | undefined;
  malformed?: number | undefined;
  /** Token contracts besides those of tokens.json, a third of them NFTs. */
  copiedTokens?: number | undefined;
  l1?: ChainOptions['l1'] | undefined;
  reorgs?: ChainOptions['reorgs'] | undefined;
};

/** Average over all slots. */
const TRANSFERS_PER_SLOT = 1.8;
/** 'SN_SIM' as a short string. */
export const SIM_CHAIN_ID = '0x534e5f53494d';
export const EVENT_SCAN_BLOCKS = 512;

export function chainOptionsOf(options: NodeOptions): ChainOptions {
  const {
    initialHead = 300,
    blockSeconds = 2,
    malformed = 0,
    copiedTokens = 0,
    transfersPerBlock = 28,
  } = options;
  return {
    seed: options.seed ?? 'demo',
    initialHead,
    blockSeconds,
    malformed,
    copiedTokens,
    movesPerSlot: 3,
    slots: Math.max(3, Math.round(transfersPerBlock / TRANSFERS_PER_SLOT)),
    genesisTime: options.genesisTime,
    stateFile: options.stateFile,
    l1: options.l1 === undefined ? { lag: 30, step: 10 } : options.l1,
    reorgs: options.reorgs ?? null,
    now: () => Date.now() / 1000,
  };
}

/** Adds blocks at an interval; returns a function that stops it. */
export function growChain(chain: SimulatedChain, options: NodeOptions): () => void {
  const { blockSeconds = 2, intervalMs = blockSeconds * 1000 } = options;
  chain.catchUp();
  const timer = setInterval(() => chain.tick(), intervalMs);
  return () => clearInterval(timer);
}

/** Serves a growing simulated chain on loopback. */
export async function startSimulatedNode(
  options: NodeOptions,
): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const chain = createChain(chainOptionsOf(options));
  // So that no call waits for the hashes of all blocks.
  chain.source.hashes.at(chain.fork(), chain.head());
  const ledger = simulatedLedger(chain);
  const rpc = createRpc({ ledger, chainId: SIM_CHAIN_ID, eventScan: EVENT_SCAN_BLOCKS });
  const server = await serveOnLoopback(createRpcListener(rpc), options.port);
  const subscriptions = serveSubscriptions(server.server, { chain, ledger });
  const stopGrowth = growChain(chain, options);
  const closing = new AbortController();
  const warmed = chain.balances.warm(chain.fork(), chain.l1(), closing.signal);
  return {
    url: server.url,
    async close() {
      stopGrowth();
      closing.abort();
      await warmed;
      subscriptions.close();
      await server.close();
    },
  };
}
