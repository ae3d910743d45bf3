import type { JSX } from 'preact';
import type { GetPipelineResponses } from 'token-data-service-client';

import { countOf, countText } from '../format.ts';
import { Command, StateTag } from '../ui/operation.tsx';
import { Panel } from '../ui/parts.tsx';

type Stage = GetPipelineResponses[200]['stages'][number];

/** The pipeline as one row of heights: the node, the log, each projection, and what the API serves. */
export function Stages({ of }: { readonly of: readonly Stage[] }): JSX.Element {
  const [node, log, projections, api] = (['node', 'log', 'projection', 'api'] as const).map((wanted) =>
    of.filter(({ kind }) => kind === wanted),
  );
  return (
    <Panel title="Pipeline" aside={<Command text="tds status" />}>
      <ol class="pipeline" aria-label="Stages of the pipeline">
        <li>
          {node?.map((one) => (
            <Step key={one.name} title="Node" of={one} />
          ))}
        </li>
        <li>
          {log?.map((one) => (
            <Step key={one.name} title="Log" of={one} />
          ))}
        </li>
        <li>
          <ul class="chips">
            {projections?.map((one) => (
              <Projection key={one.name} of={one} />
            ))}
          </ul>
        </li>
        <li>
          {api?.map((one) => (
            <Step key={one.name} title="API" of={one} />
          ))}
        </li>
      </ol>
    </Panel>
  );
}

function Step({ title, of }: { readonly title: string; readonly of: Stage }): JSX.Element {
  return (
    <div class="step">
      <span class="quiet">{title}</span> <b>{of.height === null ? '–' : countText(of.height)}</b>{' '}
      <Lag of={of} />
    </div>
  );
}

function Projection({ of }: { readonly of: Stage }): JSX.Element {
  return (
    <li class="step">
      <span>{of.name}</span> {of.height !== null && <b>{countText(of.height)}</b>} <Lag of={of} />
    </li>
  );
}

/** How far behind it is: in seconds where blocks are read, else in messages; and its state, unless all is well. */
function Lag({
  of: { state, detail, lag_seconds, lag_blocks, lag_messages },
}: {
  readonly of: Stage;
}): JSX.Element {
  const lag =
    lag_seconds !== null
      ? `${lag_seconds.toFixed(1)} s behind`
      : lag_messages !== null
        ? `${countOf(lag_messages, 'message')} behind`
        : 'lag unknown';
  return (
    <span class="lag">
      {state !== 'ok' && <StateTag state={state} />}
      <small class="quiet">
        {lag}
        {lag_blocks !== null && lag_blocks > 0 && ` (${countOf(lag_blocks, 'block')})`}
        {detail !== null && `: ${detail}`}
      </small>
    </span>
  );
}
