import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { GetApiKeyResponses, ListApiKeysResponses } from 'token-data-service-client';

import { useAction } from '../action.ts';
import type { Action } from '../action.ts';
import { countOf, countText, isoOfInput, localTime, printable } from '../format.ts';
import { fieldsOf } from '../forms.ts';
import { useLoad } from '../loading.ts';
import { DAY_MS, HOUR_MS, SPANS } from '../periods.ts';
import type { SpanDays } from '../periods.ts';
import { Choice, ErrorNote, Field, Form, Loading, Panel, Table } from '../ui/parts.tsx';
import { Plot } from '../ui/plot.tsx';
import { Secret } from '../ui/secret.tsx';
import { useTitle } from '../ui/title.ts';
import { Time } from '../ui/values.tsx';

type Key = ListApiKeysResponses[200][number];

export function Keys(): JSX.Element {
  useTitle('API keys');
  const keys = useLoad(async (api, signal) => await api.listApiKeys({ signal }), []);
  const [chosen, setChosen] = useState<number | null>(null);
  const [edited, setEdited] = useState<number | null>(null);
  const shown = keys.data?.find(({ id }) => id === chosen) ?? keys.data?.[0];
  const changed = keys.data?.find(({ id }) => id === edited);
  return (
    <>
      <h1>API keys</h1>
      <Loading of={keys}>
        {(rows) => (
          <KeyList
            rows={rows}
            shown={shown}
            onChoose={setChosen}
            onEdit={setEdited}
            onDeleted={keys.reload}
          />
        )}
      </Loading>
      {changed !== undefined && (
        <EditKey
          key={changed.id}
          of={changed}
          onDone={() => {
            setEdited(null);
            keys.reload();
          }}
        />
      )}
      {shown !== undefined && <Usage key={shown.id} of={shown} />}
      <CreateKey onCreated={keys.reload} />
    </>
  );
}

function KeyList({
  rows,
  shown,
  onChoose,
  onEdit,
  onDeleted,
}: {
  readonly rows: readonly Key[];
  readonly shown: Key | undefined;
  readonly onChoose: (id: number) => void;
  readonly onEdit: (id: number) => void;
  readonly onDeleted: () => void;
}): JSX.Element {
  const remove = useAction(async (api, withKey, key: Key) => {
    await api.deleteApiKey(withKey({ body: { key_id: key.id } }));
    onDeleted();
  });
  const ask = (key: Key): void => {
    const question = `Delete the key “${printable(key.name)}”? From then on, calls with it are rejected.`;
    if (window.confirm(question)) void remove.run(key);
  };
  return (
    <Panel
      title="Keys"
      aside={
        <span class="quiet" data-figure="count">
          {countText(rows.length)}
        </span>
      }
    >
      {remove.error !== null && <ErrorNote error={remove.error} />}
      <Table
        caption="API keys"
        rows={rows}
        keyOf={({ id }) => String(id)}
        empty="No keys yet."
        isWide
        columns={[
          { title: 'Name', cell: ({ name }) => <bdi>{printable(name)}</bdi> },
          { title: 'Created', cell: ({ created_at }) => <Time at={created_at} /> },
          {
            title: 'Last used',
            cell: ({ last_used_at }) =>
              last_used_at === null ? <span class="quiet">never</span> : <Time at={last_used_at} />,
          },
          {
            title: 'Actions',
            cell: (key) => (
              <span class="actions">
                <button
                  type="button"
                  aria-pressed={key.id === shown?.id}
                  aria-label={`Usage of ${printable(key.name)}`}
                  onClick={() => onChoose(key.id)}
                >
                  Usage
                </button>
                <button
                  type="button"
                  aria-label={`Edit ${printable(key.name)}`}
                  onClick={() => onEdit(key.id)}
                >
                  Edit
                </button>
                <button
                  type="button"
                  disabled={remove.isBusy}
                  aria-label={`Delete ${printable(key.name)}`}
                  onClick={() => ask(key)}
                >
                  Delete
                </button>
              </span>
            ),
          },
        ]}
      />
    </Panel>
  );
}

function Usage({ of }: { readonly of: Key }): JSX.Element {
  const [span, setSpan] = useState<SpanDays>('1');
  const usage = useLoad(
    async (api, signal) => {
      const start = new Date(Date.now() - Number(span) * DAY_MS);
      return await api.getApiKeyUsage({
        path: { id: of.id },
        query: { start_time: start.toISOString() },
        signal,
      });
    },
    [of.id, span],
  );
  return (
    <Panel
      title={`Usage of “${printable(of.name)}”`}
      aside={<Choice label="Time" value={span} options={SPANS} onChange={setSpan} />}
    >
      <Loading of={usage}>
        {({ total_calls, start_time, end_time, data }) => (
          <>
            <p>
              <span data-figure="calls">{countText(total_calls)}</span> {total_calls === 1 ? 'call' : 'calls'}
            </p>
            {total_calls > 0 && (
              <Plot label="Calls an hour" kind="bars" points={hoursOf(start_time, end_time, data)} />
            )}
          </>
        )}
      </Loading>
    </Panel>
  );
}

