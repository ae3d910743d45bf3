import { z } from 'zod';

import { nftNumber } from '../../../projections/nft-holdings/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Completeness } from '../case.ts';
import { untilMerged } from '../fill.ts';
import { servedCase } from '../served-case.ts';
import type { Stores } from '../stores.ts';

const SAMPLES = 200;
const COLLECTIONS = 100;
/** NFTs per collection; each is transferred three times, one in a hundred to the holder in the end. */
const IDS = 10_000;
const TRANSFERS = 3;
const HELD = (COLLECTIONS * IDS) / 100;
const PAGE = 100;

const collectionAt = (index: number): Felt => toFelt(0xc011_0000n + BigInt(index));
const HOLDER = toFelt(0x401d_e400n);
const page = z.object({
  count: z.number(),
  data: z.array(z.object({ name: z.string().nullable().optional() })),
});
const owner = z.object({ data: z.object({ owner_address: z.string() }) });

export const nfts: BenchCase = {
  name: 'nft',
  summary: 'NFT owners, and pages of an account with 10,000 NFTs, out of 3,000,000 transfers',
  async run(world, { samples }) {
    const { stores, get, measure, figures } = await servedCase(world, 'nft', samples ?? SAMPLES);
    world.say(`filling ${(COLLECTIONS * IDS * TRANSFERS).toLocaleString('en-US')} transfers`);
    await fillNfts(stores);
    world.say('waiting for the merges of ClickHouse');
    await untilMerged(stores);

    const owned = (index: number): string =>
      `/api/nft/owned-by/?account_address=${HOLDER}&page_size=${PAGE}&page=${1 + (index % (HELD / PAGE))}`;
    // Another NFT each time, so that no answer is cached.
    const ownerOf = (index: number): string =>
      `/api/nft/owner/?token_address=${collectionAt(index % COLLECTIONS)}&nft_token_id=${(index * 7919) % IDS}`;
    const last = page.parse(JSON.parse(await get(owned(HELD / PAGE - 1))));
    const first = owner.parse(JSON.parse(await get(ownerOf(0))));
    const completeness: Completeness[] = [
      { what: 'NFTs of the account', expected: HELD, found: last.count },
      { what: 'rows of its last page', expected: PAGE, found: last.data.length },
      {
        what: 'of them with metadata',
        expected: PAGE,
        found: last.data.filter(({ name }) => typeof name === 'string').length,
      },
      { what: 'owned by the holder', expected: 1, found: Number(first.data.owner_address === HOLDER) },
    ];
    await measure(`a page of ${PAGE} of ${HELD.toLocaleString('en-US')} NFTs, with metadata`, owned, {
      tail: wanted.nftPageTail,
    });
    await measure('owner of an NFT', ownerOf, { tail: wanted.nftOwnerTail });
    return {
      figures,
      completeness,
      notes: [
        `${COLLECTIONS} collections of ${IDS.toLocaleString('en-US')} NFTs, three transfers each; the account has every hundredth of each, scattered over all ids.`,
      ],
    };
  },
};

/** A felt: its first byte is 0. */
const hashOf = (of: string): string =>
  `toFixedString(concat(char(0), substring(SHA256(toString(${of})), 1, 31)), 32)`;

async function fillNfts({ clickhouse, pool, served }: Stores): Promise<void> {
  const version = 'number, 0';
  for (let index = 0; index < COLLECTIONS; index += 1) {
    const token = collectionAt(index);
    const [id, turn] = [`intDiv(number, ${TRANSFERS})`, `(number % ${TRANSFERS})`];
    const hex = (felt: string): string => `toFixedString(unhex('${felt.slice(2)}'), 32)`;
    const somebody = (of: string): string => hashOf(`(${of}) * 31 + ${index}`);
    const isHeld = `(${id} % 100 = ${index} AND ${turn} = ${TRANSFERS - 1})`;
    const to = `if(${isHeld}, ${hex(HOLDER)}, ${somebody('number')})`;
    const place = `toUInt32(4294967295 - 1000 - intDiv(number, 10) * ${COLLECTIONS} - ${index}), toUInt32(4294967295 - number % 10), toUInt32(4294967295)`;
    const nft = `toUInt256('${nftNumber(token, 0n)}') + toUInt256(${id})`;
    const rows = `FROM numbers(${IDS * TRANSFERS})`;
    await clickhouse.command(
      `INSERT INTO ${served.table('nft_transfers')} SELECT ${hex(token)}, toUInt256(${id}), ${place}, ${somebody('number - 1')},
         ${to}, 'erc721', toUInt256(1), ${hashOf('number')}, toUInt32(1700000000 + number), ${version} ${rows}`,
    );
    await clickhouse.command(
      `INSERT INTO ${served.table('nft_places')} SELECT ${nft}, ${place}, ${version} ${rows}`,
    );
    for (const [leg, account, where] of [
      [2, to, ''],
      [1, somebody('number - 1'), `WHERE ${turn} > 0`],
    ] as const) {
      await clickhouse.command(
        `INSERT INTO ${served.table('nft_moves')} SELECT ${account}, ${hex(token)}, toUInt256(${id}), ${place}, ${leg}, 'erc721',
           ${nft}, ${version} ${rows} ${where}`,
      );
    }
    await pool.query(
      `INSERT INTO ${served.schema('nft-metadata')}.nft_metadata (token, token_id, is_fetched, attempt_count, last_attempt_at,
         has_reverted, uri, name, description, image, attributes)
       SELECT $1, n, true, 0, 0, false, 'ipfs://a/' || n, 'number ' || n, repeat('It walks. ', 20), 'ipfs://a/' || n || '.png',
         '[{"trait_type":"claws","value":"2"},{"trait_type":"mood","value":"calm"}]'
       FROM generate_series(0, $2::integer - 1) AS n WHERE n % 100 = $3`,
      [token, IDS, index],
    );
  }
}
