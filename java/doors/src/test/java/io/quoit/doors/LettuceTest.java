package io.quoit.doors;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ConnectionBuilder;
import io.lettuce.core.ConnectionEvents;
import io.lettuce.core.KeyValue;
import io.lettuce.core.KillArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.EventLoopGroupProvider;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.BootstrapConfig;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.util.concurrent.EventExecutorGroup;
import io.netty.util.concurrent.Future;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.net.SocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.publisher.Mono;

/** Lettuce, the Redis client, with a real server. */
class LettuceTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int PIPELINED = 10_000;
    private static final int MESSAGES = 1_000;
    private static final int BIG_BYTES = 8 << 20;

    private static RedisServer server;

    private Client client;
    private ClientResources resources;

    /** Lettuce on a transport's channels; it knows those of Netty's own by itself. */
    private static final class Client extends RedisClient {
        private final Transport transport;

        Client(Transport transport, ClientResources resources) {
            super(resources, RedisURI.builder().withHost("127.0.0.1").withPort(server.port).withTimeout(PATIENCE).build());
            this.transport = transport;
        }

        @Override
        protected void connectionBuilder(
                Mono<SocketAddress> address, ConnectionBuilder builder, ConnectionEvents events, RedisURI uri) {
            super.connectionBuilder(address, builder, events, uri);
            // A bootstrap's channel cannot be changed.
            BootstrapConfig made = builder.bootstrap().config();
            Bootstrap own = new Bootstrap().group(made.group()).channel(transport.client).resolver(made.resolver());
            made.options().forEach((option, value) -> set(own, option, value));
            builder.bootstrap(own);
        }

        void assertIsOnItsTransport() {
            assertFalse(channels.isEmpty());
            channels.forEach(channel -> assertSame(transport.client, channel.getClass()));
        }

        @SuppressWarnings("unchecked")
        private static <T> void set(Bootstrap bootstrap, ChannelOption<T> option, Object value) {
            bootstrap.option(option, (T) value);
        }
    }

    /** The transport's group, which is not lettuce's to end. */
    private record Provider(Transport transport) implements EventLoopGroupProvider {
        @Override
        @SuppressWarnings("unchecked")
        public <T extends EventLoopGroup> T allocate(Class<T> type) {
            return (T) transport.group();
        }

        @Override
        public int threadPoolSize() {
            return 2;
        }

        @Override
        public Future<Boolean> release(EventExecutorGroup group, long quiet, long most, TimeUnit unit) {
            return GlobalEventExecutor.INSTANCE.newSucceededFuture(true);
        }

        @Override
        public Future<Boolean> shutdown(long quiet, long most, TimeUnit unit) {
            return GlobalEventExecutor.INSTANCE.newSucceededFuture(true);
        }
    }

    @BeforeAll
    static void startServer() throws Exception {
        server = RedisServer.start();
    }

    @AfterAll
    static void stopServer() throws Exception {
        if (server != null) {
            server.close();
        }
    }

    private Client client(Transport transport) {
        resources = ClientResources.builder().eventLoopGroupProvider(new Provider(transport)).build();
        client = new Client(transport, resources);
        return client;
    }

    @AfterEach
    void end() throws Exception {
        client.assertIsOnItsTransport();
        client.shutdownAsync(0, 10, TimeUnit.SECONDS).get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        resources.shutdown(0, 10, TimeUnit.SECONDS).get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    private static <T> T get(RedisFuture<T> future) throws Exception {
        return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    private static <T> T next(BlockingQueue<T> queue) throws InterruptedException {
        T next = queue.poll(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        if (next == null) {
            throw new AssertionError("nothing came");
        }
        return next;
    }

    @ParameterizedTest
    @EnumSource
    void stringsHashesAndTransactions(Transport transport) {
        RedisCommands<String, String> redis = client(transport).connect().sync();
        redis.flushall();
        for (int length : new int[] {0, 1, 100, 20_000}) {
            assertEquals("OK", redis.set("key", "v".repeat(length)));
            assertEquals("v".repeat(length), redis.get("key"));
        }
        redis.hset("hash", "field", "value");
        assertEquals(List.of(KeyValue.just("field", "value"), KeyValue.empty("none")), redis.hmget("hash", "field", "none"));
        redis.multi();
        redis.incr("count");
        redis.incrby("count", 41);
        TransactionResult result = redis.exec();
        assertEquals(List.of(1L, 42L), result.stream().toList());
    }

    /** Ten thousand commands leave in one flush, and their answers come in order. */
    @ParameterizedTest
    @EnumSource
    void tenThousandPipelinedCommands(Transport transport) throws Exception {
        StatefulRedisConnection<String, String> connection = client(transport).connect();
        RedisAsyncCommands<String, String> redis = connection.async();
        get(redis.flushall());
        connection.setAutoFlushCommands(false);
        List<RedisFuture<Long>> counts = new ArrayList<>();
        List<RedisFuture<String>> echoes = new ArrayList<>();
        for (int command = 0; command < PIPELINED / 2; command++) {
            counts.add(redis.incr("count"));
            echoes.add(redis.echo("e".repeat(command % 500) + command));
        }
        connection.flushCommands();
        connection.setAutoFlushCommands(true);
        for (int command = 0; command < PIPELINED / 2; command++) {
            assertEquals(command + 1, get(counts.get(command)));
            assertEquals("e".repeat(command % 500) + command, get(echoes.get(command)));
        }
    }

    @ParameterizedTest
    @EnumSource
    void bigValues(Transport transport) throws Exception {
        RedisAsyncCommands<byte[], byte[]> redis = client(transport).connect(ByteArrayCodec.INSTANCE).async();
        byte[] key = {1};
        List<RedisFuture<byte[]>> read = new ArrayList<>();
        byte[] value = new byte[BIG_BYTES];
        new Random(1).nextBytes(value);
        assertEquals("OK", get(redis.set(key, value)));
        for (int round = 0; round < 3; round++) {
            read.add(redis.get(key));
        }
        for (RedisFuture<byte[]> each : read) {
            assertArrayEquals(value, get(each));
        }
        get(redis.del(key));
    }

    @ParameterizedTest
    @EnumSource
    void messagesComeToSubscribersInOrder(Transport transport) throws Exception {
        BlockingQueue<String> messages = new LinkedBlockingQueue<>();
        StatefulRedisPubSubConnection<String, String> subscriber = client(transport).connectPubSub();
        subscriber.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String message) {
                messages.add(channel + " " + message);
            }
        });
        subscriber.sync().subscribe("news");
        RedisAsyncCommands<String, String> publisher = client.connect().async();
        List<RedisFuture<Long>> published = new ArrayList<>();
        for (int message = 0; message < MESSAGES; message++) {
            published.add(publisher.publish("news", String.valueOf(message)));
        }
        for (int message = 0; message < MESSAGES; message++) {
            assertEquals(1, get(published.get(message)));
            assertEquals("news " + message, next(messages));
        }
        subscriber.sync().unsubscribe("news");
        assertEquals(0, get(publisher.publish("news", "to nobody")));
        assertTrue(messages.isEmpty());
    }

    /** One waits at the server while others work on the same loops. */
    @ParameterizedTest
    @EnumSource
    void blockingCommands(Transport transport) throws Exception {
        RedisAsyncCommands<String, String> waiting = client(transport).connect().async();
        RedisCommands<String, String> working = client.connect().sync();
        working.del("list");
        for (int round = 0; round < 20; round++) {
            RedisFuture<KeyValue<String, String>> popped = waiting.blpop(0, "list");
            while (!working.clientList().contains("cmd=blpop")) {
                Thread.onSpinWait();
            }
            working.rpush("list", "item " + round);
            assertEquals(KeyValue.just("list", "item " + round), get(popped));
        }
    }

    /** The server ends the connection; lettuce connects anew, and sends what was not answered. */
    @ParameterizedTest
    @EnumSource
    void reconnectsWhenItsConnectionIsKilled(Transport transport) throws Exception {
        RedisCommands<String, String> killed = client(transport).connect().sync();
        RedisCommands<String, String> killer = client.connect().sync();
        killed.set("kept", "value");
        for (int round = 0; round < 5; round++) {
            long before = killed.clientId();
            assertEquals(1, killer.clientKill(KillArgs.Builder.id(before)));
            assertEquals("value", killed.get("kept"));
            assertNotEquals(before, killed.clientId());
        }
    }
}
