import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type {
  CreateWebhookData,
  ListWebhookEventsResponses,
  ListWebhooksResponses,
} from 'token-data-service-client';

import { useAction } from '../action.ts';
import { countText, printable } from '../format.ts';
import { fieldsOf } from '../forms.ts';
import { useLoad } from '../loading.ts';
import { asFelt } from '../search.ts';
import { ErrorNote, Field, Form, Loading, Panel, Table } from '../ui/parts.tsx';
import { Secret } from '../ui/secret.tsx';
import { useTitle } from '../ui/title.ts';
import { Time } from '../ui/values.tsx';
import { NOTHING_ENTERED, previewOf } from '../webhook-preview.ts';
import type { Entered } from '../webhook-preview.ts';

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
  const [entered, setEntered] = useState(NOTHING_ENTERED);
  const catalogue = useLoad(async (api, signal) => await api.listWebhookEvents({ signal }), []);
  const create = useAction(async (api, withKey, form: HTMLFormElement) => {
    const created = await api.createWebhook(withKey({ body: bodyOf(form, chosen) }));
    form.reset();
    setEntered(NOTHING_ENTERED);
    setSecret(created.secret);
    onCreated();
  });
  const subscribed = (name: keyof Entered) => ({
    name,
    errors: create.errorsOf(`subscriptions.${name}`),
    onInput: (value: string) => setEntered((known) => ({ ...known, [name]: value.trim() })),
  });
  return (
    <Panel title="Create a webhook">
      {secret !== null && <Secret name="Signing secret" value={secret} onDone={() => setSecret(null)} />}
      {catalogue.error !== undefined && <ErrorNote error={catalogue.error} />}
      <div class="columns">
        <Form action={create} submit="Create webhook" busy="Creating…">
          <Field label="Name" name="name" required maxLength={100} errors={create.errorsOf('name')} />
          <Field
            label="URL"
            name="url"
            type="url"
            required
            maxLength={2048}
            placeholder="https://"
            errors={create.errorsOf('url')}
          />
          <Events
            of={catalogue.data ?? []}
            chosen={chosen}
            errors={create.errorsOf('events')}
            onChange={setChosen}
          />
          <Field label="Token" {...subscribed('token')} placeholder="0x…" hint="Empty: any" />
          <Field label="Account" {...subscribed('address')} placeholder="0x…" hint="Empty: any" />
          <Field
            label="Price above"
            {...subscribed('price_above')}
            inputMode="decimal"
            hint="US dollars, for price.threshold of the token"
          />
          <Field label="Price below" {...subscribed('price_below')} inputMode="decimal" />
        </Form>
        <section aria-label="Preview">
          <h3>What is sent, with example values</h3>
          {catalogue.data
            ?.filter(({ event }) => chosen.includes(event))
            .map(({ event, payload }) => (
              <details key={event} open={chosen.length === 1}>
                <summary>
                  <code>{event}</code>
                </summary>
                <Json value={previewOf(payload, entered)} label={`Example of ${event}`} />
              </details>
            ))}
          {chosen.length === 0 && <p class="quiet">Choose at least one event.</p>}
        </section>
      </div>
    </Panel>
  );
}

function Events({
  of,
  chosen,
  errors,
  onChange,
}: {
  readonly of: ListWebhookEventsResponses[200];
  readonly chosen: readonly Event[];
  readonly errors: readonly string[];
  readonly onChange: (chosen: readonly Event[]) => void;
}): JSX.Element {
  return (
    <fieldset>
      <legend>Events</legend>
      {of.map(({ event, description }) => (
        <label key={event} class="check">
          <input
            type="checkbox"
            checked={chosen.includes(event)}
            onChange={({ currentTarget }) =>
              onChange(currentTarget.checked ? [...chosen, event] : chosen.filter((one) => one !== event))
            }
          />
          <span>
            <code>{event}</code> <small class="quiet">{description.replaceAll('`', '')}</small>
          </span>
        </label>
      ))}
      {errors.length > 0 && <small class="bad">{errors.join(' ')}</small>}
    </fieldset>
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
  // One whose fields are all empty is of any token and account; without any, only launches would be sent.
  return { name: text('name'), url: text('url'), events: [...events], subscriptions: [subscription] };
}

/** A value as indented JSON. */
export function Json({ value, label }: { readonly value: unknown; readonly label: string }): JSX.Element {
  return (
    <pre role="region" aria-label={label} tabIndex={0}>
      {JSON.stringify(value, null, 2)}
    </pre>
  );
}
