import type { Figure } from './case.ts';
import { latency, timed } from './measure.ts';
import type { Stores } from './stores.ts';
import type { World } from './world.ts';

/** A service on a chain of a few blocks, whose tables a case fills directly, with helpers to measure its answers. */
export interface ServedCase {
  readonly stores: Stores;
  /** The body of an answer; throws unless it is 200. */
  readonly get: (path: string) => Promise<string>;
  /**
   * Sends `count` requests one after the other, after ten warm-up requests (with indexes above all others).
   *
   * @param ask returns a path, or sends the request itself
   */
  readonly measure: (
    name: string,
    ask: (index: number) => string | Promise<unknown>,
    want: Parameters<typeof latency>[2],
    count?: number,
  ) => Promise<void>;
  readonly figures: Figure[];
}

const WARM_UP = 10;

export async function servedCase(
  world: World,
  name: string,
  samples: number,
  settings: Readonly<Record<string, string>> = {},
): Promise<ServedCase> {
  const chain = await world.chain({ head: 3, perBlock: 20 });
  const { service, dataDir } = await world.service(name, {
    STARKNET_RPC_URL: chain.url,
    INDEX_FROM: '0',
    ...settings,
  });
  const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
  const figures: Figure[] = [];
  const get = async (path: string): Promise<string> => {
    const { status, body } = await client.get(path);
    if (status !== 200) throw new Error(`${path}: ${status} ${body}`);
    return body;
  };
  return {
    stores: await world.stores(dataDir),
    figures,
    get,
    async measure(what, ask, want, count = samples) {
      world.say(what);
      const once = async (index: number): Promise<void> => {
        const asked = ask(index);
        await (typeof asked === 'string' ? get(asked) : asked);
      };
      await timed(Math.min(WARM_UP, count), 1, async (index) => await once(10_000 + index));
      const { samples: took } = await timed(count, 1, once);
      figures.push(...latency(what, took, want));
    },
  };
}
