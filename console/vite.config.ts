import { defaultClientConditions, defineConfig } from 'vite';

/** The service that `npm run dev -w console` calls: `npm start` with its defaults. */
const SERVICE = 'http://127.0.0.1:8080';

export default defineConfig({
  root: import.meta.dirname,
  // The client's sources, so that it need not be built.
  resolve: { conditions: ['source', ...defaultClientConditions] },
  server: { proxy: { '/api': SERVICE } },
  build: {
    target: 'es2022',
    // Content as a data: URL would need a wider content policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: { input: ['index.html', 'docs.html'] },
    chunkSizeWarningLimit: 1000,
    reportCompressedSize: false,
  },
});
