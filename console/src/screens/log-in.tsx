import type { JSX } from 'preact';
import { useState } from 'preact/hooks';

import { fieldsOf } from '../forms.ts';
import { ErrorNote, Field } from '../ui/parts.tsx';
import { logIn } from '../session.ts';
import { useTitle } from '../ui/title.ts';

export function LogIn(): JSX.Element {
  useTitle('Log in');
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (form: HTMLFormElement): Promise<void> => {
    const password = new FormData(form).get('password');
    setBusy(true);
    setError(null);
    try {
      await logIn(fieldsOf(form)('username'), typeof password === 'string' ? password : '');
    } catch (failure) {
      setError(failure as Error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="log-in">
      <h1>Log in</h1>
      <p class="quiet">
        Token transfers, balances, prices and NFTs on Starknet, with API keys, webhooks and the state of the
        service.
      </p>
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        <Field
          label="User name or e-mail address"
          name="username"
          autocomplete="username"
          required
          maxLength={254}
        />
        <Field
          label="Password"
          name="password"
          type="password"
          autocomplete="current-password"
          required
          maxLength={1024}
        />
        {error !== null && <ErrorNote error={error} />}
        <button type="submit" class="main" disabled={isBusy}>
          {isBusy ? 'Logging in…' : 'Log in'}
        </button>
        <p class="quiet">
          The operator creates accounts with <code>npm run tds -- users add NAME</code>. Closing the last tab
          ends the session.
        </p>
      </form>
    </div>
  );
}
