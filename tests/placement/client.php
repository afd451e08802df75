<?php
// Places, writes or reads keys through PHP's extensions, as the JSON on standard
// input says: {"mode": "place" | "set" | "get", "cases": [{"extension":
// "memcache" | "memcached", "options": {...}, "servers": [[host, port, weight],
// ...], "keys": [...]}]}. Options are ini settings of memcache, or constants of
// the class Memcached by their names. Prints a list for each case: of "place",
// which memcache does not have, the index of each key's server; of "set" and
// "get" the keys that could not be set or got with their own bytes as value.

// The extension memcache itself does what PHP 8.2 deprecates.
error_reporting(E_ALL & ~E_DEPRECATED);
set_error_handler(function ($level, $text) {
    if (!(error_reporting() & $level)) {
        return true;
    }
    throw new ErrorException($text);
});

function memcache_client($case)
{
    ini_set("memcache.allow_failover", "0");
    foreach ($case["options"] as $name => $value) {
        ini_set($name, $value);
    }
    $client = new Memcache();
    foreach ($case["servers"] as [$host, $port, $weight]) {
        $client->addServer($host, $port, false, $weight);
    }
    return $client;
}

function memcached_client($case)
{
    $client = new Memcached();
    foreach ($case["options"] as $name => $value) {
        $value = defined("Memcached::$value") ? constant("Memcached::$value") : $value;
        if (!$client->setOption(constant("Memcached::$name"), $value)) {
            throw new ErrorException("$name is refused");
        }
    }
    $client->addServers($case["servers"]);
    return $client;
}

function place($client, $case)
{
    $indexes = [];
    foreach ($case["servers"] as $index => [$host, $port]) {
        $indexes["$host:$port"] = $index;
    }
    return array_map(function ($key) use ($client, $indexes) {
        $server = $client->getServerByKey($key);
        return $indexes["$server[host]:$server[port]"];
    }, $case["keys"]);
}

function failed($client, $mode, $keys)
{
    $is_done = fn($key) => $mode === "set" ? $client->set($key, $key) : $client->get($key) === $key;
    return array_values(array_filter($keys, fn($key) => !$is_done($key)));
}

$work = json_decode(stream_get_contents(STDIN), true, 64, JSON_THROW_ON_ERROR);
$answers = [];
foreach ($work["cases"] as $case) {
    $is_memcache = $case["extension"] === "memcache";
    $client = $is_memcache ? memcache_client($case) : memcached_client($case);
    $answers[] = $work["mode"] === "place" ? place($client, $case) : failed($client, $work["mode"], $case["keys"]);
}
echo json_encode($answers, JSON_THROW_ON_ERROR);
