import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import axe from 'axe-core';
import { chromium } from 'playwright-core';
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import { z } from 'zod';

/** Debian's Chromium; `node infra/setup/setup.mjs --tests` installs it. */
export const CHROMIUM = '/usr/bin/chromium';
export const WIDTHS = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } } as const;

/** A page of a real browser, whose mistakes are collected. */
export interface Browsing {
  readonly page: Page;
  /** What no page may do since it was opened: requests to another host, violations of the content policy, errors. */
  problems(): Promise<string[]>;
  /** Checks a screen at both widths, and takes a picture of each in both color schemes. */
  check(name: string): Promise<void>;
  close(): Promise<void>;
}

const seriousFindings = z.object({
  violations: z.array(
    z.object({
      id: z.string(),
      impact: z.string().nullable(),
      nodes: z.array(z.object({ html: z.string() })),
    }),
  ),
});

/** Set by every text of the corpus that would run as a script. */
const RAN = `window.ran`;
const RECORD_VIOLATIONS = `
  window.violations = JSON.parse(sessionStorage.getItem('violations') ?? '[]');
  addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) => {
    window.violations.push(violatedDirective + ' ' + blockedURI);
    sessionStorage.setItem('violations', JSON.stringify(window.violations));
  });`;

/** Tables, and cells of the API reference's table of authentication, that are too narrow for what they hold. */
const TOO_NARROW = `
  [document, document.querySelector('openapi-explorer')?.shadowRoot]
    .flatMap((root) => [...(root?.querySelectorAll('.scroll:not(.drawing), #auth td') ?? [])])
    .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
    .map((one) => one.getAttribute('aria-label') ?? one.textContent)`;

/** Buttons of the API reference fade from one color scheme to the other; between them they lack contrast. */
const END_OF_TRANSITIONS = `(async () => {
  const roots = [document];
  for (const root of roots)
    for (const { shadowRoot } of root.querySelectorAll('*')) if (shadowRoot !== null) roots.push(shadowRoot);
  const transitions = roots.flatMap((root) => root.getAnimations()).filter((one) => one instanceof CSSTransition);
  await Promise.allSettled(transitions.map(({ finished }) => finished));
})()`;

/** @param folder of the pictures */
export async function browse(base: string, folder: string): Promise<Browsing> {
  mkdirSync(folder, { recursive: true });
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  const context = await browser.newContext({ viewport: WIDTHS.wide, baseURL: base, acceptDownloads: true });
  context.setDefaultTimeout(30_000);
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: base });
  await context.addInitScript(RECORD_VIOLATIONS);
  const page = await context.newPage();
  const seen: string[] = [];
  context.on('request', (request) => {
    const { protocol, hostname } = new URL(request.url());
    const isOwn = ['data:', 'blob:'].includes(protocol) || hostname === new URL(base).hostname;
    if (!isOwn) seen.push(`request to ${request.url()}`);
  });
  page.on('pageerror', (error) => seen.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => {
    // Questions of the console itself are answered by the test.
    if (dialog.type() === 'confirm') return;
    seen.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return {
    page,
    async problems() {
      const violations = z.array(z.string()).parse(await page.evaluate('window.violations'));
      const hasRun = (await page.evaluate(RAN)) === undefined ? [] : ['a text of the corpus ran'];
      return [...seen, ...violations.map((one) => `content policy: ${one}`), ...hasRun];
    },
    async check(name) {
      for (const [width, size] of Object.entries(WIDTHS)) {
        await page.setViewportSize(size);
        for (const colorScheme of ['dark', 'light'] as const) {
          await page.emulateMedia({ colorScheme });
          await page.evaluate('scrollTo(0, 0)');
          await page.screenshot({ path: join(folder, `${name}-${width}-${colorScheme}.png`) });
          await page.evaluate(END_OF_TRANSITIONS);
          expect(await findings(page, colorScheme), `${name}, ${width}, ${colorScheme}`).toEqual([]);
        }
        const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
        expect(overflow, `${name}, ${width}: wider than the window`).toBe(0);
        expect(await page.evaluate(TOO_NARROW), `${name}, ${width}: tables too narrow`).toEqual([]);
      }
      await page.setViewportSize(WIDTHS.wide);
    },
    async close() {
      await browser.close();
    },
  };
}

/**
 * What makes a page hard to use for some people: the serious findings of axe-core, which takes a second for all of its rules. In
 * dark, only the one that depends on colors.
 */
async function findings(page: Page, colorScheme: 'dark' | 'light'): Promise<string[]> {
  const runOnly = colorScheme === 'dark' ? ", runOnly: ['color-contrast']" : '';
  await page.evaluate(axe.source);
  const { violations } = seriousFindings.parse(
    await page.evaluate(`axe.run({ resultTypes: ["violations"]${runOnly} })`),
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(' | ')}`);
}
