import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { remedyOf } from '../../../../infra/health/remedies.ts';

/** Links to sections of the page, as their titles. */
const plain = (cell: string): string =>
  cell.trim().replaceAll(/\[([^\]]+)\]\(#[^)]*\)/g, '"$1" in operations.md');

test('an alarm has the meaning and the action of docs/operations.md', () => {
  const rows = readFileSync('docs/operations.md', 'utf8')
    .split('\n')
    .map((line) => /^\| `((?:[a-z]+)\.[a-z]+[^`]*)` +\|(.*)\|(.*)\|$/.exec(line))
    .filter((row) => row !== null)
    .map(([, name = '', meaning = '', action = '']) => ({
      name,
      meaning: plain(meaning),
      action: plain(action),
    }));
  expect(rows).toHaveLength(17);
  for (const { name, meaning, action } of rows) {
    const remedy = remedyOf(name.replace('CHUNK', 'live').replace('ADDRESS', '0x1'));
    // The titles of two sections are shortened in the table.
    expect({ name, ...remedy }).toEqual({
      name,
      meaning,
      action: action.replace('"Halted partitions" in', '"Halted partitions and quarantine" in'),
    });
  }
});

test('an unknown alarm is answered with its detail to read', () => {
  expect(remedyOf('other.alarm:x')).toEqual({
    meaning: 'an alarm of another release',
    action: 'read the detail',
  });
});
