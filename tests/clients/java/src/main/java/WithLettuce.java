import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LMoveArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanCursor;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Lettuce. */
public final class WithLettuce implements Main.Cases {
    @Override
    public Map<String, Main.Case> all() {
        Map<String, Main.Case> cases = new LinkedHashMap<>();
        cases.put("strings", over(WithLettuce::strings));
        cases.put("hashes", over(WithLettuce::hashes));
        cases.put("pipelines", over(WithLettuce::pipelines));
        cases.put("transactions", over(WithLettuce::transactions));
        cases.put("pub/sub", over(WithLettuce::pubsub));
        cases.put("blocking", over(WithLettuce::blocking));
        cases.put("scripts", over(WithLettuce::scripts));
        cases.put("scan", over(WithLettuce::scan));
        return cases;
    }

    private interface Work {
        void run(Main.Test test, RedisClient client) throws Exception;
    }

    private static Main.Case over(Work work) {
        return test -> {
            RedisClient client = RedisClient.create(RedisURI.create(test.host, test.port));
            try {
                work.run(test, client);
            } finally {
                client.shutdownAsync(0, 1, TimeUnit.SECONDS);
            }
        };
    }

    private static void strings(Main.Test test, RedisClient client) {
        RedisCommands<String, String> r = client.connect().sync();
        String a = test.together("a");
        String b = test.together("b");
        Main.equal(r.ping(), "PONG");
        Main.equal(r.set(a, "value", SetArgs.Builder.ex(100)), "OK");
        Main.equal(r.get(a), "value");
        Main.check(r.set(a, "other", SetArgs.Builder.nx()) == null, "SET NX of what is there");
        Main.equal(r.append(a, "!"), 6L);
        Main.equal(r.incrby(test.spread("n"), 41), 41L);
        Main.equal(r.mset(Map.of(a, "1", b, "2")), "OK");
        Main.equal(r.mget(a, b), List.of(KeyValue.just(a, "1"), KeyValue.just(b, "2")));
        Main.equal(r.exists(a, b), 2L);
        Main.equal(r.del(a, b), 2L);
    }

    private static void hashes(Main.Test test, RedisClient client) {
        RedisCommands<String, String> r = client.connect().sync();
        String h = test.spread("h");
        Main.equal(r.hset(h, Map.of("f", "1", "g", "2")), 2L);
        Main.equal(r.hget(h, "f"), "1");
        Main.equal(r.hincrby(h, "f", 4), 5L);
        Main.equal(r.hgetall(h), Map.of("f", "5", "g", "2"));
        Main.equal(r.hscan(h).getMap(), Map.of("f", "5", "g", "2"));
        Main.equal(r.hdel(h, "g"), 1L);
        Main.equal(r.hkeys(h), List.of("f"));
    }

    private static void pipelines(Main.Test test, RedisClient client) throws Exception {
        RedisAsyncCommands<String, String> r = client.connect().async();
        List<RedisFuture<String>> replies = new ArrayList<>();
        for (int nth = 0; nth < 200; nth++) {
            r.set(test.spread(nth), String.valueOf(nth));
            replies.add(r.get(test.spread(nth)));
        }
        for (int nth = 0; nth < 200; nth++) {
            Main.equal(replies.get(nth).get(5, TimeUnit.SECONDS), String.valueOf(nth));
        }
    }

    private static void transactions(Main.Test test, RedisClient client) {
        RedisCommands<String, String> r = client.connect().sync();
        String a = test.together("a");
        String b = test.together("b");
        Main.equal(r.multi(), "OK");
        r.set(a, "1");
        r.incr(a);
        r.set(b, "5");
        TransactionResult done = r.exec();
        Main.equal(List.copyOf(done.stream().toList()), List.of("OK", 2L, "OK"));
        r.watch(a);
        client.connect().sync().set(a, "changed");
        r.multi();
        r.set(a, "lost");
        Main.check(r.exec().wasDiscarded(), "EXEC in spite of a change to a watched key");
        Main.equal(r.get(a), "changed");
        r.multi();
        r.set(a, "discarded");
        Main.equal(r.discard(), "OK");
        Main.equal(r.get(a), "changed");
    }

    private static void pubsub(Main.Test test, RedisClient client) throws Exception {
        String channel = test.spread("news");
        LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
        StatefulRedisPubSubConnection<String, String> subscriber = client.connectPubSub();
        subscriber.addListener(new RedisPubSubAdapter<String, String>() {
            @Override
            public void message(String on, String text) {
                heard.add("message " + text);
            }

            @Override
            public void message(String pattern, String on, String text) {
                heard.add("pmessage " + text);
            }
        });
        subscriber.sync().subscribe(channel);
        subscriber.sync().psubscribe(test.spread("n*"));
        Main.check(client.connect().sync().publish(channel, "hello") >= 1, "no receiver");
        Set<String> got = new HashSet<>();
        for (int nth = 0; nth < 2; nth++) {
            got.add(String.valueOf(heard.poll(5, TimeUnit.SECONDS)));
        }
        Main.equal(got, Set.of("message hello", "pmessage hello"));
        subscriber.sync().unsubscribe(channel);
    }

    private static void blocking(Main.Test test, RedisClient client) {
        RedisCommands<String, String> r = client.connect().sync();
        RedisCommands<String, String> other = client.connect().sync();
        String a = test.together("a");
        String b = test.together("b");
        Main.later(() -> other.rpush(b, "value"));
        Main.equal(r.blpop(4, a, b), KeyValue.just(b, "value"));
        Main.check(r.blpop(1, a) == null, "BLPOP out of time");
        Main.later(() -> other.rpush(a, "moved"));
        Main.equal(r.blmove(a, b, LMoveArgs.Builder.leftRight(), 4), "moved");
        String z = test.together("z");
        Main.later(() -> other.zadd(z, 2, "member"));
        Main.equal(r.bzpopmin(4, z).getValue().getValue(), "member");
    }

    private static void scripts(Main.Test test, RedisClient client) {
        RedisCommands<String, String> r = client.connect().sync();
        String source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
        String[] keys = {test.spread("a")};
        Main.equal(r.eval(source, ScriptOutputType.VALUE, keys, "1"), "1");
        String digest = r.scriptLoad("return {KEYS[1], ARGV[1]} -- Lettuce");
        for (int nth = 0; nth < 20; nth++) {
            String[] key = {test.spread(nth)};
            Main.equal(r.evalsha(digest, ScriptOutputType.MULTI, key, "7"), List.of(key[0], "7"));
        }
        Main.equal(r.scriptExists(digest), List.of(true));
    }

    private static void scan(Main.Test test, RedisClient client) {
        RedisCommands<String, String> r = client.connect().sync();
        Set<String> wanted = new HashSet<>();
        for (int nth = 0; nth < 300; nth++) {
            wanted.add(test.spread(nth));
            r.set(test.spread(nth), "1");
        }
        Set<String> found = new HashSet<>();
        ScanCursor cursor = ScanCursor.INITIAL;
        do {
            KeyScanCursor<String> some = r.scan(cursor, ScanArgs.Builder.matches(test.spread("*")).limit(50));
            found.addAll(some.getKeys());
            cursor = some;
        } while (!cursor.isFinished());
        Main.equal(found, wanted);
        Main.check(r.dbsize() >= 300, "DBSIZE");
    }
}
