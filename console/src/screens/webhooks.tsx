import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { CreateWebhookData, ListWebhooksResponses } from 'token-data-service-client';

import { useAction } from '../action.ts';
import { countText, printable } from '../format.ts';
import { fieldsOf } from '../forms.ts';
import { useLoad } from '../loading.ts';
import { asFelt } from '../search.ts';
import { ErrorNote, Field, Form, Loading, Panel, Table } from '../ui/parts.tsx';
import { Secret } from '../ui/secret.tsx';
import { useTitle } from '../ui/title.ts';
import { Time } from '../ui/values.tsx';

export type WebhookRow = ListWebhooksResponses[200][number];
type Event = CreateWebhookData['body']['events'][number];

export function Webhooks(): JSX.Element {
  useTitle('Webhooks');
  const webhooks = useLoad(async (api, signal) => await api.listWebhooks({ signal }), []);
  return (
    <>
      <h1>Webhooks</h1>
      <Loading of={webhooks}>
        {(rows) => (
          <Panel
            title="Your webhooks"
            aside={
              <span class="quiet" data-figure="count">
                {countText(rows.length)}
              </span>
            }
          >
            <Table
              caption="Webhooks"
              rows={rows}
              keyOf={({ id }) => String(id)}
              empty="No webhooks yet."
              columns={[
                {
                  title: 'Name',
                  cell: ({ id, name }) => (
                    <a href={`/webhooks/${id}`}>
                      <bdi>{printable(name) || String(id)}</bdi>
                    </a>
                  ),
                },
                { title: 'URL', cell: ({ url }) => <span class="url">{url}</span> },
                { title: 'Events', cell: ({ events }) => events.join(', ') },
                { title: 'Status', cell: (webhook) => <WebhookStatus of={webhook} /> },
                {
                  title: 'Last delivery',
                  cell: ({ last_delivery_at: at }) =>
                    at === null ? <span class="quiet">none</span> : <Time at={at} />,
                },
              ]}
            />
          </Panel>
        )}
      </Loading>
      <CreateWebhook onCreated={webhooks.reload} />
    </>
  );
}

export function WebhookStatus({ of: { status, disabled_reason } }: { readonly of: WebhookRow }): JSX.Element {
  const look = status === 'active' ? 'tag good' : status === 'disabled' ? 'tag bad' : 'tag';
  return (
    <span class={look} title={disabled_reason ?? ''}>
      {status}
    </span>
  );
}

function CreateWebhook({ onCreated }: { readonly onCreated: () => void }): JSX.Element {
  const [secret, setSecret] = useState<string | null>(null);
  const [chosen, setChosen] = useState<readonly Event[]>(['transfer.created']);
  const catalogue = useLoad(async (api, signal) => await api.listWebhookEvents({ signal }), []);
  const create = useAction(async (api, headers, form: HTMLFormElement) => {
    const created = await api.createWebhook({ headers, body: bodyOf(form, chosen) });
    form.reset();
    setSecret(created.secret);
    onCreated();
  });
  const toggle = (event: Event, isOn: boolean): void =>
    setChosen(isOn ? [...chosen, event] : chosen.filter((one) => one !== event));
  return (
    <Panel title="Create a webhook">
      {secret !== null && <Secret name="Signing secret" value={secret} onDone={() => setSecret(null)} />}
      <Form action={create} submit="Create webhook" busy="Creating…">
        <Field label="Name" name="name" required maxLength={100} errors={create.errorsOf('name')} />
        <Field label="URL" name="url" type="url" required maxLength={2048} errors={create.errorsOf('url')} />
        <fieldset>
          <legend>Events</legend>
          {catalogue.data?.map(({ event, description }) => (
            <label key={event} class="check">
              <input
                type="checkbox"
                checked={chosen.includes(event)}
                onChange={({ currentTarget }) => toggle(event, currentTarget.checked)}
              />
              <span>
                <code>{event}</code> <small class="quiet">{description.replaceAll('`', '')}</small>
              </span>
            </label>
          ))}
          {create.errorsOf('events').length > 0 && (
            <small class="bad">{create.errorsOf('events').join(' ')}</small>
          )}
        </fieldset>
        <Field
          label="Token"
          name="token"
          placeholder="0x…"
          hint="Empty: any"
          errors={create.errorsOf('subscriptions')}
        />
        <Field label="Account" name="address" placeholder="0x…" hint="Empty: any" />
        <Field
          label="Price above"
          name="price_above"
          inputMode="decimal"
          hint="US dollars, for price.threshold of the token"
        />
        <Field label="Price below" name="price_below" inputMode="decimal" />
      </Form>
      <h3>What is sent</h3>
      {catalogue.error !== undefined && <ErrorNote error={catalogue.error} />}
      {catalogue.data
        ?.filter(({ event }) => chosen.includes(event))
        .map(({ event, payload }) => (
          <details key={event} open={chosen.length === 1}>
            <summary>
              <code>{event}</code>
            </summary>
            <Json value={payload} label={`Example of ${event}`} />
          </details>
        ))}
    </Panel>
  );
}

function bodyOf(form: HTMLFormElement, events: readonly Event[]): CreateWebhookData['body'] {
  const text = fieldsOf(form);
  const subscription = {
    token: asFelt(text('token')) ?? text('token'),
    address: asFelt(text('address')) ?? text('address'),
    price_above: text('price_above'),
    price_below: text('price_below'),
  };
  const isAny = Object.values(subscription).every((one) => one === '');
  return {
    name: text('name'),
    url: text('url'),
    events: [...events],
    ...(isAny ? {} : { subscriptions: [subscription] }),
  };
}

/** A value as indented JSON. */
export function Json({ value, label }: { readonly value: unknown; readonly label: string }): JSX.Element {
  return (
    <pre role="region" aria-label={label} tabIndex={0}>
      {JSON.stringify(value, null, 2)}
    </pre>
  );
}
