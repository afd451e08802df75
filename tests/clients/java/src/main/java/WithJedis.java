import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis. */
public final class WithJedis implements Main.Cases {
    @Override
    public Map<String, Main.Case> all() {
        Map<String, Main.Case> cases = new LinkedHashMap<>();
        cases.put("strings", over(WithJedis::strings));
        cases.put("hashes", over(WithJedis::hashes));
        cases.put("pipelines", over(WithJedis::pipelines));
        cases.put("transactions", over(WithJedis::transactions));
        cases.put("pub/sub", over(WithJedis::pubsub));
        cases.put("blocking", over(WithJedis::blocking));
        cases.put("scripts", over(WithJedis::scripts));
        cases.put("scan", over(WithJedis::scan));
        return cases;
    }

    private interface Work {
        void run(Main.Test test, RedisClient client) throws Exception;
    }

    private static Main.Case over(Work work) {
        return test -> {
            try (RedisClient client = RedisClient.create(test.host, test.port)) {
                work.run(test, client);
            }
        };
    }

    private static void strings(Main.Test test, RedisClient r) {
        String a = test.together("a");
        String b = test.together("b");
        Main.equal(r.set(a, "value", SetParams.setParams().ex(100)), "OK");
        Main.equal(r.get(a), "value");
        Main.check(r.set(a, "other", SetParams.setParams().nx()) == null, "SET NX of what is there");
        Main.equal(r.append(a, "!"), 6L);
        Main.equal(r.incrBy(test.spread("n"), 41), 41L);
        Main.equal(r.mset(a, "1", b, "2"), "OK");
        Main.equal(r.mget(a, b), List.of("1", "2"));
        Main.equal(r.exists(a, b), 2L);
        Main.equal(r.del(a, b), 2L);
        Main.check(r.get(a) == null, "a deleted key is nil");
    }

    private static void hashes(Main.Test test, RedisClient r) {
        String h = test.spread("h");
        Main.equal(r.hset(h, Map.of("f", "1", "g", "2")), 2L);
        Main.equal(r.hget(h, "f"), "1");
        Main.equal(r.hincrBy(h, "f", 4), 5L);
        Main.equal(r.hgetAll(h), Map.of("f", "5", "g", "2"));
        Main.equal(r.hscan(h, "0").getResult().size(), 2);
        Main.equal(r.hdel(h, "g"), 1L);
        Main.equal(r.hkeys(h), Set.of("f"));
    }

    private static void pipelines(Main.Test test, RedisClient r) {
        List<Response<String>> replies = new java.util.ArrayList<>();
        try (Pipeline pipe = r.pipelined()) {
            for (int nth = 0; nth < 200; nth++) {
                pipe.set(test.spread(nth), String.valueOf(nth));
                replies.add(pipe.get(test.spread(nth)));
            }
            Response<Long> wrong = pipe.hlen(test.spread(0));
            Response<String> right = pipe.get(test.spread(1));
            pipe.sync();
            for (int nth = 0; nth < 200; nth++) {
                Main.equal(replies.get(nth).get(), String.valueOf(nth));
            }
            try {
                wrong.get();
                Main.check(false, "the error in its place");
            } catch (JedisDataException expected) {
                Main.equal(right.get(), "1");
            }
        }
    }

    private static void transactions(Main.Test test, RedisClient r) {
        String a = test.together("a");
        String b = test.together("b");
        try (AbstractTransaction transaction = r.multi()) {
            transaction.set(a, "1");
            Response<Long> count = transaction.incr(a);
            transaction.set(b, "5");
            Main.equal(transaction.exec(), List.of("OK", 2L, "OK"));
            Main.equal(count.get(), 2L);
        }
        try (AbstractTransaction transaction = r.transaction(false)) {
            transaction.watch(a);
            r.set(a, "changed");
            transaction.multi();
            transaction.set(a, "lost");
            Main.check(transaction.exec() == null, "EXEC in spite of a change to a watched key");
        }
        Main.equal(r.get(a), "changed");
        try (AbstractTransaction transaction = r.multi()) {
            transaction.set(a, "discarded");
            Main.equal(transaction.discard(), "OK");
        }
        Main.equal(r.get(a), "changed");
    }

