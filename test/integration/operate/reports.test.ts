import { afterAll, beforeAll, expect, it } from 'vitest';

import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { aDomain, importRecords } from '../../support/catalogue.ts';
import { tds } from '../../support/tds.ts';
import type { CommandResult } from '../../support/tds.ts';

/** What an operator does about reports: `tds reports`, as a process of its own. */

let world: ApiWorld;
let headers: Record<string, string>;

beforeAll(async () => {
  world = await apiWorld({ COMMAND_TIMEOUT_MS: '30000' });
  const { token } = await world.makeUser('alice');
  const json = { name: 'k' };
  const { key } = (await world.call('POST', '/api/users/auth/create-api-key/', { token, json })).json;
  headers = { 'api-key': key };
});
afterAll(async () => await world?.close());

const report = async (domain: string, reason = 'asks for the seed'): Promise<Answer['json']> => {
  const json = { domain, category: 'phishing', reason, evidence: 'https://example.org/shot.png' };
  return (await world.call('POST', '/api/dapps/domain-reports/', { headers, json })).json;
};
const check = async (domain: string): Promise<Answer['json']> =>
  (await world.call('GET', `/api/dapps/domain-check/?domain=${domain}`, { headers })).json;
const own = async (id: number): Promise<Answer['json']> =>
  (await world.call('GET', `/api/dapps/domain-reports/${id}/`, { headers })).json;
const reports = async (...args: readonly string[]): Promise<CommandResult> =>
  await tds(world.env, 'reports', ...args);

it('reports are approved or rejected once', async () => {
  const [evil, fine] = [
    await report('evil.example'),
    await report('fine.example', 'rude\u001b[2J\u202e\nto me'),
  ];
  const list = await reports('list', '--status', 'pending');
  expect(list.code).toBe(0);
  expect(list.stdout).toMatch(
    new RegExp(`^${fine.id}  fine\\.example\\n.*\\n  phishing: rude \\[2J to me\\n`),
  );
  expect(list.stdout).toContain(`\n${evil.id}  evil.example\n`);

  const approved = await reports('approve', String(evil.id), '--risk', 'medium');
  expect(approved).toEqual({ code: 0, stdout: 'evil.example is blacklisted.\n', stderr: '' });
  expect(await check('app.evil.example')).toMatchObject({
    status: 'blacklisted',
    risk_level: 'medium',
    category: 'phishing',
    reason: 'asks for the seed',
    matched_domain: 'evil.example',
    source: 'report',
  });
  expect(await own(evil.id)).toMatchObject({ status: 'approved', reviewed_at: expect.any(String) });

  expect(await reports('reject', String(fine.id))).toMatchObject({
    code: 0,
    stdout: 'The report of fine.example is rejected.\n',
  });
  expect(await check('fine.example')).toMatchObject({ status: 'unknown' });
  expect(await own(fine.id)).toMatchObject({ status: 'rejected', reviewed_at: expect.any(String) });

  for (const [id, before] of [
    [evil.id, 'approved'],
    [fine.id, 'rejected'],
  ]) {
    for (const verb of ['approve', 'reject']) {
      expect(await reports(verb, String(id))).toEqual({
        code: 1,
        stdout: '',
        stderr: `The report has already been ${before}.\n`,
      });
    }
  }
  const json = await reports('list', '--json', '--limit', '1');
  expect(JSON.parse(json.stdout)).toMatchObject([{ id: fine.id, status: 'rejected' }]);
  expect((await reports('list', '--status', 'pending')).stdout).toBe('No report is pending.\n');
});

it('reports of whitelisted domains are approved with --force only', async () => {
  await importRecords(world, {
    domains: [
      aDomain('good.example', { status: 'whitelisted', risk_level: null }),
      aDomain('past.example', { status: 'whitelisted', active: false }),
    ],
  });
  const [good, below, past] = [
    await report('good.example'),
    await report('hacked.good.example'),
    await report('past.example'),
  ];
  expect(await reports('approve', String(good.id))).toEqual({
    code: 1,
    stdout: '',
    stderr: 'good.example is whitelisted. To blacklist it anyway, use --force.\n',
  });
  expect(await check('good.example')).toMatchObject({ status: 'whitelisted' });
  expect(await own(good.id)).toMatchObject({ status: 'pending', reviewed_at: null });
  // It is safe only because the one above it is.
  expect(await reports('approve', String(below.id))).toMatchObject({
    code: 1,
    stderr: 'good.example, above hacked.good.example, is whitelisted; use --force to blacklist it anyway.\n',
  });
  expect((await reports('approve', String(below.id), '--force')).code).toBe(0);
  // One that is not in force is no reason to ask.
  expect((await reports('approve', String(past.id))).code).toBe(0);
  expect(await check('hacked.good.example')).toMatchObject({ status: 'blacklisted' });
  expect(await check('past.example')).toMatchObject({ status: 'blacklisted' });
  expect((await reports('approve', String(good.id), '--force')).code).toBe(0);
  expect(await check('good.example')).toMatchObject({ status: 'blacklisted', risk_level: 'high' });
});

it('reports of a public suffix are approved with --force only', async () => {
  const suffix = await report('github.io');
  const { code, stderr } = await reports('approve', String(suffix.id));
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^github\.io is a public suffix: /)]);
  expect(await own(suffix.id)).toMatchObject({ status: 'pending' });
  expect((await reports('approve', String(suffix.id), '--force')).code).toBe(0);
  expect(await check('github.io')).toMatchObject({ status: 'blacklisted' });
});

it('reports of blacklisted domains leave the entry unchanged without --force', async () => {
  const written = { reason: 'drains wallets', risk_level: 'high', source: 'operator' } as const;
  await importRecords(world, { domains: [aDomain('known.example', written)] });
  const [again, forced] = [await report('known.example'), await report('known.example')];
  expect(await reports('approve', String(again.id), '--risk', 'low')).toMatchObject({
    code: 0,
    stdout: 'known.example is already blacklisted; its entry is unchanged.\n',
  });
  expect(await own(again.id)).toMatchObject({ status: 'approved' });
  expect(await check('known.example')).toMatchObject(written);
  expect((await reports('approve', String(forced.id), '--risk', 'low', '--force')).stdout).toBe(
    'known.example is blacklisted.\n',
  );
  expect(await check('known.example')).toMatchObject({ risk_level: 'low', source: 'report' });
});

it('reports are listed up to a limit, with a note when there are more', async () => {
  const listed = await reports('list', '--limit', '1');
  expect(listed.stdout).toMatch(/\nMore reports exist; raise --limit to see them\.\n$/);
  expect((await reports('list', '--limit', '1000')).stdout).not.toContain('More reports exist');
});

it('unknown reports and invalid options are rejected', async () => {
  expect(await reports('approve', '999')).toMatchObject({ code: 1, stderr: 'No report has the id 999.\n' });
  for (const args of [
    ['approve', 'x'],
    ['approve', '1', '--risk', 'huge'],
    ['list', '--status', 'old'],
    ['reject'],
  ]) {
    const { code, stderr } = await reports(...args);
    expect([code, stderr.startsWith('error: ')], args.join(' ')).toEqual([1, true]);
  }
});
