<?php
// Runs the list of operations with PHP's extension `memcached`, and prints a line for each: its name, a tab, and its result.
//
//     php drive.php php-memcached|php-memcached-binary HOST PORT
//
// `scripts/clients/run.py` has the list and the form of the lines. If the first operation fails, the rest is not run.

[, $name, $host, $port] = $argv;
$binary = $name === 'php-memcached-binary';
$client = new Memcached();
$client->setOptions([
    Memcached::OPT_BINARY_PROTOCOL => $binary,
    // Compression would make the large values small.
    Memcached::OPT_COMPRESSION => false,
    Memcached::OPT_TCP_NODELAY => true,
    Memcached::OPT_CONNECT_TIMEOUT => 20000,
    Memcached::OPT_POLL_TIMEOUT => 20000,
]);
$client->addServer($host, (int) $port);

function short(mixed $value): string
{
    $text = json_encode($value);
    return strlen($text) <= 60 ? $text : substr($text, 0, 57) . '...';
}

function expect(mixed $found, mixed $wanted): void
{
    global $client;
    if ($found !== $wanted) {
        throw new Exception('returned ' . short($found) . ', expected ' . short($wanted) . ': ' . $client->getResultMessage());
    }
}

// PHP returns false for a key that is not there, and for a failure. The code says which.
function expect_missing(string $key): void
{
    global $client;
    expect($client->get($key), false);
    expect($client->getResultCode(), Memcached::RES_NOTFOUND);
}

function expect_get(string $key, mixed $value): void
{
    global $client;
    expect($client->get($key), $value);
    expect($client->getResultCode(), Memcached::RES_SUCCESS);
}

$operations = [
    'set' => function () use ($client) {
        expect($client->set('key', 'value'), true);
    },
    'get' => function () {
        expect_get('key', 'value');
    },
    'get missing' => function () {
        expect_missing('missing');
    },
    'types' => function () use ($client) {
        foreach ([7, 2.5, true, false, 'text', [1, ['two' => 2]]] as $value) {
            expect($client->set('typed', $value), true);
            expect_get('typed', $value);
        }
    },
    'add' => function () use ($client) {
        expect($client->add('added', 'one'), true);
        expect_get('added', 'one');
    },
    'add existing' => function () use ($client) {
        expect($client->add('added', 'two'), false);
        expect_get('added', 'one');
    },
    'replace' => function () use ($client) {
        expect($client->replace('added', 'three'), true);
        expect_get('added', 'three');
        expect($client->replace('missing', 'three'), false);
        expect_missing('missing');
    },
    'append' => function () use ($client) {
        expect($client->set('joined', 'b'), true);
        expect($client->append('joined', 'c'), true);
        expect_get('joined', 'bc');
    },
    'prepend' => function () use ($client) {
        expect($client->prepend('joined', 'a'), true);
        expect_get('joined', 'abc');
    },
    'cas' => function () use ($client) {
        expect($client->set('swapped', 'one'), true);
        $found = $client->get('swapped', null, Memcached::GET_EXTENDED);
        expect($found['value'], 'one');
        expect($client->cas($found['cas'], 'swapped', 'two'), true);
        expect_get('swapped', 'two');
    },
    'cas conflict' => function () use ($client) {
        $found = $client->get('swapped', null, Memcached::GET_EXTENDED);
        expect($client->set('swapped', 'three'), true);
        expect($client->cas($found['cas'], 'swapped', 'four'), false);
        expect($client->getResultCode(), Memcached::RES_DATA_EXISTS);
        expect_get('swapped', 'three');
    },
    'incr' => function () use ($client) {
        expect($client->set('count', '10'), true);
        expect($client->increment('count', 5), 15);
    },
    'decr' => function () use ($client) {
        expect($client->decrement('count', 6), 9);
        // memcached keeps the length of the number, with a space in the place of a digit.
        expect(trim($client->get('count')), '9');
    },
    'delete' => function () use ($client) {
        expect($client->delete('key'), true);
        expect_missing('key');
    },
    'delete missing' => function () use ($client) {
        expect($client->delete('key'), false);
        expect($client->getResultCode(), Memcached::RES_NOTFOUND);
    },
    'many keys' => function () use ($client) {
        $items = [];
        for ($number = 0; $number < 100; $number++) {
            $items["many$number"] = "value$number";
        }
        expect($client->setMulti($items), true);
        expect($client->getMulti([...array_keys($items), 'missing'], Memcached::GET_PRESERVE_ORDER), [...$items, 'missing' => null]);
    },
    'touch' => function () use ($client) {
        expect($client->set('touched', 'value', 100), true);
        expect($client->touch('touched', 1), true);
        expect_get('touched', 'value');
        usleep(2500000);
        expect_missing('touched');
        expect($client->touch('touched', 1), false);
    },
    'gat' => null,
    'expiry' => function () use ($client) {
        expect($client->set('short', 'value', 1), true);
        expect($client->set('long', 'value', 100), true);
        usleep(2500000);
        expect_missing('short');
        expect_get('long', 'value');
    },
    '900 KB' => function () use ($client) {
        $value = random_bytes(900000);
        expect($client->set('large', $value), true);
        expect($client->get('large') === $value, true);
    },
    'over 1 MB' => function () use ($client) {
        expect($client->set('over', random_bytes(2000000)), false);
    },
    'after over 1 MB' => function () use ($client) {
        expect($client->set('after', 'value'), true);
        expect_get('after', 'value');
        expect_missing('over');
    },
    'key of 250 bytes' => function () use ($client) {
        expect($client->set(str_repeat('k', 250), 'value'), true);
        expect_get(str_repeat('k', 250), 'value');
    },
    'stats' => function () use ($client, $host, $port) {
        $stats = $client->getStats()["$host:$port"];
        if ($stats['curr_items'] < 1 || $stats['pid'] < 1) {
            throw new Exception(short($stats));
        }
    },
    'version' => function () use ($client, $host, $port) {
        $version = $client->getVersion()["$host:$port"];
        if (!preg_match('/^[0-9]+\.[0-9]+\.[0-9]+$/', $version)) {
            throw new Exception('returned ' . short($version));
        }
    },
    '1000 in a row' => function () use ($client) {
        for ($step = 0; $step < 1000; $step++) {
            expect($client->set("row$step", "value$step"), true);
            expect_get("row$step", "value$step");
        }
    },
    // A script of PHP has one thread.
    'two at once' => null,
    'flush_all' => function () use ($client) {
        expect($client->set('flushed', 'value'), true);
        expect($client->flush(), true);
        expect_missing('flushed');
        expect($client->set('flushed', 'again'), true);
        expect_get('flushed', 'again');
    },
];

echo "client\t", phpversion('memcached'), "\t", $binary ? 'binary' : 'text', "\n";
foreach ($operations as $operation => $function) {
    if ($function === null) {
        $result = 'not offered';
    } else {
        try {
            $function();
            $result = 'ok';
        } catch (Throwable $failure) {
            $result = 'failed: ' . substr(preg_replace('/\s+/', ' ', $failure->getMessage()), 0, 200);
        }
    }
    echo "$operation\t$result\n";
    if ($operation === 'set' && $result !== 'ok') {
        break;
    }
}