    /** Puts down what it hears. */
    private static final class Listener extends JedisPubSub {
        final LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();

        @Override
        public void onSubscribe(String channel, int count) {
            heard.add("subscribed");
        }

        @Override
        public void onPSubscribe(String pattern, int count) {
            heard.add("subscribed");
        }

        @Override
        public void onMessage(String channel, String message) {
            heard.add("message " + message);
        }

        @Override
        public void onPMessage(String pattern, String channel, String message) {
            heard.add("pmessage " + message);
        }

        String next() throws InterruptedException {
            String one = heard.poll(5, TimeUnit.SECONDS);
            Main.check(one != null, "nothing heard within 5 s");
            return one;
        }
    }

    private static void pubsub(Main.Test test, RedisClient r) throws Exception {
        String channel = test.spread("news");
        Listener listener = new Listener();
        LinkedBlockingQueue<RuntimeException> failures = new LinkedBlockingQueue<>();
        Thread thread = new Thread(() -> {
            try {
                r.subscribe(listener, channel);
            } catch (RuntimeException failed) {
                failures.add(failed);
                listener.heard.add("failed");
            }
        });
        thread.setDaemon(true);
        thread.start();
        String first = listener.next();
        if (!failures.isEmpty()) {
            throw failures.take();
        }
        Main.equal(first, "subscribed");
        listener.psubscribe(test.spread("n*"));
        Main.equal(listener.next(), "subscribed");
        Main.check(r.publish(channel, "hello") >= 1, "no receiver");
        Main.equal(Set.of(listener.next(), listener.next()), Set.of("message hello", "pmessage hello"));
        listener.unsubscribe();
        listener.punsubscribe();
        thread.join(5000);
        Main.check(!thread.isAlive(), "the subscription does not end");
    }

    private static void blocking(Main.Test test, RedisClient r) {
        String a = test.together("a");
        String b = test.together("b");
        Main.later(() -> r.rpush(b, "value"));
        Main.equal(r.blpop(1, a, b), List.of(b, "value"));
        Main.check(r.blpop(1, a) == null, "BLPOP out of time");
        Main.later(() -> r.rpush(a, "moved"));
        Main.equal(r.blmove(a, b, ListDirection.LEFT, ListDirection.RIGHT, 1.5), "moved");
        String z = test.together("z");
        Main.later(() -> r.zadd(z, 2, "member"));
        Main.equal(r.bzpopmin(1.5, z).getValue().getElement(), "member");
    }

    private static void scripts(Main.Test test, RedisClient r) {
        String source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
        Main.equal(r.eval(source, 1, test.spread("a"), "1"), "1");
        String digest = r.scriptLoad("return {KEYS[1], ARGV[1]} -- Jedis", test.spread("a"));
        for (int nth = 0; nth < 20; nth++) {
            String key = test.spread(nth);
            Main.equal(r.evalsha(digest, 1, key, "7"), List.of(key, "7"));
        }
        Main.equal(r.scriptExists(digest, test.spread("a")), true);
    }

    private static void scan(Main.Test test, RedisClient r) {
        Set<String> wanted = new HashSet<>();
        for (int nth = 0; nth < 300; nth++) {
            wanted.add(test.spread(nth));
            r.set(test.spread(nth), "1");
        }
        Set<String> found = new HashSet<>();
        ScanParams parameters = new ScanParams().match(test.spread("*")).count(50);
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> some = r.scan(cursor, parameters);
            found.addAll(some.getResult());
            cursor = some.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        Main.equal(found, wanted);
        Main.check(r.dbSize() >= 300, "DBSIZE");
    }
}
