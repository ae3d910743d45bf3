/**
 * `node summary.mjs COMMAND REPORT STATUS …`: for each command its JSON report (as vitest writes it) and its exit code.
 * Prints what failed and ends with `N passed, N failed` over all of them. Exit code 0 only if every command ran tests
 * and none failed.
 */
import { readFileSync } from 'node:fs';

/** @returns {{ tests: any[], brokenFiles: string[] } | null} null: there is no report that can be read */
function readReport(file) {
  try {
    const { testResults } = JSON.parse(readFileSync(file, 'utf8'));
    const tests = testResults.flatMap((result) => result.assertionResults);
    // A file that could not be loaded is reported as failed, without a failed test.
    const broken = testResults.filter(
      ({ status, assertionResults }) =>
        status === 'failed' && assertionResults.every((test) => test.status !== 'failed'),
    );
    return { tests, brokenFiles: broken.map(({ name, message }) => `${name}: ${message}`) };
  } catch {
    return null;
  }
}

/** Counts one command's tests and lists what is wrong with its run. */
function summarize(command, file, exitCode) {
  const problems = exitCode === '0' ? [] : [`${command} exited with code ${exitCode}`];
  const report = readReport(file);
  if (report === null)
    return { passed: 0, failed: 0, problems: [...problems, `${command} wrote no test report`] };

  const failures = report.tests.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName);
  const passed = report.tests.filter(({ status }) => status === 'passed').length;
  const failed = failures.length + report.brokenFiles.length;
  problems.push(...[...failures, ...report.brokenFiles].map((name) => `failed: ${name}`));
  for (const { status, fullName, meta } of report.tests) {
    if (status === 'passed' || status === 'failed') continue;
    const reason = meta?.skipReason ?? /SKIPPED: (\S.*)/.exec(fullName)?.[1];
    if (reason === undefined) problems.push(`${status} without a reason: ${fullName}`);
    else process.stdout.write(`${status}: ${fullName} (${reason})\n`);
  }
  if (passed + failed === 0) problems.push(`${command} ran no test`);
  return { passed, failed, problems };
}

const args = process.argv.slice(2);
const runs = [];
for (let i = 0; i < args.length; i += 3) runs.push(summarize(args[i], args[i + 1], args[i + 2] ?? '1'));

const problems = runs.length === 0 ? ['no report was given'] : runs.flatMap((run) => run.problems);
const sum = (name) => runs.reduce((total, run) => total + run[name], 0);
for (const problem of problems) process.stdout.write(`${problem}\n`);
process.stdout.write(`${sum('passed')} passed, ${sum('failed')} failed\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
