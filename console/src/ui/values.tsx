import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatAmount } from 'token-data-service-client';

import { shownImage } from '../images.ts';

import {
  amountText,
  countText,
  localTime,
  numberText,
  printable,
  shortAmount,
  shortHex,
  shortUsd,
  usdText,
  utcTime,
} from '../format.ts';

/** A text that shows its exact value on hover and copies it on click. */
export function Copyable({
  full,
  copied = full,
  children,
}: {
  readonly full: string;
  readonly copied?: string;
  readonly children: ComponentChildren;
}): JSX.Element {
  const [isDone, setDone] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async (): Promise<void> => {
    await copyText(copied);
    setDone(true);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setDone(false), 1200);
  };
  return (
    <button type="button" class="copy" title={`${full} – click to copy`} onClick={() => void copy()}>
      {children}
      <span class="copied" aria-live="polite">
        {isDone ? 'copied' : ''}
      </span>
    </button>
  );
}

/** Outside of a secure context (plain HTTP to another machine) there is no clipboard API. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text).catch(() => {});
    return;
  }
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

export function Amount({
  value,
  decimals,
}: {
  readonly value: string | bigint;
  readonly decimals: number;
}): JSX.Element {
  const amount = BigInt(value);
  return (
    <Copyable full={amountText(amount, decimals)} copied={formatAmount(amount, decimals)}>
      {shortAmount(amount, decimals)}
    </Copyable>
  );
}

export function Usd({ value }: { readonly value: number | string | null | undefined }): JSX.Element {
  if (value === null || value === undefined) return <span class="quiet">–</span>;
  const exact = typeof value === 'number' ? numberText(value) : value;
  return (
    <Copyable full={usdText(value)} copied={exact}>
      {shortUsd(Number(value))}
    </Copyable>
  );
}

export function Count({
  value,
  isEstimate = false,
}: {
  readonly value: number;
  readonly isEstimate?: boolean | undefined;
}): JSX.Element {
  return (
    <span title={isEstimate ? 'An estimate' : 'Exact'}>
      {isEstimate ? '≈ ' : ''}
      {countText(value)}
    </span>
  );
}

/** Local time; UTC on hover. */
export function Time({ at }: { readonly at: string }): JSX.Element {
  const time = new Date(at);
  return (
    <time dateTime={at} title={utcTime(time)}>
      {localTime(time)}
    </time>
  );
}

/** An address or hash, linked to its screen, with a button that copies it whole. */
export function Hex({
  value,
  to,
}: {
  readonly value: string;
  readonly to: 'account' | 'token' | 'tx';
}): JSX.Element {
  return (
    <span class="hex">
      <a href={`/${to}/${value}`} title={value}>
        {shortHex(value)}
      </a>
      <CopyMark text={value} />
    </span>
  );
}

export function CopyMark({ text }: { readonly text: string }): JSX.Element {
  return (
    <Copyable full={text}>
      <svg class="mark" viewBox="0 0 12 12" aria-hidden="true">
        <path d="M4 1h7v7h-2M1 4h7v7h-7z" />
      </svg>
      <span class="hidden">Copy {text}</span>
    </Copyable>
  );
}

/** The logo of a token, or its first letters on a colour of its own where the content policy allows no such image. */
export function Logo({
  url,
  address,
  symbol,
}: {
  readonly url: string | null;
  readonly address: string;
  readonly symbol: string | null;
}): JSX.Element {
  const image = shownImage(url);
  if (image !== null)
    return (
      <img
        class="logo"
        src={image}
        alt=""
        loading="lazy"
        referrerpolicy="no-referrer"
        width={20}
        height={20}
      />
    );
  const letters = Array.from(printable(symbol ?? ''))
    .slice(0, 2)
    .join('');
  return (
    <svg class="logo" viewBox="0 0 20 20" width={20} height={20} aria-hidden="true">
      <circle cx={10} cy={10} r={10} fill={`hsl(${BigInt(address) % 360n} 45% 38%)`} />
      <text x={10} y={13.5} text-anchor="middle">
        {letters === '' ? '?' : letters}
      </text>
    </svg>
  );
}

/** A name or symbol of a token: written by anybody, so it is shown as text apart from what is around it. */
export function TokenName({
  address,
  symbol,
}: {
  readonly address: string;
  readonly symbol: string | null | undefined;
}): JSX.Element {
  const text = printable(symbol ?? '');
  return (
    <a href={`/token/${address}`} title={address} class="token">
      <bdi>{text === '' ? shortHex(address) : text}</bdi>
    </a>
  );
}

const FINALITY: Readonly<Record<string, readonly [short: string, long: string, meaning: string]>> = {
  ACCEPTED_ON_L1: ['L1', 'accepted on L1', 'Accepted on L1: final'],
  ACCEPTED_ON_L2: ['L2', 'accepted on L2', 'Accepted on L2: a reorg can still revert it'],
};

export function Finality({
  status,
  isLong = false,
}: {
  readonly status: string;
  readonly isLong?: boolean;
}): JSX.Element {
  const [short, long, meaning] = FINALITY[status] ?? [status, status, status];
  return (
    <span class={status === 'ACCEPTED_ON_L1' ? 'tag good' : 'tag'} title={meaning}>
      {isLong ? long : short}
    </span>
  );
}