/** Every hour, also those without a call, which the answer leaves out. */
function hoursOf(
  start: string,
  end: string,
  used: readonly { readonly hour: string; readonly calls: number; readonly successful_calls: number }[],
) {
  const byHour = new Map(used.map((one) => [Date.parse(one.hour), one]));
  const first = Math.floor(Date.parse(start) / HOUR_MS) * HOUR_MS;
  const count = Math.floor((Date.parse(end) - first) / HOUR_MS) + 1;
  return Array.from({ length: count }, (_, i) => {
    const hour = first + i * HOUR_MS;
    const { calls = 0, successful_calls: good = 0 } = byHour.get(hour) ?? {};
    return {
      time: hour / 1000,
      value: calls,
      text: `${countOf(calls, 'call')}, ${countText(good)} successful`,
    };
  });
}

const listOf = (text: string): string[] => text.split(/[\s,]+/).filter((one) => one !== '');

function bodyOf(form: HTMLFormElement) {
  const text = fieldsOf(form);
  const expires = text('expires_at');
  return {
    name: text('name'),
    allowed_origins: listOf(text('allowed_origins')),
    allowed_ips: listOf(text('allowed_ips')),
    rate_limit_per_hour: text('rate_limit_per_hour') === '' ? null : Number(text('rate_limit_per_hour')),
    // What is no time, the service rejects at the field.
    expires_at: expires === '' ? null : (isoOfInput(expires) ?? expires),
  };
}

function EditKey({ of, onDone }: { readonly of: Key; readonly onDone: () => void }): JSX.Element {
  const path = { id: of.id };
  const key = useLoad(async (api, signal) => await api.getApiKey({ path, signal }), [of.id]);
  const change = useAction(async (api, withKey, form: HTMLFormElement) => {
    const { expires_at, ...rest } = bodyOf(form);
    // The field has no seconds: a time that was not touched is not sent.
    const isKept = fieldsOf(form)('expires_at') === inputTime(key.data?.expires_at);
    await api.updateApiKey(withKey({ path, body: { ...rest, ...(isKept ? {} : { expires_at }) } }));
    onDone();
  });
  return (
    <Panel
      title={`Edit “${printable(of.name)}”`}
      aside={
        <button type="button" onClick={onDone}>
          Cancel
        </button>
      }
    >
      <Loading of={key}>
        {(data) => (
          <>
            <p>
              The key begins with <code>{data.prefix}</code>. Changes apply from the next call on; other
              origins or networks end open streams within 15 seconds.
            </p>
            <Form action={change} submit="Save" busy="Saving…">
              <KeyFields of={data} errorsOf={change.errorsOf} />
            </Form>
          </>
        )}
      </Loading>
    </Panel>
  );
}

/** As an input of local time shows it; '' for none. */
const inputTime = (at: string | null | undefined): string =>
  at ? localTime(new Date(at)).slice(0, 16).replace(' ', 'T') : '';

function CreateKey({ onCreated }: { readonly onCreated: () => void }): JSX.Element {
  const [secret, setSecret] = useState<string | null>(null);
  const create = useAction(async (api, withKey, form: HTMLFormElement) => {
    const { key } = await api.createApiKey(withKey({ body: bodyOf(form) }));
    form.reset();
    setSecret(key);
    onCreated();
  });
  return (
    <Panel title="Create a key">
      {secret !== null && <Secret name="API key" value={secret} onDone={() => setSecret(null)} />}
      <Form action={create} submit="Create key" busy="Creating…">
        <KeyFields errorsOf={create.errorsOf} />
      </Form>
    </Panel>
  );
}

/** @param of the key whose values the fields have at first */
function KeyFields({
  of,
  errorsOf,
}: {
  readonly of?: GetApiKeyResponses[200];
  readonly errorsOf: Action<never>['errorsOf'];
}): JSX.Element {
  return (
    <>
      <Field
        label="Name"
        name="name"
        required
        maxLength={100}
        defaultValue={of?.name}
        errors={errorsOf('name')}
      />
      <Field
        label="Allowed origins"
        name="allowed_origins"
        defaultValue={of?.allowed_origins.join(' ')}
        hint="Empty: all. Separate by spaces: https://example.org *.example.org"
        errors={errorsOf('allowed_origins')}
      />
      <Field
        label="Allowed IP addresses"
        name="allowed_ips"
        defaultValue={of?.allowed_ips.join(' ')}
        hint="Empty: all. Addresses or networks: 203.0.113.0/24"
        errors={errorsOf('allowed_ips')}
      />
      <Field
        label="Calls an hour"
        name="rate_limit_per_hour"
        type="number"
        min={1}
        max={2_147_483_647}
        defaultValue={of?.rate_limit_per_hour?.toString()}
        hint="Empty: the limit of the service"
        errors={errorsOf('rate_limit_per_hour')}
      />
      <Field
        label="Expires"
        name="expires_at"
        type="datetime-local"
        defaultValue={inputTime(of?.expires_at)}
        hint="Local time. Empty: never"
        errors={errorsOf('expires_at')}
      />
    </>
  );
}
