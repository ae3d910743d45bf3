import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { GetQuarantinedResponses, ListQuarantineResponses } from 'token-data-service-client';

import { useAction } from '../action.ts';
import { countText, printable } from '../format.ts';
import { useEndless, useLoad } from '../loading.ts';
import { Choice, ErrorNote, Loading, More, Panel, Table } from '../ui/parts.tsx';
import { Command, StateTag } from '../ui/operation.tsx';
import { Hex, Time } from '../ui/values.tsx';
import { Json } from './webhooks.tsx';

type Entry = ListQuarantineResponses[200]['results'][number];
type Detail = GetQuarantinedResponses[200];

/** Events and messages that could not be decoded. */
export function Quarantine(): JSX.Element {
  const [which, setWhich] = useState<'open' | 'all'>('open');
  const list = useEndless(
    async (api, at, signal) => {
      const query = { all: which === 'all', limit: 25, ...(at === null ? {} : { cursor: at }) };
      const { results, links, count } = await api.listQuarantine({ query, signal });
      return { rows: results, next: links.next_cursor ?? null, count };
    },
    [which],
  );
  return (
    <Panel
      title="Quarantine"
      aside={
        <>
          <Command text={which === 'all' ? 'tds quarantine list --all' : 'tds quarantine list'} />
          <Choice
            label="Entries"
            value={which}
            options={[
              ['open', 'Open'],
              ['all', 'All'],
            ]}
            onChange={setWhich}
          />
        </>
      }
    >
      <Loading of={list}>
        {({ rows, count }) => (
          <>
            <p class="quiet">
              <span data-figure="count">{countText(count)}</span> {count === 1 ? 'entry' : 'entries'}
            </p>
            <ul class="deliveries">
              {rows.map((entry) => (
                <EntryItem key={entry.id} of={entry} onChange={list.reload} />
              ))}
            </ul>
          </>
        )}
      </Loading>
      <More list={list} />
    </Panel>
  );
}

function EntryItem({ of, onChange }: { readonly of: Entry; readonly onChange: () => void }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  return (
    <li>
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>
          <StateTag state={of.state} /> {of.kind} <code>{printable(of.where, 200)}</code>{' '}
          <Time at={of.since} /> <span class="quiet">{printable(of.reason, 400)}</span>
        </summary>
        {of.halts.length > 0 && <p class="bad">Halted here: {of.halts.join(', ')}</p>}
        {isOpen && <Inspect id={of.id} />}
        {of.state === 'open' && <Decide of={of} onChange={onChange} />}
      </details>
    </li>
  );
}

function Decide({
  of: { id, kind },
  onChange,
}: {
  readonly of: Entry;
  readonly onChange: () => void;
}): JSX.Element {
  const [done, setDone] = useState<string | null>(null);
  const path = { id };
  const retry = useAction(async (api, withKey) => {
    const { state, detail } = await api.retryQuarantined(withKey({ path }));
    setDone(detail ?? state);
    onChange();
  });
  const skip = useAction(async (api, withKey) => {
    const { state, detail } = await api.skipQuarantined(withKey({ path }));
    setDone(detail ?? state);
    onChange();
  });
  const error = retry.error ?? skip.error;
  const isBusy = retry.isBusy || skip.isBusy;
  const question =
    kind === 'event'
      ? 'Accept that this event stays undecoded?'
      : 'Let the projections skip this message for ever?';
  return (
    <>
      <p class="actions">
        <button
          type="button"
          disabled={isBusy}
          title={`tds quarantine retry ${id}`}
          onClick={() => void retry.run()}
        >
          Retry
        </button>
        <button
          type="button"
          disabled={isBusy}
          title={`tds quarantine skip ${id}`}
          onClick={() => {
            if (window.confirm(`${question}\n\ntds quarantine skip ${id}`)) void skip.run();
          }}
        >
          Skip
        </button>
        <Command text={`tds quarantine retry ${id}`} />
        <Command text={`tds quarantine skip ${id}`} />
      </p>
      {done !== null && <p role="status">{done}</p>}
      {error !== null && <ErrorNote error={error} />}
    </>
  );
}

/** The raw event beside what was expected of it. */
function Inspect({ id }: { readonly id: string }): JSX.Element {
  const entry = useLoad(async (api, signal) => await api.getQuarantined({ path: { id }, signal }), [id]);
  return (
    <Loading of={entry}>
      {({ event, message }) => (
        <>
          {event !== null && <EventDetail of={event} />}
          {message !== null && (
            <pre role="region" aria-label="Message" tabIndex={0}>
              {message.text}
            </pre>
          )}
        </>
      )}
    </Loading>
  );
}

function EventDetail({ of }: { readonly of: NonNullable<Detail['event']> }): JSX.Element {
  return (
    <>
      <p>
        Block <a href={`/block/${of.block}`}>{countText(of.block)}</a>, position {countText(of.position)},
        transaction <Hex value={of.transaction_hash} to="tx" />, contract{' '}
        <Hex value={of.contract.address} to={of.contract.standard === null ? 'account' : 'token'} /> (
        {of.contract.standard ?? 'not looked up'})
      </p>
      <div class="columns">
        <div>
          <h3>Raw event{of.selectors.length === 0 ? '' : `: ${of.selectors.join(', ')}`}</h3>
          <Json value={of.raw} label="Raw event" />
        </div>
        <div>
          <h3>Expected</h3>
          <Table
            caption="Expected shapes"
            rows={of.expected}
            keyOf={(shape) => JSON.stringify(shape)}
            empty="No event of this name is known."
            columns={[
              { title: 'Event', cell: ({ event }) => event },
              { title: 'Keys', isNumber: true, cell: ({ keys }) => countText(keys) },
              {
                title: 'Data',
                isNumber: true,
                cell: ({ data }) => (data === null ? 'any' : countText(data)),
              },
              { title: 'From', cell: ({ from }) => <code>{from}</code> },
              { title: 'To', cell: ({ to }) => <code>{to}</code> },
            ]}
          />
          <h3>Read as</h3>
          <ul>
            {of.readings.map(({ standard, problem, transfers }) => (
              <li key={standard}>
                {standard}: {problem ?? `${transfers.length} transfers`}
              </li>
            ))}
          </ul>
        </div>
      </div>
    </>
  );
}
