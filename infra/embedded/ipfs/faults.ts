import { z } from 'zod';

/** Something that goes wrong on purpose; see each kind for what else it takes. */
export const gatewayFaultSchema = z.object({
  kind: z.enum([
    'latency', // answers after `ms`
    'status', // answers `status`; default: 500
    'hang', // never answers
    'body', // `text` with status 200, as `type`; default: an HTML page
    'huge', // `bytes` of JSON; default: 4,000,000
    'nested', // arrays in arrays, `depth` of them; default: 200,000
    'redirect', // to `to`
    'drop', // closes the connection in the middle of the answer
  ]),
  /** A part of the paths that it strikes; default: all. */
  path: z.string().optional(),
  /** How many calls it strikes; default: all until it is cleared. */
  times: z.int().min(1).optional(),
  ms: z.int().min(0).optional(),
  status: z.int().min(200).max(599).optional(),
  text: z.string().optional(),
  type: z.string().optional(),
  bytes: z.int().min(1).optional(),
  depth: z.int().min(1).optional(),
  to: z.string().optional(),
});
export type GatewayFault = z.infer<typeof gatewayFaultSchema>;

export interface GatewayFaults {
  add(fault: GatewayFault): void;
  clear(): void;
  list(): readonly { readonly fault: GatewayFault; readonly struck: number }[];
  /** The faults that strike a call; each is counted. */
  strike(path: string): readonly GatewayFault[];
}

export function createGatewayFaults(): GatewayFaults {
  let active: { fault: GatewayFault; struck: number }[] = [];
  return {
    add: (fault) => void active.push({ fault, struck: 0 }),
    clear: () => {
      active = [];
    },
    list: () => active.map(({ fault, struck }) => ({ fault, struck })),
    strike: (path) =>
      active
        .filter((one) => {
          const { times = Infinity, path: part = '' } = one.fault;
          if (one.struck >= times || !path.includes(part)) return false;
          one.struck += 1;
          return true;
        })
        .map(({ fault }) => fault),
  };
}
