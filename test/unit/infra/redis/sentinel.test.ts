import { expect, test } from 'vitest';

import { parseSentinelUrl } from '../../../../infra/redis/sentinel.ts';

test('parses the Sentinels, the name of the master, its credentials and the database', () => {
  expect(parseSentinelUrl('redis+sentinel://one:26380,two,[::1]:3/mymaster')).toMatchObject({
    sentinels: [
      { host: 'one', port: 26_380 },
      { host: 'two', port: 26_379 },
      { host: '::1', port: 3 },
    ],
    name: 'mymaster',
    db: 0,
  });
  const secured = parseSentinelUrl('rediss+sentinel://me:p%40ss@one/main/3');
  expect(secured).toMatchObject({ username: 'me', password: 'p@ss', name: 'main', db: 3, tls: {} });
  expect(parseSentinelUrl('redis+sentinel://:secret@one/main')).toMatchObject({ password: 'secret' });
  expect(parseSentinelUrl('redis+sentinel://:secret@one/main')).not.toHaveProperty('username');
});

test.each([
  'redis://one:6379',
  'redis+sentinel://one:26379',
  'redis+sentinel:///main',
  'redis+sentinel://one:99999/main',
  'redis+sentinel://one,,two/main',
  'redis+sentinel://one/main/x',
  'redis+sentinel://:100%@one/main',
])('%s is no Sentinel URL', (url) => {
  expect(parseSentinelUrl(url)).toBeNull();
});
