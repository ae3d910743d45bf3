import type { IncomingMessage, RequestListener } from 'node:http';

import { z } from 'zod';

import { readBody, send } from '../../../infra/embedded/loopback.ts';
import type { Ledger } from '../../../infra/embedded/starknet/ledger.ts';
import { AppError } from '../../../schemas/errors.ts';
import { faultSchema, type Faults } from './faults.ts';
import type { ScriptedChain } from './scripted-chain.ts';
import { countRange, transferJson, type Truth } from './counts.ts';

const height = z.int().min(0);

const commandSchema = z.discriminatedUnion('command', [
  z.object({ command: z.literal('advance'), blocks: z.int().min(1).default(1) }),
  z.object({
    command: z.literal('reorg'),
    depth: z.int().min(1),
    length: z.int().min(1).optional(),
    share: z.number().min(0).max(1).optional(),
    events: z.enum(['fewer', 'same', 'more']).optional(),
    force: z.boolean().optional(),
  }),
  z.object({ command: z.literal('switch'), fork: height }),
  z.object({ command: z.literal('setL1'), height }),
  z.object({ command: z.literal('setHead'), height: height.nullable() }),
  z.object({ command: z.literal('fault'), fault: faultSchema }),
  z.object({ command: z.literal('clearFaults') }),
  z.object({ command: z.literal('pause') }),
  z.object({ command: z.literal('resume') }),
]);
export type Command = z.infer<typeof commandSchema>;

export type Clock = { pause(): void; resume(): void };

export type ControlOptions = {
  /** Null for recorded blocks, which take faults only. */
  chain: ScriptedChain | null;
  ledger: Ledger;
  faults: Faults;
  clock: Clock | null;
  /** The truth about a prepared chain, counted when it was generated. */
  preparedTruth: Truth | null;
};

/** The state of the chain; every command returns it. */
export function describe({ chain, ledger, faults }: ControlOptions): Record<string, unknown> {
  const head = ledger.head();
  return {
    head: chain?.head() ?? head,
    servedHead: head,
    headHash: ledger.at(head)?.hash ?? null,
    l1: ledger.l1(),
    fork: chain?.fork() ?? 0,
    forks: chain?.tree.list() ?? [],
    faults: faults.list(),
  };
}

export function runCommand(options: ControlOptions, command: Command): void {
  const { faults, clock } = options;
  const chain = () => {
    if (options.chain === null) throw new AppError('CONFLICT', 'recorded blocks cannot be changed');
    return options.chain;
  };
  switch (command.command) {
    case 'advance':
      chain().advance(command.blocks);
      return;
    case 'reorg':
      chain().reorg(command);
      return;
    case 'switch':
      chain().switchTo(command.fork);
      return;
    case 'setL1':
      chain().setL1(command.height);
      return;
    case 'setHead':
      chain().setHead(command.height);
      return;
    case 'fault':
      faults.add(command.fault);
      return;
    case 'clearFaults':
      faults.clear();
      return;
    case 'pause':
      clock?.pause();
      return;
    case 'resume':
      clock?.resume();
      return;
  }
}

/**
 * `POST /control` runs a command; `GET /control` returns the state of the chain, `/control/stats?from&to` counts the truth,
 * `/control/transfers?from&to` lists it, `/control/balance?token&account&height[&id]` returns a balance.
 */
export function createControlListener(options: ControlOptions): RequestListener {
  return (request, response) => {
    handle(options, request).then(
      (answer) =>
        answer === undefined
          ? send(response, 404, '{"error":"no such control path"}')
          : send(response, 200, JSON.stringify(answer)),
      (error: unknown) => {
        const isInvalid = error instanceof z.ZodError;
        const message = isInvalid ? z.prettifyError(error) : error instanceof Error ? error.message : error;
        send(response, 400, JSON.stringify({ error: message }));
      },
    );
  };
}

const range = z.object({
  from: z.coerce.number().int().min(0).optional(),
  to: z.coerce.number().int().min(0).optional(),
});
const balanceQuery = z.object({
  token: z.string(),
  account: z.string(),
  height: z.coerce.number().int().min(0),
  id: z.string().optional(),
});

async function handle(options: ControlOptions, request: IncomingMessage): Promise<unknown> {
  const { ledger, chain } = options;
  const url = new URL(request.url ?? '/', 'http://control');
  const query = Object.fromEntries(url.searchParams);
  if (request.method === 'POST') {
    runCommand(options, commandSchema.parse(JSON.parse(await readBody(request))));
    return describe(options);
  }
  switch (url.pathname) {
    case '/control':
      return describe(options);
    case '/control/stats': {
      const { from, to } = range.parse(query);
      if (from === undefined && to === undefined && options.preparedTruth !== null)
        return options.preparedTruth;
      return await countRange(ledger, from ?? 0, to ?? ledger.head());
    }
    case '/control/transfers': {
      const { from = 0, to = from } = range.parse(query);
      const heights = Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);
      return heights.flatMap((at) => (ledger.at(at)?.transfers ?? []).map(transferJson));
    }
    case '/control/balance': {
      const asked = balanceQuery.parse(query);
      const token = chain?.source.schedule.tokens.at(BigInt(asked.token)) ?? null;
      if (chain === null || token === null)
        throw new AppError('NOT_FOUND', `there is no token ${asked.token}`);
      const holder = chain.source.actors.find(BigInt(asked.account));
      const id = asked.id === undefined ? null : BigInt(asked.id);
      const balance =
        holder === null ? 0n : chain.balances.balance(chain.fork(), asked.height, token, holder, id);
      return { balance: balance.toString() };
    }
    default:
      return undefined;
  }
}
