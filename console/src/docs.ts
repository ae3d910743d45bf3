import 'openapi-explorer';

import './docs.css';
import { adoptSession, currentSession } from './session.ts';

/** The API reference, from the service's own document; a log-in of the console is used to try calls. */
interface Explorer extends HTMLElement {
  setAuthenticationConfiguration(scheme: string, configuration: { token: string }): void;
}

async function showReference(holder: HTMLElement): Promise<void> {
  await adoptSession();
  const explorer = document.createElement('openapi-explorer') as Explorer;
  const settings = {
    'spec-url': '/api/openapi.json',
    'server-url': location.origin,
    'hide-console': 'false',
    'hide-server-selection': 'true',
    'hide-defaults': 'false',
    collapse: 'true',
    'primary-color': '#1f5f99',
    'secondary-color': '#1f5f99',
    'bg-color': '#ffffff',
    'text-color': '#1b2127',
    'nav-bg-color': '#f0f2f4',
    'nav-text-color': '#1b2127',
    'nav-hover-bg-color': '#dfe3e8',
    'nav-hover-text-color': '#1b2127',
  };
  for (const [name, value] of Object.entries(settings)) explorer.setAttribute(name, value);
  const back = document.createElement('a');
  back.slot = 'nav-header';
  back.href = '/';
  back.className = 'back';
  back.textContent = '← Token data';
  explorer.append(back);
  explorer.addEventListener('spec-loaded', () => {
    const session = currentSession();
    if (session === null) return;
    explorer.setAuthenticationConfiguration('Bearer', { token: session.token });
    explorer.setAuthenticationConfiguration('ApiKey', { token: 'session' });
  });
  holder.replaceChildren(explorer);
}

const holder = document.getElementById('docs');
if (holder !== null) void showReference(holder);
