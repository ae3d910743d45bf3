import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { ListDeliveriesResponses } from 'token-data-service-client';

import { useAction } from '../action.ts';
import { countText, printable } from '../format.ts';
import { useEndless, useLoad } from '../loading.ts';
import { navigate } from '../router.ts';
import { Choice, ErrorNote, Figure, Loading, More, Panel } from '../ui/parts.tsx';
import { usePolled } from '../use-polled.ts';
import { useTitle } from '../ui/title.ts';
import { Count, Hex, Time } from '../ui/values.tsx';
import { Json, WebhookStatus } from './webhooks.tsx';
import type { WebhookRow } from './webhooks.tsx';
import { WebhookStats } from './webhook-stats.tsx';

type Delivery = ListDeliveriesResponses[200]['results'][number];
type Filter = 'all' | Delivery['status'];

const PAGE = 25;
/** The newest deliveries are read again while no older ones are shown. */
const POLL_MS = 3000;

export function Webhook({ id }: { readonly id: number }): JSX.Element {
  const webhook = useLoad(async (api, signal) => await api.getWebhook({ path: { id }, signal }), [id]);
  const name = printable(webhook.data?.name ?? '');
  useTitle(`Webhook ${name}`);
  const [round, setRound] = useState(0);
  return (
    <>
      <h1>
        Webhook <bdi>{name}</bdi>
      </h1>
      <Loading of={webhook}>
        {(one) => (
          <>
            <Facts of={one} />
            <Actions
              of={one}
              onChange={() => {
                webhook.reload();
                setRound(round + 1);
              }}
            />
          </>
        )}
      </Loading>
      <WebhookStats id={id} round={round} onRetried={() => setRound(round + 1)} />
      <Deliveries id={id} round={round} />
    </>
  );
}

function Facts({ of }: { readonly of: WebhookRow }): JSX.Element {
  return (
    <>
      <dl class="figures">
        <Figure name="Status">
          <WebhookStatus of={of} />
        </Figure>
        <Figure name="URL">
          <span class="url">{of.url}</span>
        </Figure>
        <Figure name="Events">{of.events.join(', ')}</Figure>
        <Figure name="Created">
          <Time at={of.created_at} />
        </Figure>
        <Figure name="Dead deliveries in a row">{countText(of.consecutive_dead)}</Figure>
      </dl>
      {of.disabled_reason !== null && <p class="note">Disabled: {printable(of.disabled_reason)}</p>}
      {of.subscriptions.map(({ id, token, address, price_above, price_below }) => (
        <p key={id} class="quiet">
          Token: {token === '' ? 'any' : <Hex value={token} to="token" />}, account:{' '}
          {address === '' ? 'any' : <Hex value={address} to="account" />}
          {price_above === '' ? '' : `, price above: $${price_above}`}
          {price_below === '' ? '' : `, price below: $${price_below}`}
        </p>
      ))}
    </>
  );
}

function Actions({ of, onChange }: { readonly of: WebhookRow; readonly onChange: () => void }): JSX.Element {
  const path = { id: of.id };
  const test = useAction(async (api, withKey) => {
    await api.testWebhook(withKey({ path }));
    onChange();
  });
  const toggle = useAction(async (api, withKey) => {
    await api.updateWebhook(
      withKey({ path, body: { status: of.status === 'active' ? 'paused' : 'active' } }),
    );
    onChange();
  });
  const remove = useAction(async (api) => {
    await api.deleteWebhook({ path });
    navigate('/webhooks');
  });
  const failed = [test, toggle, remove].find(({ error }) => error !== null)?.error ?? null;
  return (
    <>
      <p class="actions">
        <button type="button" class="main" disabled={test.isBusy} onClick={() => void test.run()}>
          Send a test
        </button>
        <button type="button" disabled={toggle.isBusy} onClick={() => void toggle.run()}>
          {of.status === 'active' ? 'Pause' : 'Set active'}
        </button>
        <button
          type="button"
          disabled={remove.isBusy}
          onClick={() => {
            if (window.confirm(`Delete the webhook “${printable(of.name)}” and its deliveries?`))
              void remove.run();
          }}
        >
          Delete
        </button>
      </p>
      {failed !== null && <ErrorNote error={failed} />}
    </>
  );
}

function Deliveries({ id, round }: { readonly id: number; readonly round: number }): JSX.Element {
  const [filter, setFilter] = useState<Filter>('all');
  const list = useEndless(
    async (api, at, signal) => {
      const page = Number(at ?? 1);
      const query = { page, limit: PAGE, ...(filter === 'all' ? {} : { status: filter }) };
      const { results, links, count, count_is_estimate } = await api.listDeliveries({
        path: { id },
        query,
        signal,
      });
      const next = links.next === null ? null : String(page + 1);
      return { rows: results, next, count, isEstimate: count_is_estimate };
    },
    [id, filter, round],
  );
  const shown = list.data?.rows.length ?? 0;
  usePolled(list, shown <= PAGE ? POLL_MS : null);
  return (
    <Panel
      title="Deliveries"
      aside={
        <Choice
          label="Status"
          value={filter}
          options={[
            ['all', 'All'],
            ['pending', 'Pending'],
            ['success', 'Success'],
            ['failed', 'Failed'],
            ['dead', 'Dead'],
          ]}
          onChange={setFilter}
        />
      }
    >
      <Loading of={list}>
        {({ rows, count, isEstimate }) => (
          <>
            <p class="quiet">
              <span data-figure="count">
                <Count value={count} isEstimate={isEstimate} />
              </span>{' '}
              {count === 1 ? 'delivery' : 'deliveries'}
            </p>
            <ul class="deliveries">
              {rows.map((delivery) => (
                <DeliveryItem key={delivery.id} webhook={id} of={delivery} onRetried={list.reload} />
              ))}
            </ul>
          </>
        )}
      </Loading>
      <More list={list} />
    </Panel>
  );
}

function DeliveryItem({
  webhook,
  of,
  onRetried,
}: {
  readonly webhook: number;
  readonly of: Delivery;
  readonly onRetried: () => void;
}): JSX.Element {
  const retry = useAction(async (api) => {
    await api.retryDelivery({ path: { id: webhook, delivery_id: of.id } });
    onRetried();
  });
  const look = of.status === 'success' ? 'tag good' : of.status === 'pending' ? 'tag' : 'tag bad';
  return (
    <li>
      <details>
        <summary>
          <span class={look}>{of.status}</span> <code>{of.event}</code> <Time at={of.created_at} />{' '}
          <span class="quiet">
            attempt {of.attempt}
            {of.response_code === null ? '' : `, HTTP ${of.response_code}`}
            {of.duration_ms === null ? '' : `, ${of.duration_ms} ms`}
          </span>
        </summary>
        {of.error !== null && <p class="bad">{printable(of.error)}</p>}
        {of.next_attempt_at !== null && (
          <p>
            Next attempt <Time at={of.next_attempt_at} />
          </p>
        )}
        <h3>Request</h3>
        <Json value={of.payload} label="Request" />
        {of.response_body !== null && of.response_body !== '' && (
          <>
            <h3>Response</h3>
            <pre role="region" aria-label="Response" tabIndex={0}>
              {of.response_body}
            </pre>
          </>
        )}
        {of.status !== 'success' && (
          <button type="button" disabled={retry.isBusy} onClick={() => void retry.run()}>
            Retry
          </button>
        )}
        {retry.error !== null && <ErrorNote error={retry.error} />}
      </details>
    </li>
  );
}
