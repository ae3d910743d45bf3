import type { JSX } from 'preact';

import { Copyable } from './values.tsx';

const GOOD = new Set([
  'ok',
  'working',
  'live',
  'finished',
  'repaired',
  'serving',
  'no differences',
  'done',
  'verified',
]);
const BAD = new Set([
  'halted',
  'stalled',
  'missing',
  'silent',
  'failed',
  'differences',
  'interrupted',
  'mismatched',
]);

/** The state of a part of the service. */
export function StateTag({ state }: { readonly state: string }): JSX.Element {
  const look = GOOD.has(state) ? 'tag good' : BAD.has(state) ? 'tag bad' : 'tag';
  return <span class={look}>{state}</span>;
}

/** The command that does the same at a shell of the service. */
export function Command({ text }: { readonly text: string }): JSX.Element {
  return (
    <Copyable full={`npm run ${text.replace(/^tds /, 'tds -- ')}`}>
      <code class="quiet">{text}</code>
    </Copyable>
  );
}
