import { randomUUID } from 'node:crypto';

import { afterAll, beforeAll, expect, it } from 'vitest';

import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld, Call } from '../../support/api-world.ts';
import { anAd, importRecords } from '../../support/catalogue.ts';

/** Ads, through the log: what is counted is counted once, and a list that is asked for afterwards knows of it. */

const START = Date.parse('2026-03-01T00:00:00.000Z');
const END = Date.parse('2026-04-01T00:00:00.000Z');

const crowded = anAd('crowded', { placement: 'crowded', total_impression_limit: 100 });

let world: ApiWorld;
let clock = START;
let call: Call;
let headers: Record<string, string>;

beforeAll(async () => {
  world = await apiWorld();
  const { token } = await world.makeUser('advertiser');
  const made = await world.call('POST', '/api/users/auth/create-api-key/', { token, json: { name: 'k' } });
  headers = { 'api-key': made.json.key };
  ({ call } = await world.anotherApi({ now: () => clock }));
  await importRecords(world, {
    categories: [{ slug: 'games', name: 'Games', icon: '' }],
    ads: [
      anAd('capped', { placement: 'capped', total_impression_limit: 100 }),
      crowded,
      anAd('timed', { placement: 'timed', starts_at: START, ends_at: END }),
      anAd('low', { priority: 1 }),
      anAd('high', { priority: 2, category: 'games' }),
      anAd('also-low', { priority: 1 }),
      anAd('sleeping', { placement: 'sleeping', is_active: false }),
    ],
  });
});
afterAll(() => world?.close());

const shown = async (query: string) => {
  const answer = await call('GET', `/api/dapps/ads/?${query}`, { headers });
  expect(answer.status, answer.text).toBe(200);
  return answer.json;
};
const idOf = async (key: string): Promise<number> => {
  const { rows } = await world.pool.query(`SELECT schemas->>'catalogue' AS name FROM tds.served`);
  const found = await world.pool.query(`SELECT id FROM ${rows[0]?.name}.ads WHERE key = $1`, [key]);
  return found.rows[0]?.id;
};
const report = async (id: number | string, what: 'impression' | 'click', more: Record<string, string> = {}) =>
  await call('POST', `/api/dapps/ads/${id}/${what}/`, { headers: { ...headers, ...more } });

it('returns the record as decided', async () => {
  clock = START;
  expect(await shown('placement=timed')).toEqual([
    {
      id: await idOf('timed'),
      placement: 'timed',
      title: 'timed',
      description: '',
      image_url: '',
      target_url: 'https://ad.example',
      cta_text: '',
      network: null,
      category: null,
      priority: 0,
      starts_at: '2026-03-01T00:00:00.000Z',
      ends_at: '2026-04-01T00:00:00.000Z',
      total_impression_limit: null,
      impression_count: 0,
      click_count: 0,
      is_active: true,
    },
  ]);
});

it('keeps the schedule to the millisecond', async () => {
  const isShownAt = async (time: number): Promise<boolean> => {
    clock = time;
    return (await shown('placement=timed')).length === 1;
  };
  expect(await isShownAt(START - 1)).toBe(false);
  expect(await isShownAt(START)).toBe(true);
  expect(await isShownAt(END - 1)).toBe(true);
  expect(await isShownAt(END)).toBe(false);
});

it('requires a placement that some ad has', async () => {
  const missing = await call('GET', '/api/dapps/ads/', { headers });
  expect(missing.status).toBe(400);
  expect(missing.json.errors).toEqual({ placement: ['This field is required.'] });
  expect((await call('GET', '/api/dapps/ads/?placement=nowhere', { headers })).status).toBe(404);
  expect(await shown('placement=sleeping')).toEqual([]);
});

