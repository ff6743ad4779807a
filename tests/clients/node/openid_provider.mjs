// OpenID provider with one public client and people with any password.
//   node provider.mjs FOLDER REDIRECT_URI
// FOLDER has `node_modules`. Prints its issuer once it listens, and ends with its standard input.

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, redirectUri] = process.argv.slice(2);
const library = pathToFileURL(join(folder, 'node_modules/oidc-provider/lib/index.js'));
const { Provider } = await import(library.href);

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const people = { alice: ['ops', 'dev'], bob: ['sales'] };

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'keyward',
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      redirect_uris: [redirectUri],
      grant_types: ['authorization_code'],
      response_types: ['code'],
    }],
    jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), alg: 'RS256', use: 'sig', kid: 'one' }] },
    cookies: { keys: ['a key of a test'] },
    pkce: { required: () => true },
    // Otherwise claims of scopes are in the answer of the userinfo endpoint alone, which keyward does not ask.
    conformIdTokenClaims: false,
    claims: { openid: ['sub'], profile: ['name'], groups: ['groups'] },
    scopes: ['openid', 'profile', 'groups'],
    ttl: { AuthorizationCode: 60, IdToken: 300, Interaction: 300, Session: 300, Grant: 300, AccessToken: 300 },
    findAccount: (ctx, id) => ({
      accountId: id,
      claims: () => ({ sub: id, name: id, groups: people[id] ?? [] }),
    }),
  });
  server.on('request', provider.callback());
  console.log(issuer);
});

process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
