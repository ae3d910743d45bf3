import { createRequire } from 'node:module';

import { AppError } from '../../schemas/errors.ts';

const require = createRequire(import.meta.url);

/**
 * Path of a file in an optional dependency.
 *
 * @throws AppError naming the setting that replaces the embedded part, if the package is not installed
 */
export function resolveOptional(file: string, part: string, setting: string): string {
  try {
    return require.resolve(file);
  } catch (cause) {
    const name = file.split('/', 1)[0];
    throw new AppError(
      'CONFIG_INVALID',
      `Embedded ${part} needs the optional npm package ${name}, which is not installed: set ${setting}, or install it with \`npm ci\``,
      { cause },
    );
  }
}
