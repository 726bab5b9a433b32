// Runs the list of operations with a JavaScript client, and prints a line for each: its name, a tab, and its result.
//
//     NODE_PATH=.../node_modules node drive.js memcached|memjs HOST PORT
//
// `scripts/clients/run.py` has the list and the form of the lines. An adapter gives each client the same methods. The methods that it
// lacks are operations that the client does not offer. If the first operation fails, the rest is not run.

'use strict';
const { randomBytes } = require('crypto');
const { isDeepStrictEqual } = require('util');

const TIMEOUT_MS = 20000;
const OVER_1_MB = 2000000;

// `memcached` ends a call with false where the server has refused it, and with undefined where a key is not there.
function memcached(host, port) {
  const Client = require('memcached');
  // `maxValue` is a limit of the client. Here the server has to refuse. After an error of the server, the client sends nothing for `retry`.
  const client = new Client(`${host}:${port}`, { timeout: TIMEOUT_MS, maxValue: 64 << 20, retry: 100 });
  const call = (method, ...args) => new Promise((resolve, reject) => {
    client[method](...args, (error, result) => (error ? reject(error) : resolve(result)));
  });
  return {
    protocol: 'text',
    types: [7, 'text', [1, { two: 2.5 }], Buffer.from([0, 255, 13, 10])],
    set: (key, value, expire = 0) => call('set', key, value, expire),
    get: (key) => call('get', key),
    add: (key, value) => stored(call('add', key, value, 0)),
    replace: (key, value) => stored(call('replace', key, value, 0)),
    append: (key, value) => call('append', key, value),
    prepend: (key, value) => call('prepend', key, value),
    gets: async (key) => { const found = await call('gets', key); return [found[key], found.cas]; },
    cas: (key, value, token) => stored(call('cas', key, value, token, 0)),
    incr: (key, by) => call('incr', key, by),
    decr: (key, by) => call('decr', key, by),
    delete: (key) => call('del', key),
    touch: (key, expire) => call('touch', key, expire),
    getMany: (keys) => call('getMulti', keys),
    stats: async () => (await call('stats'))[0],
    version: async () => (await call('version'))[0].version,
    flushAll: async () => (await call('flush'))[0],
    recover: () => sleep(500),
  };
}

// An error that says that nothing was stored is an answer here.
async function stored(promise) {
  try {
    return await promise;
  } catch (error) {
    if (/not ?stored|exists/i.test(error.message)) return false;
    throw error;
  }
}

