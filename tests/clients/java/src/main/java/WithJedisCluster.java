import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisException;

/** Jedis's client of Redis Cluster. */
public final class WithJedisCluster implements Main.Cases {
    @Override
    public Map<String, Main.Case> all() {
        Map<String, Main.Case> cases = new LinkedHashMap<>();
        cases.put("many keys", over(WithJedisCluster::keys));
        cases.put("pipelines", over(WithJedisCluster::pipelines));
        cases.put("transactions", over(WithJedisCluster::transactions));
        cases.put("pub/sub", over(WithJedisCluster::pubsub));
        cases.put("sharded pub/sub", over(WithJedisCluster::sharded));
        cases.put("a node stops", over(WithJedisCluster::stops));
        return cases;
    }

    private interface Work {
        void run(Main.Test test, RedisClusterClient client) throws Exception;
    }

    private static Main.Case over(Work work) {
        return test -> {
            Set<HostAndPort> nodes = new HashSet<>();
            for (String node : test.address.split(",")) {
                nodes.add(HostAndPort.from(node));
            }
            try (RedisClusterClient client = RedisClusterClient.create(nodes)) {
                work.run(test, client);
            }
        };
    }

    private static void keys(Main.Test test, RedisClusterClient r) {
        for (int nth = 0; nth < 300; nth++) {
            Main.equal(r.set(test.spread(nth), String.valueOf(nth)), "OK");
        }
        for (int nth = 0; nth < 300; nth++) {
            Main.equal(r.get(test.spread(nth)), String.valueOf(nth));
        }
        String a = test.together("a");
        String b = test.together("b");
        Main.equal(r.mset(a, "1", b, "2"), "OK");
        Main.equal(r.mget(a, b), List.of("1", "2"));
        Main.equal(r.del(a, b), 2L);
    }

    private static void pipelines(Main.Test test, RedisClusterClient r) {
        List<Response<String>> replies = new java.util.ArrayList<>();
        try (ClusterPipeline pipe = r.pipelined()) {
            for (int nth = 0; nth < 300; nth++) {
                pipe.set(test.spread(nth), String.valueOf(nth));
                replies.add(pipe.get(test.spread(nth)));
            }
            pipe.sync();
            for (int nth = 0; nth < 300; nth++) {
                Main.equal(replies.get(nth).get(), String.valueOf(nth));
            }
        }
    }

    private static void transactions(Main.Test test, RedisClusterClient r) {
        String n = test.together("n");
        r.del(n);
        try (AbstractTransaction transaction = r.multi()) {
            transaction.incr(n);
            transaction.incrBy(n, 4);
            transaction.set(test.together("other"), "x");
            Main.equal(transaction.exec(), List.of(1L, 5L, "OK"));
        }
    }

    private static void pubsub(Main.Test test, RedisClusterClient r) throws InterruptedException {
        LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
        String channel = test.spread("news");
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String to, int count) {
                heard.add("subscribed");
            }

            @Override
            public void onMessage(String from, String message) {
                heard.add(message);
            }
        };
        Main.later(() -> r.subscribe(listener, channel));
        Main.equal(heard.poll(5, TimeUnit.SECONDS), "subscribed");
        r.publish(channel, "hello");
        Main.equal(heard.poll(5, TimeUnit.SECONDS), "hello");
        listener.unsubscribe();
    }

    private static void sharded(Main.Test test, RedisClusterClient r) throws InterruptedException {
        for (int nth = 0; nth < 5; nth++) {
            LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
            String channel = test.spread("shard" + nth);
            JedisShardedPubSub listener = new JedisShardedPubSub() {
                @Override
                public void onSSubscribe(String to, int count) {
                    heard.add("subscribed");
                }

                @Override
                public void onSMessage(String from, String message) {
                    heard.add(message);
                }
            };
            Main.later(() -> r.ssubscribe(listener, channel));
            Main.equal(heard.poll(5, TimeUnit.SECONDS), "subscribed");
            r.spublish(channel, "hello");
            Main.equal(heard.poll(5, TimeUnit.SECONDS), "hello");
            listener.sunsubscribe();
        }
    }

    private static void stops(Main.Test test, RedisClusterClient r) throws InterruptedException {
        for (int nth = 0; nth < 100; nth++) {
            r.set(test.spread(nth), String.valueOf(nth));
        }
        ProcessHandle.of(Long.parseLong(System.getenv("STOCK_VICTIM"))).orElseThrow().destroyForcibly();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        for (int nth = 0; nth < 100; nth++) {
            while (true) {
                try {
                    String got = r.get(test.spread(nth));
                    r.set(test.spread(nth), String.valueOf(nth));
                    Main.equal(got, String.valueOf(nth));
                    break;
                } catch (JedisException failed) {
                    if (System.nanoTime() > deadline) {
                        throw failed;
                    }
                    Thread.sleep(20);
                }
            }
        }
    }
}
