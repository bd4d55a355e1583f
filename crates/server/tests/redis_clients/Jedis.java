import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis as a user would write it: commands, pipeline, transaction, scan, publish and subscribe. Argument: HOST:PORT. */
class Smoke {
  public static void main(String[] arguments) throws Exception {
    HostAndPort address = HostAndPort.from(arguments[0]);
    for (RedisProtocol protocol : RedisProtocol.values()) {
      DefaultJedisClientConfig config =
          DefaultJedisClientConfig.builder().protocol(protocol).clientName("jedis").build();
      try (Jedis jedis = new Jedis(address, config)) {
        jedis.flushAll();
        commands(jedis);
        pipeline(jedis);
        transaction(jedis, address);
        publishAndSubscribe(jedis, address, config);
      }
    }
    try (JedisPooled pooled = new JedisPooled(address.getHost(), address.getPort())) {
      equal(pooled.incrBy("java:pooled", 42), 42L);
    }
    System.out.println("ok jedis");
  }

  static void commands(Jedis jedis) {
    equal(jedis.set("java:key", "value"), "OK");
    equal(jedis.get("java:key"), "value");
    equal(jedis.get("java:missing"), null);
    equal(jedis.set("java:key", "other", SetParams.setParams().nx()), null);
    equal(jedis.setGet("java:key", "new", SetParams.setParams().px(100_000)), "value");
    equal(jedis.pttl("java:key") > 90_000, true);
    equal(jedis.persist("java:key"), 1L);
    equal(jedis.append("java:key", "er"), 5L);
    equal(jedis.incrByFloat("java:float", 10.5), 10.5);
    equal(jedis.mset("java:a", "1", "java:b", "2"), "OK");
    equal(jedis.mget("java:a", "java:none", "java:b").toString(), "[1, null, 2]");
    equal(jedis.setbit("java:bits", 7, true), false);
    equal(jedis.bitcount("java:bits"), 1L);
    try {
      jedis.incr("java:key");
      throw new AssertionError("a word was increased");
    } catch (JedisDataException error) {
      equal(error.getMessage(), "ERR value is not an integer or out of range");
    }
    jedis.psetex("java:gone", 20, "soon");
    while (jedis.exists("java:gone")) {}
    Set<String> found = new HashSet<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      ScanResult<String> part = jedis.scan(cursor, new ScanParams().match("java:*").count(2));
      found.addAll(part.getResult());
      cursor = part.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    equal(found, Set.of("java:key", "java:float", "java:a", "java:b", "java:bits"));
    equal(jedis.del("java:a", "java:b", "java:none"), 2L);
  }

  static void pipeline(Jedis jedis) {
    Pipeline pipeline = jedis.pipelined();
    Response<Long> last = null;
    for (int at = 0; at < 1000; at++) {
      last = pipeline.incr("java:pipelined");
    }
    Response<String> text = pipeline.get("java:pipelined");
    pipeline.sync();
    equal(last.get(), 1000L);
    equal(text.get(), "1000");
  }

  static void transaction(Jedis jedis, HostAndPort address) {
    jedis.set("java:watched", "1");
    jedis.watch("java:watched");
    try (Jedis other = new Jedis(address)) {
      other.set("java:watched", "10");
    }
    Transaction overtaken = jedis.multi();
    overtaken.incr("java:watched");
    equal(overtaken.exec(), null);
    Transaction done = jedis.multi();
    done.incr("java:watched");
    done.get("java:watched");
    equal(done.exec(), List.of(11L, "11"));
  }

  static void publishAndSubscribe(Jedis jedis, HostAndPort address, DefaultJedisClientConfig config) throws Exception {
    CountDownLatch subscribed = new CountDownLatch(1);
    AtomicReference<String> heard = new AtomicReference<>();
    JedisPubSub listener = new JedisPubSub() {
      @Override
      public void onPSubscribe(String pattern, int subscriptions) {
        subscribed.countDown();
      }

      @Override
      public void onPMessage(String pattern, String channel, String message) {
        heard.set(pattern + " " + channel + " " + message);
        punsubscribe();
      }
    };
    Thread reader = new Thread(() -> {
      try (Jedis subscriber = new Jedis(address, config)) {
        subscriber.psubscribe(listener, "java:news:*");
      }
    });
    reader.start();
    equal(subscribed.await(60, TimeUnit.SECONDS), true);
    equal(jedis.publish("java:news:today", "hello"), 1L);
    reader.join(60_000);
    equal(heard.get(), "java:news:* java:news:today hello");
  }

  static void equal(Object got, Object expected) {
    if (got == null ? expected != null : !got.equals(expected)) {
      throw new AssertionError("got " + got + ", expected " + expected);
    }
  }
}