function memjs(host, port) {
  const client = require('memjs').Client.create(`${host}:${port}`, { timeout: TIMEOUT_MS / 1000, logger: { log() {} } });
  const text = async (promise) => { const { value } = await promise; return value === null ? undefined : value.toString(); };
  const count = async (promise) => (await promise).value;
  return {
    protocol: 'binary',
    set: (key, value, expires = 0) => client.set(key, value, { expires }),
    get: (key) => text(client.get(key)),
    add: (key, value) => client.add(key, value, {}),
    replace: (key, value) => client.replace(key, value, {}),
    append: (key, value) => client.append(key, value),
    prepend: (key, value) => client.prepend(key, value),
    incr: (key, by) => count(client.increment(key, by, {})),
    decr: (key, by) => count(client.decrement(key, by, {})),
    delete: (key) => client.delete(key),
    touch: (key, expires) => client.touch(key, expires),
    stats: () => new Promise((resolve, reject) => client.stats((error, _, stats) => (error ? reject(error) : resolve(stats)))),
    flushAll: () => new Promise((resolve, reject) => client.flush((error, results) => (error ? reject(error) : resolve(Object.values(results)[0])))),
  };
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const hex = (length) => randomBytes(length / 2).toString('hex');

function short(value) {
  const text = String(JSON.stringify(value));
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}

function expect(found, wanted) {
  if (!isDeepStrictEqual(found, wanted)) throw new Error(`returned ${short(found)}, expected ${short(wanted)}`);
}

// Checks that a call stores nothing. Some clients raise an error then, others return false.
async function refused(promise) {
  let result = false;
  try { result = await promise; } catch (error) { /* That is a refusal. */ }
  expect(result, false);
}

function operations(client) {
  const two = async (number) => {
    for (let step = 0; step < 200; step++) {
      expect(await client.set(`task${number}-${step}`, `${number}:${step}`), true);
      expect(await client.get(`task${number}-${step}`), `${number}:${step}`);
    }
  };
  // The name, the methods that it needs, and the function.
  return [
    ['set', [], async () => expect(await client.set('key', 'value'), true)],
    ['get', [], async () => expect(await client.get('key'), 'value')],
    ['get missing', [], async () => expect(await client.get('missing'), undefined)],
    ['types', ['types'], async () => {
      for (const value of client.types) {
        expect(await client.set('typed', value), true);
        expect(await client.get('typed'), value);
      }
    }],
    ['add', ['add'], async () => {
      expect(await client.add('added', 'one'), true);
      expect(await client.get('added'), 'one');
    }],
    ['add existing', ['add'], async () => {
      expect(await client.add('added', 'two'), false);
      expect(await client.get('added'), 'one');
    }],
    ['replace', ['replace'], async () => {
      expect(await client.replace('added', 'three'), true);
      expect(await client.get('added'), 'three');
      await refused(client.replace('missing', 'three'));
      expect(await client.get('missing'), undefined);
    }],
    ['append', ['append'], async () => {
      expect(await client.set('joined', 'b'), true);
      expect(await client.append('joined', 'c'), true);
      expect(await client.get('joined'), 'bc');
    }],
    ['prepend', ['prepend'], async () => {
      expect(await client.prepend('joined', 'a'), true);
      expect(await client.get('joined'), 'abc');
    }],
    ['cas', ['gets', 'cas'], async () => {
      expect(await client.set('swapped', 'one'), true);
      const [value, token] = await client.gets('swapped');
      expect(value, 'one');
      expect(await client.cas('swapped', 'two', token), true);
      expect(await client.get('swapped'), 'two');
    }],
    ['cas conflict', ['gets', 'cas'], async () => {
      const [, token] = await client.gets('swapped');
      expect(await client.set('swapped', 'three'), true);
      expect(await client.cas('swapped', 'four', token), false);
      expect(await client.get('swapped'), 'three');
    }],
    ['incr', ['incr'], async () => {
      expect(await client.set('count', '10'), true);
      expect(await client.incr('count', 5), 15);
    }],
    ['decr', ['decr'], async () => {
      expect(await client.decr('count', 6), 9);
      // memcached keeps the length of the number, with a space in the place of a digit.
      expect((await client.get('count')).trim(), '9');
    }],
    ['delete', ['delete'], async () => {
      expect(await client.delete('key'), true);
      expect(await client.get('key'), undefined);
    }],
    ['delete missing', ['delete'], async () => expect(await client.delete('key'), false)],
    ['many keys', ['getMany'], async () => {
      const items = {};
      for (let number = 0; number < 100; number++) {
        items[`many${number}`] = `value${number}`;
        expect(await client.set(`many${number}`, `value${number}`), true);
      }
      expect(await client.getMany([...Object.keys(items), 'missing']), items);
    }],
    ['touch', ['touch'], async () => {
      expect(await client.set('touched', 'value', 100), true);
      expect(await client.touch('touched', 1), true);
      expect(await client.get('touched'), 'value');
      await sleep(2500);
      expect(await client.get('touched'), undefined);
      expect(await client.touch('touched', 1), false);
    }],
    ['gat', ['gat'], async () => {
      expect(await client.set('gotten', 'value', 100), true);
      expect(await client.gat('gotten', 1), 'value');
      await sleep(2500);
      expect(await client.get('gotten'), undefined);
    }],
    ['expiry', [], async () => {
      expect(await client.set('short', 'value', 1), true);
      expect(await client.set('long', 'value', 100), true);
      await sleep(2500);
      expect(await client.get('short'), undefined);
      expect(await client.get('long'), 'value');
    }],
    ['900 KB', [], async () => {
      const value = hex(900000);
      expect(await client.set('large', value), true);
      expect(await client.get('large'), value);
    }],
    ['over 1 MB', [], async () => {
      await refused(client.set('over', hex(OVER_1_MB)));
      if (client.recover) await client.recover();
    }],
    ['after over 1 MB', [], async () => {
      expect(await client.set('after', 'value'), true);
      expect(await client.get('after'), 'value');
      expect(await client.get('over'), undefined);
    }],
    ['key of 250 bytes', [], async () => {
      const key = 'k'.repeat(250);
      expect(await client.set(key, 'value'), true);
      expect(await client.get(key), 'value');
    }],
    ['stats', ['stats'], async () => {
      const stats = await client.stats();
      if (!(Number(stats.curr_items) >= 1 && Number(stats.pid) >= 1)) throw new Error(`curr_items ${stats.curr_items}, pid ${stats.pid}`);
    }],
    ['version', ['version'], async () => {
      const version = await client.version();
      if (!/^[0-9]/.test(version)) throw new Error(`returned ${short(version)}`);
    }],
    ['1000 in a row', [], async () => {
      for (let step = 0; step < 1000; step++) {
        expect(await client.set(`row${step}`, `value${step}`), true);
        expect(await client.get(`row${step}`), `value${step}`);
      }
    }],
    ['two at once', [], async () => Promise.all([two(1), two(2)])],
    ['flush_all', ['flushAll'], async () => {
      expect(await client.set('flushed', 'value'), true);
      expect(await client.flushAll(), true);
      expect(await client.get('flushed'), undefined);
      expect(await client.set('flushed', 'again'), true);
      expect(await client.get('flushed'), 'again');
    }],
  ];
}

async function main() {
  const [name, host, port] = process.argv.slice(2);
  const client = { memcached, memjs }[name](host, port);
  console.log(`client\t${require(`${name}/package.json`).version}\t${client.protocol}`);
  for (const [operation, methods, run] of operations(client)) {
    let result = 'ok';
    if (methods.some((method) => client[method] === undefined)) {
      result = 'not offered';
    } else {
      try {
        await Promise.race([run(), silence()]);
      } catch (error) {
        result = `failed: ${String(error.message || error).replace(/\s+/g, ' ').slice(0, 200)}`;
      }
    }
    console.log(`${operation}\t${result}`);
    if (operation === 'set' && result !== 'ok') break;
  }
}

// Some calls never end.
async function silence() {
  await sleep(2 * TIMEOUT_MS);
  throw new Error(`no answer within ${2 * TIMEOUT_MS / 1000} s`);
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
