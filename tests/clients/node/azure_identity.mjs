// Uses the SDK of Azure for JavaScript, as programs on it do, against keyward's identity listener.
//   node azure_identity.mjs FOLDER RESOURCE SECONDS
// FOLDER has `node_modules`. Asks as often as a program without a cache would, and ends with an error at the first token that has expired.
// Prints the number of requests and of different tokens.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const [folder, resource, seconds] = process.argv.slice(2);
const { DefaultAzureCredential, ManagedIdentityCredential } = createRequire(join(folder, 'package.json'))('@azure/identity');

function end(token) {
  return JSON.parse(Buffer.from(token.split('.')[1], 'base64url')).exp;
}

const classes = [ManagedIdentityCredential, DefaultAzureCredential];
const tokens = new Set();
let requests = 0;
const until = Date.now() + Number(seconds) * 1000;
while (Date.now() < until) {
  // A new credential has no token in its cache.
  classes.reverse();
  const { token, expiresOnTimestamp } = await new classes[0]().getToken(`${resource}/.default`);
  const expires = end(token);
  // The SDK counts from its own clock, in whole seconds.
  if (Math.abs(expiresOnTimestamp / 1000 - expires) > 1) throw new Error(`expiresOnTimestamp is ${expiresOnTimestamp}`);
  if (expires * 1000 <= Date.now()) throw new Error(`request ${requests} got a token that has expired`);
  requests += 1;
  tokens.add(token);
  await sleep(100);
}
console.log(requests, tokens.size);
