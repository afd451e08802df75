import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.BinaryConnectionFactory;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactory;
import net.spy.memcached.DefaultConnectionFactory;
import net.spy.memcached.MemcachedClient;

/** Spymemcached, in text and in packets. */
public final class WithSpymemcached implements Main.Cases {
    @Override
    public Map<String, Main.Case> all() {
        Map<String, Main.Case> cases = new LinkedHashMap<>();
        cases.put("values", over(WithSpymemcached::values));
        cases.put("conditions", over(WithSpymemcached::conditions));
        cases.put("cas", over(WithSpymemcached::cas));
        cases.put("many", over(WithSpymemcached::many));
        cases.put("counters", over(WithSpymemcached::counters));
        cases.put("expiry", over(WithSpymemcached::expiry));
        return cases;
    }

    private interface Work {
        void run(MemcachedClient client, String key) throws Exception;
    }

    private static Main.Case over(Work work) {
        return test -> {
            String address = test.host + ":" + test.port;
            in(new DefaultConnectionFactory(), address, test.spread("text"), work);
            in(new BinaryConnectionFactory(), address, test.spread("binary"), work);
        };
    }

    private static void in(ConnectionFactory factory, String address, String key, Work work) throws Exception {
        MemcachedClient client = new MemcachedClient(factory, AddrUtil.getAddresses(address));
        try {
            work.run(client, key);
        } finally {
            client.shutdown(1, TimeUnit.SECONDS);
        }
    }

    private static void values(MemcachedClient c, String key) throws Exception {
        char[] many = new char[400_000];
        Arrays.fill(many, 'x');
        for (Object value : List.of("text", "", 5, 2.5, true, new ArrayList<>(List.of("a", "b")), new String(many))) {
            Main.check(c.set(key, 0, value).get(), "set");
            Main.equal(c.get(key), value);
        }
        Main.check(c.set(key, 0, "b").get(), "set");
        Main.check(c.append(key, "c").get(), "append");
        Main.check(c.prepend(key, "a").get(), "prepend");
        Main.equal(c.get(key), "abc");
        Main.equal(c.get(key + ":none"), null);
    }

    private static void conditions(MemcachedClient c, String key) throws Exception {
        Main.check(!c.replace(key, 0, "1").get(), "replace of none");
        Main.check(c.add(key, 0, "1").get(), "add");
        Main.check(!c.add(key, 0, "2").get(), "add of one that is there");
        Main.check(c.replace(key, 0, "2").get(), "replace");
        Main.check(c.delete(key).get(), "delete");
        Main.check(!c.delete(key).get(), "delete of none");
    }

    private static void cas(MemcachedClient c, String key) throws Exception {
        c.set(key, 0, "a").get();
        CASValue<Object> read = c.gets(key);
        Main.equal(c.cas(key, read.getCas(), "b"), CASResponse.OK);
        Main.equal(c.cas(key, read.getCas(), "c"), CASResponse.EXISTS);
        Main.equal(c.cas(key + ":none", read.getCas(), "c"), CASResponse.NOT_FOUND);
    }

    private static void many(MemcachedClient c, String key) throws Exception {
        List<String> keys = new ArrayList<>();
        for (int nth = 0; nth < 200; nth++) {
            keys.add(key + ":" + nth);
            Main.check(c.set(key + ":" + nth, 0, nth).get(), "set");
        }
        keys.add(key + ":none");
        Map<String, Object> values = c.getBulk(keys);
        Main.equal(values.size(), 200);
        Main.equal(values.get(key + ":199"), 199);
    }

    private static void counters(MemcachedClient c, String key) throws Exception {
        c.delete(key).get();
        Main.equal(c.incr(key, 5, 10), 10L);
        Main.equal(c.incr(key, 5), 15L);
        Main.equal(c.decr(key, 20), 0L);
        Main.equal(c.incr(key + ":none", 1), -1L);
    }

    private static void expiry(MemcachedClient c, String key) throws Exception {
        Main.check(c.set(key, 1000, "a").get(), "set");
        Main.check(c.touch(key, 2000).get(), "touch");
        Main.equal(c.get(key), "a");
    }
}
