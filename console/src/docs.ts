import 'openapi-explorer';

import { withSamples } from './code-samples.ts';
import './docs.css';
import { adoptSession, currentSession } from './session.ts';

/** The API reference, from the service's own document; a log-in of the console is used to try calls. */
interface Explorer extends HTMLElement {
  loadSpec(document: object): Promise<void>;
  setAuthenticationConfiguration(scheme: string, configuration: { token: string }): void;
}

const LIGHT = {
  'primary-color': '#1f5f99',
  'secondary-color': '#1f5f99',
  'bg-color': '#ffffff',
  'text-color': '#1b2127',
  'nav-bg-color': '#f0f2f4',
  'nav-text-color': '#1b2127',
  'nav-hover-bg-color': '#dfe3e8',
  'nav-hover-text-color': '#1b2127',
};
const DARK = {
  'primary-color': '#6fb1ec',
  'secondary-color': '#6fb1ec',
  'bg-color': '#14171a',
  'text-color': '#dfe3e7',
  'nav-bg-color': '#1b1f23',
  'nav-text-color': '#dfe3e7',
  'nav-hover-bg-color': '#2c3238',
  'nav-hover-text-color': '#dfe3e7',
};
/** Within the explorer, whose tables are wider than a narrow screen. */
const NARROW = `@media (max-width: 600px) {
  #auth table, #auth tbody, #auth tr, #auth td { display: block; width: 100%; box-sizing: border-box; }
}`;

async function showReference(holder: HTMLElement): Promise<void> {
  await adoptSession();
  const explorer = document.createElement('openapi-explorer') as Explorer;
  const settings = {
    'server-url': location.origin,
    'hide-console': 'false',
    'hide-server-selection': 'true',
    'hide-defaults': 'false',
    collapse: 'true',
    // The recorded answer first, then the model.
    'default-schema-tab': 'body',
  };
  for (const [name, value] of Object.entries(settings)) explorer.setAttribute(name, value);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const setColors = (): void => {
    for (const [name, value] of Object.entries(dark.matches ? DARK : LIGHT))
      explorer.setAttribute(name, value);
  };
  setColors();
  dark.addEventListener('change', setColors);
  const back = document.createElement('a');
  back.slot = 'nav-header';
  back.href = '/';
  back.className = 'back';
  back.textContent = '← Token data';
  explorer.append(back);
  explorer.addEventListener('spec-loaded', () => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(NARROW);
    explorer.shadowRoot?.adoptedStyleSheets.push(sheet);
    const session = currentSession();
    if (session === null) return;
    explorer.setAuthenticationConfiguration('Bearer', { token: session.token });
    explorer.setAuthenticationConfiguration('ApiKey', { token: 'session' });
  });
  holder.replaceChildren(explorer);
  const reference = (await (await fetch('/api/openapi.json')).json()) as Parameters<typeof withSamples>[0];
  await explorer.loadSpec(withSamples(reference, location.origin));
}

const holder = document.getElementById('docs');
if (holder !== null) void showReference(holder);