it('returns one, or as many as requested, highest priority first, then least shown', async () => {
  const titles = async (query: string) => (await shown(query)).map((one: { title: string }) => one.title);
  const all = ['high', 'low', 'also-low'];
  expect(await titles('placement=top')).toEqual(['high']);
  expect(await titles('placement=top&limit=9')).toEqual(all);
  expect(await titles('placement=top&limit=9&category=games')).toEqual(all);
  // `high` is for games alone.
  expect(await titles('placement=top&category=defi')).toEqual(['low']);
  expect((await report(await idOf('low'), 'impression')).status).toBe(204);
  expect(await titles('placement=top&limit=9&category=defi')).toEqual(['also-low', 'low']);
});

it('shows an ad with a cap of 100 exactly 100 times', async () => {
  const id = await idOf('capped');
  for (let i = 0; i < 3; i += 1)
    await Promise.all(Array.from({ length: 33 }, () => report(id, 'impression')));
  expect(await shown('placement=capped')).toMatchObject([{ impression_count: 99 }]);
  expect((await report(id, 'impression')).status).toBe(204);
  expect(await shown('placement=capped')).toEqual([]);
});

it('counts each of 200 concurrent impressions, beyond the cap too', async () => {
  const id = await idOf('crowded');
  const answers = await Promise.all(Array.from({ length: 200 }, () => report(id, 'impression')));
  expect(new Set(answers.map(({ status, text }) => `${status}${text}`))).toEqual(new Set(['204']));
  expect(await shown('placement=crowded')).toEqual([]);
  // Another cap shows what is counted.
  await importRecords(world, { ads: [{ ...crowded, total_impression_limit: 201 }] });
  expect(await shown('placement=crowded')).toMatchObject([{ impression_count: 200 }]);
});

it('counts clicks and impressions separately, and rejects an unknown ad', async () => {
  const id = await idOf('timed');
  clock = START;
  await report(id, 'click');
  await report(id, 'click');
  await report(id, 'impression');
  expect(await shown('placement=timed')).toMatchObject([{ impression_count: 1, click_count: 2 }]);
  for (const unknown of [0, -1, 999_999]) expect((await report(unknown, 'click')).status).toBe(404);
  expect((await report('x', 'impression')).status).toBe(404);
});

it('counts a repeat under one Idempotency-Key once, but not that of another ad or event', async () => {
  const [low, other] = [await idOf('low'), await idOf('also-low')];
  const countsOf = async (id: number) =>
    (await shown('placement=top&limit=9')).find((one: { id: number }) => one.id === id);
  const before = [await countsOf(low), await countsOf(other)];
  const once = { 'Idempotency-Key': randomUUID() };
  for (let i = 0; i < 3; i += 1) expect((await report(low, 'impression', once)).status).toBe(204);
  await report(low, 'click', once);
  await report(other, 'impression', once);
  expect(await countsOf(low)).toMatchObject({
    impression_count: before[0].impression_count + 1,
    click_count: before[0].click_count + 1,
  });
  expect(await countsOf(other)).toMatchObject({ impression_count: before[1].impression_count + 1 });
});

it('accepts an event once it is in the log, also while the projector is stopped, and counts a duplicate message once', async () => {
  const impatient = await world.anotherApi({ env: { COMMAND_TIMEOUT_MS: '300' }, now: () => clock });
  const id = await idOf('low');
  const count = async () =>
    (await shown('placement=top&limit=9')).find((one: { id: number }) => one.id === id).impression_count;
  const before = await count();
  await world.stopProjector();
  const answer = await impatient.call('POST', `/api/dapps/ads/${id}/impression/`, { headers });
  expect(answer.status).toBe(204);
  expect(await count()).toBe(before);
  const publisher = world.kafka.publisher();
  const value = {
    type: 'ad.shown',
    v: 1,
    id: randomUUID(),
    ad_id: id,
    observed_at: Date.now(),
  } as const;
  await publisher.publish(topics.ads, [{ value }, { value }]);
  await publisher.publish(topics.ads, [{ value }]);
  await publisher.close();
  await world.startProjector();
  await expect.poll(count, { timeout: 15_000 }).toBe(before + 2);
  expect((await report(id, 'impression')).status).toBe(204);
  expect(await count()).toBe(before + 3);
});
