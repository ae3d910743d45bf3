import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';

/** What an import makes of the catalogue, through the log. */

let world: ApiWorld;
let schema: string;

const domain = (name: string, more: object = {}) => ({
  domain: name,
  status: 'blacklisted' as const,
  category: 'phishing',
  risk_level: 'high' as const,
  reason: '',
  source: 'test',
  evidence_url: '',
  active: true,
  ...more,
});
const part = (importId: string, at: number, records: object) =>
  world.commands.submit({
    type: 'catalogue.part',
    actor: 'operator',
    body: { import_id: importId, part: at, records },
  });
const take = (importId: string, parts: number) =>
  world.commands.submit({
    type: 'catalogue.import',
    actor: 'operator',
    body: { import_id: importId, parts },
  });
const rows = async (table: string) =>
  (await world.pool.query(`SELECT * FROM ${schema}.${table} ORDER BY id`)).rows;

beforeAll(async () => {
  world = await apiWorld();
  const { rows: served } = await world.pool.query(`SELECT schemas->>'catalogue' AS name FROM tds.served`);
  schema = served[0]?.name;
});
afterAll(() => world.close());

describe('an import', () => {
  it('applies nothing while a part is missing, then everything, and changes nothing when repeated', async () => {
    await part('one', 1, { domains: [domain('b.example'), domain('a.example', { status: 'whitelisted' })] });
    expect(await take('one', 2)).toMatchObject({ accepted: false, result: { code: 'CONFLICT' } });
    expect(await rows('domains')).toEqual([]);
    await part('one', 0, { domains: [domain('c.example'), domain('c.example', { reason: 'later' })] });
    expect(await take('one', 2)).toMatchObject({
      accepted: true,
      result: { domains: { created: 3, changed: 0, unchanged: 0 } },
    });
    const made = await rows('domains');
    expect(made.map((row) => [row.id, row.domain, row.reason])).toEqual([
      [1, 'c.example', 'later'],
      [2, 'b.example', ''],
      [3, 'a.example', ''],
    ]);
    await part('two', 0, { domains: [domain('b.example'), domain('c.example', { reason: 'another' })] });
    expect(await take('two', 1)).toMatchObject({
      result: { domains: { created: 0, changed: 1, unchanged: 1 } },
    });
    const [changed, ...others] = await rows('domains');
    expect(changed).toMatchObject({ id: 1, reason: 'another' });
    expect(changed?.changed).toBeGreaterThan(made[0]?.changed);
    expect(others).toEqual(made.slice(1));
    const left = await world.pool.query(`SELECT * FROM ${schema}.import_parts`);
    expect(left.rows).toEqual([]);
  });

  it('rejects a dApp or an ad of an unknown category', async () => {
    const ad = {
      key: 'one',
      placement: 'top',
      title: 'One',
      description: '',
      image_url: '',
      target_url: 'https://one.example',
      cta_text: '',
      network: null,
      category: 'games',
      priority: 1,
      starts_at: null,
      ends_at: null,
      total_impression_limit: null,
      is_active: true,
    };
    await part('three', 0, { ads: [ad], domains: [domain('d.example')] });
    expect(await take('three', 1)).toMatchObject({ accepted: false, result: { categories: ['games'] } });
    expect(await rows('ads')).toEqual([]);
    await part('four', 0, { ads: [ad], categories: [{ slug: 'games', name: 'Games', icon: '' }] });
    expect(await take('four', 1)).toMatchObject({ accepted: true });
    expect(await rows('ads')).toMatchObject([{ id: 1, key: 'one', category: 'games' }]);
  });
});
