// A real authorization server for tests: oidc-provider on loopback, everything in memory.
// node server.mjs SETTINGS.json ; prints "ready PORT [TLS_PORT]". GET /hits counts token requests, POST /agree walks a device's user through consent.
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const settings = JSON.parse(fs.readFileSync(process.argv[2]));
const require = createRequire(path.join(settings.modules, 'index.js'));
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

const server = http.createServer();
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: settings.clients,
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true, userCodeInputSource: (ctx, form) => { ctx.body = form; }, userCodeConfirmSource: (ctx, form) => { ctx.body = form; } },
    mTLS: {
      enabled: true, tlsClientAuth: true,
      getCertificate: (ctx) => ctx.req.socket.getPeerX509Certificate?.(),
      certificateAuthorized: (ctx) => ctx.req.socket.authorized === true,
      certificateSubjectMatches: (ctx, property, expected) => `CN=${ctx.req.socket.getPeerCertificate().subject?.CN}` === expected,
    },
  },
  clientAuthMethods: ['client_secret_basic', 'client_secret_post', 'private_key_jwt', 'tls_client_auth', 'none'],
  scopes: ['openid', 'offline_access', 'api:read', 'api:write'],
  ttl: { AccessToken: settings.lifetime, ClientCredentials: settings.lifetime, RefreshToken: 3600, Grant: 3600, Session: 3600, Interaction: 600, IdToken: 300, DeviceCode: 60 },
  rotateRefreshToken: () => true,
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
  findAccount: (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  interactions: { url: (ctx, interaction) => `/agree/${interaction.uid}` },
  pkce: { required: () => true },
  cookies: { keys: ['for-tests'] },
});

let hits = 0;
provider.use(async (ctx, next) => {
  if (ctx.path === '/hits') { ctx.body = { hits }; return; }
  if (ctx.path === '/token') hits += 1;
  if (!ctx.path.startsWith('/agree/')) return next();
  const details = await provider.interactionDetails(ctx.req, ctx.res);
  let result = { login: { accountId: 'alice' } };
  if (details.prompt.name !== 'login') {
    const grant = new provider.Grant({ accountId: 'alice', clientId: details.params.client_id });
    grant.addOIDCScope((details.params.scope || 'openid').replace(settings.withheld || 'nothing', ''));
    if (settings.withheld) grant.rejectOIDCScope(settings.withheld);
    result = { consent: { grantId: await grant.save() } };
  }
  ctx.respond = false;
  await provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission: true });
});
server.on('request', provider.callback());

let secure = '';
if (settings.tls) {
  const tls = https.createServer({ ...settings.tls, requestCert: true, rejectUnauthorized: false }, provider.callback());
  await new Promise((listening) => tls.listen(0, '127.0.0.1', listening));
  secure = ` ${tls.address().port}`;
}
console.log(`ready ${server.address().port}${secure}`);
