import type { JSX } from 'preact';

import { useAction } from '../action.ts';
import { fieldsOf } from '../forms.ts';
import { ErrorNote, Field } from '../ui/parts.tsx';
import { logIn } from '../session.ts';
import { useTitle } from '../ui/title.ts';

export function LogIn(): JSX.Element {
  useTitle('Log in');
  const enter = useAction(async (_api, _withKey, form: HTMLFormElement) => {
    const password = new FormData(form).get('password');
    await logIn(fieldsOf(form)('username'), typeof password === 'string' ? password : '');
  });
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
          void enter.run(event.currentTarget);
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
        {enter.error !== null && <ErrorNote error={enter.error} />}
        <button type="submit" class="main" disabled={enter.isBusy}>
          {enter.isBusy ? 'Logging in…' : 'Log in'}
        </button>
        <p class="quiet">
          The operator creates accounts with <code>npm run tds -- users add NAME</code>. Closing the last tab
          ends the session.
        </p>
      </form>
    </div>
  );
}
