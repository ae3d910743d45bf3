import type { JSX } from 'preact';

import { Copyable } from './values.tsx';

/** A secret that the service shows once. */
export function Secret({
  name,
  value,
  onDone,
}: {
  readonly name: string;
  readonly value: string;
  readonly onDone: () => void;
}): JSX.Element {
  return (
    <div class="secret" role="status">
      <p>
        <b>{name}</b>, shown only now: copy it and keep it safe.
      </p>
      <p>
        <Copyable full={value}>
          <code>{value}</code>
        </Copyable>
      </p>
      <button type="button" onClick={onDone}>
        I have kept it
      </button>
    </div>
  );
}
