/** `node summary.mjs REPORT STATUS`: judges a run by vitest's JSON report and the exit code of `npm test`. */
import { readFileSync } from 'node:fs';

const [, , file = '', npmStatus = '1'] = process.argv;

/** @returns {{ tests: any[], brokenFiles: string[] } | null} */
function readReport() {
  try {
    const { testResults } = JSON.parse(readFileSync(file, 'utf8'));
    const tests = testResults.flatMap((result) => result.assertionResults);
    // A file that could not be loaded has no tests to fail.
    const broken = testResults.filter(
      ({ status, assertionResults }) =>
        status === 'failed' && assertionResults.every((test) => test.status !== 'failed'),
    );
    return { tests, brokenFiles: broken.map(({ name, message }) => `${name}: ${message}`) };
  } catch {
    return null;
  }
}

const problems = [];
if (npmStatus !== '0') problems.push(`npm test ended with code ${npmStatus}`);

const report = readReport();
let passed = 0;
let failed = 0;
if (report === null) {
  problems.push('there is no test report: the tests were not reached');
} else {
  passed = report.tests.filter(({ status }) => status === 'passed').length;
  const failures = report.tests.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName);
  failed = failures.length + report.brokenFiles.length;
  problems.push(...[...failures, ...report.brokenFiles].map((name) => `failed: ${name}`));
  for (const { status, fullName, meta } of report.tests) {
    if (status === 'passed' || status === 'failed') continue;
    const reason = meta?.skipReason ?? /SKIPPED: (\S.*)/.exec(fullName)?.[1];
    if (reason === undefined) problems.push(`${status} without a reason: ${fullName}`);
    else process.stdout.write(`${status}: ${fullName} (${reason})\n`);
  }
  if (passed + failed === 0) problems.push('no test ran');
}

for (const problem of problems) process.stdout.write(`${problem}\n`);
process.stdout.write(`${passed} passed, ${failed} failed\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
