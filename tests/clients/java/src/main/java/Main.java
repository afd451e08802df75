import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Stock Java clients: {@code Main HOST:PORT [LIBRARY ...]}
 *
 * <p>Prints a line per case: language, library, topic, pass or fail, reason.
 */
public final class Main {
    private static final int LIMIT_SECONDS = 25;

    /** The class of each library; those left out of the build are left out here. */
    private static final Map<String, String> CLASSES = new LinkedHashMap<>();

    static {
        CLASSES.put("Jedis", "WithJedis");
        CLASSES.put("Jedis RedisClusterClient", "WithJedisCluster");
        CLASSES.put("Lettuce", "WithLettuce");
        CLASSES.put("Redisson", "WithRedisson");
        CLASSES.put("spymemcached", "WithSpymemcached");
    }

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        List<String> wanted = Arrays.asList(arguments).subList(1, arguments.length);
        for (Map.Entry<String, String> library : CLASSES.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(library.getKey())) {
                Cases cases = cases(library.getValue());
                for (Map.Entry<String, Case> one : cases.all().entrySet()) {
                    String verdict = verdict(new Test(arguments[0], library.getKey(), one.getKey()), one.getValue());
                    System.out.printf("java\t%s\t%s\t%s%n", library.getKey(), one.getKey(), verdict);
                }
            }
        }
        System.out.flush();
        // Threads of a library or of a case left behind must not keep the process.
        Runtime.getRuntime().halt(0);
    }

    private static Cases cases(String name) throws ReflectiveOperationException {
        return (Cases) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    /** Runs a case on a thread of its own; one that does not end is left behind. */
    private static String verdict(Test test, Case work) throws InterruptedException {
        FutureTask<Void> task = new FutureTask<>(() -> {
            work.run(test);
            return null;
        });
        Thread thread = new Thread(task, test.toString());
        thread.setDaemon(true);
        thread.start();
        try {
            task.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            return "pass\t";
        } catch (TimeoutException late) {
            return "fail\tno end within " + LIMIT_SECONDS + " s";
        } catch (ExecutionException failed) {
            if (System.getenv("STOCK_VERBOSE") != null) {
                failed.getCause().printStackTrace();
            }
            return "fail\t" + reason(failed.getCause());
        }
    }

    /** The failure and what caused it, in one line. */
    private static String reason(Throwable failure) {
        List<String> words = new ArrayList<>();
        for (Throwable one = failure; one != null && words.size() < 3; one = one.getCause()) {
            String message = one.getClass().getSimpleName() + ": " + one.getMessage();
            if (words.isEmpty() || !words.get(words.size() - 1).contains(String.valueOf(one.getMessage()))) {
                words.add(message.replaceAll("\\s+", " "));
            }
        }
        return String.join("; ", words);
    }

    /** What one case does; it fails by throwing. */
    interface Case {
        void run(Test test) throws Exception;
    }

    /** The cases of one library, by topic. */
    interface Cases {
        Map<String, Case> all();
    }

    /** What a case is told: where the server is, and its own name. */
    static final class Test {
        /** As given: of a cluster, those of its nodes with commas between. */
        final String address;
        final String host;
        final int port;
        private final String base;

        Test(String address, String library, String topic) {
            this.address = address;
            int colon = address.lastIndexOf(':');
            host = address.substring(0, colon);
            port = Integer.parseInt(address.substring(colon + 1));
            base = "java:" + library + ":" + topic;
        }

        /** A key that may be on any shard. */
        String spread(Object name) {
            return base + ":" + name;
        }

        /** A key that shares its shard with the others of the case. */
        String together(Object name) {
            return "{" + base + "}:" + name;
        }

        @Override
        public String toString() {
            return base;
        }
    }

    static void equal(Object got, Object wanted) {
        if (!java.util.Objects.equals(wanted, got)) {
            throw new AssertionError("expected " + wanted + ", got " + got);
        }
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** Does something a little after a blocking command was sent. */
    static void later(Runnable work) {
        Thread thread = new Thread(() -> {
            try {
                Thread.sleep(300);
                work.run();
            } catch (InterruptedException | RuntimeException failed) {
                // The one who waits for it finds out.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
