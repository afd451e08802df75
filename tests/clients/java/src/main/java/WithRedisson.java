import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.BatchResult;
import org.redisson.api.RBatch;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RPatternTopic;
import org.redisson.api.RScript;
import org.redisson.api.RTopic;
import org.redisson.api.RTransaction;
import org.redisson.api.RedissonClient;
import org.redisson.api.TransactionOptions;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson: the objects it makes of commands. */
public final class WithRedisson implements Main.Cases {
    @Override
    public Map<String, Main.Case> all() {
        Map<String, Main.Case> cases = new LinkedHashMap<>();
        cases.put("strings", over(WithRedisson::strings));
        cases.put("hashes", over(WithRedisson::hashes));
        cases.put("pipelines", over(WithRedisson::pipelines));
        cases.put("transactions", over(WithRedisson::transactions));
        cases.put("pub/sub", over(WithRedisson::pubsub));
        cases.put("blocking", over(WithRedisson::blocking));
        cases.put("scripts", over(WithRedisson::scripts));
        cases.put("scan", over(WithRedisson::scan));
        cases.put("lock", over(WithRedisson::lock));
        return cases;
    }

    private interface Work {
        void run(Main.Test test, RedissonClient client) throws Exception;
    }

    private static Main.Case over(Work work) {
        return test -> {
            Config config = new Config();
            config.useSingleServer().setAddress("redis://" + test.host + ":" + test.port);
            RedissonClient client = Redisson.create(config);
            try {
                work.run(test, client);
            } finally {
                client.shutdown(0, 1, TimeUnit.SECONDS);
            }
        };
    }

    private static void strings(Main.Test test, RedissonClient r) {
        RBucket<String> bucket = r.getBucket(test.spread("a"));
        bucket.set("value", Duration.ofSeconds(100));
        Main.equal(bucket.get(), "value");
        Main.check(bucket.remainTimeToLive() > 90_000, "the time to live");
        Main.check(!bucket.setIfAbsent("other"), "set of what is there");
        Main.equal(bucket.getAndSet("next"), "value");
        Main.equal(r.getAtomicLong(test.spread("n")).addAndGet(41), 41L);
        r.getBuckets().set(Map.of(test.together("x"), "1", test.together("y"), "2"));
        Main.equal(r.getBuckets().get(test.together("x"), test.together("y")),
                Map.of(test.together("x"), "1", test.together("y"), "2"));
        Main.check(bucket.delete(), "delete");
    }

    private static void hashes(Main.Test test, RedissonClient r) {
        RMap<String, Integer> map = r.getMap(test.spread("map"));
        map.putAll(Map.of("f", 1, "g", 2));
        Main.equal(map.get("f"), 1);
        Main.equal(map.put("f", 5), 1);
        Main.equal(map.readAllMap(), Map.of("f", 5, "g", 2));
        Main.equal(new HashSet<>(map.keySet()), Set.of("f", "g"));
        Main.equal(map.remove("g"), 2);
        Main.check(!map.containsKey("g"), "removed");
    }

    private static void pipelines(Main.Test test, RedissonClient r) {
        RBatch batch = r.createBatch();
        for (int nth = 0; nth < 200; nth++) {
            batch.getBucket(test.spread(nth)).setAsync(nth);
            batch.getBucket(test.spread(nth)).getAsync();
        }
        BatchResult<?> result = batch.execute();
        for (int nth = 0; nth < 200; nth++) {
            Main.equal(result.getResponses().get(2 * nth + 1), nth);
        }
    }

