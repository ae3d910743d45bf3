import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { ApiError } from 'token-data-service-client';

import type { Action } from '../action.ts';

/** An error; one of the service also with its status, code and request id. */
export function ErrorNote({
  error,
  retry,
}: {
  readonly error: Error;
  readonly retry?: () => void;
}): JSX.Element {
  const details = error instanceof ApiError ? error : null;
  return (
    <div class="error" role="alert">
      <p>{error.message}</p>
      {details !== null && (
        <p class="quiet">
          Status {details.status}, code {details.code}
          {details.requestId === null ? '' : `, request ${details.requestId}`}
        </p>
      )}
      {retry !== undefined && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** What is read, or that it is being read, or why it could not be. */
export function Loading<T>({
  of,
  children,
}: {
  readonly of: { data: T | undefined; error: Error | undefined; isLoading: boolean; reload: () => void };
  readonly children: (data: T) => ComponentChildren;
}): JSX.Element {
  return (
    <>
      {of.error !== undefined && <ErrorNote error={of.error} retry={of.reload} />}
      {of.data !== undefined && children(of.data)}
      {of.data === undefined && of.error === undefined && (
        <p class="quiet loading" role="status">
          Loading…
        </p>
      )}
    </>
  );
}

/** A part of a screen under its heading. */
export function Panel({
  title,
  aside,
  children,
}: {
  readonly title: string;
  readonly aside?: ComponentChildren;
  readonly children: ComponentChildren;
}): JSX.Element {
  const id = useId();
  return (
    <section class="panel" aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  /** Right-aligned, of digits of one width. */
  readonly isNumber?: boolean;
}

/** Tables of more columns are too wide for a narrow screen. */
const MAX_COLUMNS = 4;

/** A table; on a narrow screen each row of a wide one is a block of named values instead. */
export function Table<T>({
  caption,
  columns,
  rows,
  keyOf,
  empty = 'Nothing here.',
  look = '',
  isWide = columns.length > MAX_COLUMNS,
}: {
  readonly caption: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  readonly empty?: string;
  /** Class of the table. */
  readonly look?: string;
  readonly isWide?: boolean;
}): JSX.Element {
  const classOf = ({ isNumber }: Column<T>): string => (isNumber ? 'number' : '');
  if (rows.length === 0) return <p class="quiet empty">{empty}</p>;
  return (
    // A region that scrolls must be reachable with the keyboard.
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table class={`${look} ${isWide ? 'wide' : ''}`.trim()}>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" class={classOf(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) => (
                <td key={column.title} class={classOf(column)} data-title={column.title}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The end of an endless list: reads on when it is scrolled into view, or by its button. */
export function More({
  list,
}: {
  readonly list: {
    readonly data: { readonly next: string | null } | undefined;
    readonly isLoading: boolean;
    readonly more: () => void;
  };
}): JSX.Element | null {
  const end = useRef<HTMLDivElement>(null);
  const { more } = list;
  const latest = useRef(more);
  latest.current = more;
  useEffect(() => {
    const { current } = end;
    if (current === null) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some(({ isIntersecting }) => isIntersecting)) latest.current();
      },
      { rootMargin: '200px' },
    );
    observer.observe(current);
    return () => observer.disconnect();
    // Observed anew after each page, as the end may still be in view, and not after one that failed.
  }, [list.data?.next]);
  if (list.data === undefined || list.data.next === null) return null;
  return (
    <div class="more" ref={end}>
      <button type="button" disabled={list.isLoading} onClick={more}>
        {list.isLoading ? 'Loading…' : 'More'}
      </button>
    </div>
  );
}

/** Fields with the button that does something with them, and why it could not be done. */
export function Form({
  action: { run, isBusy, error },
  submit,
  busy,
  children,
}: {
  readonly action: Pick<Action<[HTMLFormElement]>, 'run' | 'isBusy' | 'error'>;
  /** Texts of the button. */
  readonly submit: string;
  readonly busy: string;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void run(event.currentTarget);
      }}
    >
      {children}
      {error !== null && <ErrorNote error={error} />}
      <button type="submit" class="main" disabled={isBusy}>
        {isBusy ? busy : submit}
      </button>
    </form>
  );
}

interface FieldProps {
  readonly label: string;
  readonly hint?: string;
  readonly errors?: readonly string[];
  readonly name?: string;
  readonly type?: 'text' | 'password' | 'url' | 'number' | 'datetime-local';
  readonly value?: string;
  /** At first, and after a reset. */
  readonly defaultValue?: string | undefined;
  readonly placeholder?: string;
  readonly required?: boolean;
  readonly maxLength?: number;
  readonly min?: number;
  readonly max?: number;
  readonly autocomplete?: 'username' | 'current-password';
  readonly inputMode?: 'decimal';
  readonly onInput?: (value: string) => void;
}

/** With years of four digits, as the service reads them. */
const LAST_TIME = '9999-12-31T23:59';

/** A labelled input; `errors` are those of the service for it. */
export function Field({
  label,
  hint,
  errors = [],
  type = 'text',
  onInput,
  ...input
}: FieldProps): JSX.Element {
  const id = useId();
  const isInvalid = errors.length > 0;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        {...(type === 'datetime-local' ? { max: LAST_TIME } : {})}
        {...input}
        // The types of inputs differ in the roles they may have, of which none is given.
        type={type as 'text'}
        id={id}
        onInput={({ currentTarget }) => onInput?.(currentTarget.value)}
        aria-invalid={isInvalid}
        {...(hint === undefined && !isInvalid ? {} : { 'aria-describedby': `${id}-hint` })}
      />
      {(hint !== undefined || isInvalid) && (
        <small id={`${id}-hint`} class={isInvalid ? 'bad' : 'quiet'}>
          {isInvalid ? errors.join(' ') : hint}
        </small>
      )}
    </div>
  );
}

export function Choice<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  readonly label: string;
  readonly value: T;
  readonly options: readonly (readonly [value: T, text: string])[];
  readonly onChange: (value: T) => void;
}): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select
        id={id}
        value={value}
        onChange={({ currentTarget }) => {
          const chosen = options.find(([one]) => one === currentTarget.value);
          if (chosen !== undefined) onChange(chosen[0]);
        }}
      >
        {options.map(([one, text]) => (
          <option key={one} value={one}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

/** A figure with its name. */
export function Figure({
  name,
  children,
  ...rest
}: {
  readonly name: string;
  readonly children: ComponentChildren;
  readonly 'data-figure'?: string;
}): JSX.Element {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd {...rest}>{children}</dd>
    </div>
  );
}

/** Links between the views of a screen. */
export function Views({
  label,
  current,
  views,
}: {
  readonly label: string;
  readonly current: string;
  readonly views: readonly (readonly [href: string, name: string, text: string])[];
}): JSX.Element {
  return (
    <nav class="views" aria-label={label}>
      {views.map(([href, name, text]) => (
        <a key={name} href={href} aria-current={name === current ? 'page' : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}