    private static void transactions(Main.Test test, RedissonClient r) {
        BatchOptions atomic = BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.IN_MEMORY_ATOMIC);
        RBatch batch = r.createBatch(atomic);
        batch.getAtomicLong(test.together("n")).addAndGetAsync(2);
        batch.getAtomicLong(test.together("n")).addAndGetAsync(3);
        Main.equal(batch.execute().getResponses(), List.of(2L, 5L));
        RTransaction transaction = r.createTransaction(TransactionOptions.defaults());
        transaction.getBucket(test.together("a")).set("1");
        transaction.getBucket(test.together("b")).set("2");
        transaction.commit();
        Main.equal(r.getBucket(test.together("b")).get(), "2");
    }

    private static void pubsub(Main.Test test, RedissonClient r) throws Exception {
        LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
        RTopic topic = r.getTopic(test.spread("news"));
        RPatternTopic pattern = r.getPatternTopic(test.spread("n*"));
        int first = topic.addListener(String.class, (channel, text) -> heard.add("message " + text));
        int second = pattern.addListener(String.class, (by, channel, text) -> heard.add("pmessage " + text));
        Main.check(topic.publish("hello") >= 1, "no receiver");
        Set<String> got = new HashSet<>();
        for (int nth = 0; nth < 2; nth++) {
            got.add(String.valueOf(heard.poll(5, TimeUnit.SECONDS)));
        }
        Main.equal(got, Set.of("message hello", "pmessage hello"));
        topic.removeListener(first);
        pattern.removeListener(second);
    }

    private static void blocking(Main.Test test, RedissonClient r) throws Exception {
        RBlockingQueue<String> queue = r.getBlockingQueue(test.together("queue"));
        Main.later(() -> r.getQueue(test.together("queue")).add("value"));
        Main.equal(queue.poll(4, TimeUnit.SECONDS), "value");
        Main.check(queue.poll(1, TimeUnit.SECONDS) == null, "poll out of time");
        Main.later(() -> r.getQueue(test.together("queue")).add("moved"));
        Main.equal(queue.pollLastAndOfferFirstTo(test.together("other"), 4, TimeUnit.SECONDS), "moved");
    }

    private static void scripts(Main.Test test, RedissonClient r) {
        RScript script = r.getScript(StringCodec.INSTANCE);
        String source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
        Main.equal(script.eval(RScript.Mode.READ_WRITE, source, RScript.ReturnType.VALUE,
                List.<Object>of(test.spread("a")), "1"), "1");
        String digest = script.scriptLoad("return ARGV[1] -- Redisson");
        for (int nth = 0; nth < 20; nth++) {
            Main.equal(script.evalSha(RScript.Mode.READ_ONLY, digest, RScript.ReturnType.VALUE,
                    List.<Object>of(test.spread(nth)), "7"), "7");
        }
    }

    private static void scan(Main.Test test, RedissonClient r) {
        Set<String> wanted = new HashSet<>();
        for (int nth = 0; nth < 300; nth++) {
            wanted.add(test.spread(nth));
            r.getBucket(test.spread(nth)).set(nth);
        }
        Set<String> found = new HashSet<>();
        r.getKeys().getKeysByPattern(test.spread("*")).forEach(found::add);
        Main.equal(found, wanted);
        Main.check(r.getKeys().count() >= 300, "count");
    }

    private static void lock(Main.Test test, RedissonClient r) throws Exception {
        RLock lock = r.getLock(test.together("lock"));
        Main.check(lock.tryLock(1, 10, TimeUnit.SECONDS), "not locked");
        Main.check(lock.isHeldByCurrentThread(), "not held");
        LinkedBlockingQueue<Boolean> got = new LinkedBlockingQueue<>();
        Thread other = new Thread(() -> {
            try {
                // Waits for the message that says it is free.
                got.add(r.getLock(test.together("lock")).tryLock(5, 10, TimeUnit.SECONDS));
            } catch (InterruptedException | RuntimeException failed) {
                got.add(false);
            }
        });
        other.setDaemon(true);
        other.start();
        Thread.sleep(300);
        Main.check(got.isEmpty(), "locked twice");
        lock.unlock();
        Main.equal(got.poll(6, TimeUnit.SECONDS), true);
    }
}
