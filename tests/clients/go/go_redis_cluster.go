package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func init() {
	libraries = append(libraries, library{name: "go-redis ClusterClient", topics: []topic{
		{"many keys", goCluster(goClusterKeys)},
		{"pipelines", goCluster(goClusterPipelines)},
		{"transactions", goCluster(goClusterTransactions)},
		{"pub/sub", goCluster(goClusterPubSub)},
		{"sharded pub/sub", goCluster(goClusterSharded)},
		{"a node stops", goCluster(goClusterStops)},
	}})
}

func goCluster(work func(*test, *redis.ClusterClient)) func(*test) {
	return func(t *test) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(t.address, ",")})
		defer client.Close()
		work(t, client)
	}
}

func goClusterKeys(t *test, r *redis.ClusterClient) {
	for nth := range 300 {
		t.ok(r.Set(t.ctx, t.spread(nth), nth, 0).Err())
	}
	for nth := range 300 {
		got, err := r.Get(t.ctx, t.spread(nth)).Result()
		equal(t, got, err, strconv.Itoa(nth))
	}
	a, b := t.together("a"), t.together("b")
	t.ok(r.MSet(t.ctx, a, "1", b, "2").Err())
	values, err := r.MGet(t.ctx, a, b, t.together("none")).Result()
	equal(t, values, err, []any{"1", "2", nil})
	count, err := r.Del(t.ctx, a, b).Result()
	equal(t, count, err, 2)
}

func goClusterPipelines(t *test, r *redis.ClusterClient) {
	replies := make([]*redis.StringCmd, 300)
	_, err := r.Pipelined(t.ctx, func(pipe redis.Pipeliner) error {
		for nth := range replies {
			pipe.Set(t.ctx, t.spread(nth), nth, 0)
			replies[nth] = pipe.Get(t.ctx, t.spread(nth))
		}
		return nil
	})
	t.ok(err)
	for nth, reply := range replies {
		equal(t, reply.Val(), reply.Err(), strconv.Itoa(nth))
	}
}

func goClusterTransactions(t *test, r *redis.ClusterClient) {
	n := t.together("n")
	t.ok(r.Del(t.ctx, n).Err())
	var first, second *redis.IntCmd
	_, err := r.TxPipelined(t.ctx, func(pipe redis.Pipeliner) error {
		first, second = pipe.Incr(t.ctx, n), pipe.IncrBy(t.ctx, n, 4)
		pipe.Set(t.ctx, t.together("other"), "x", 0)
		return nil
	})
	t.ok(err)
	equal(t, []int64{first.Val(), second.Val()}, nil, []int64{1, 5})
}

func goClusterPubSub(t *test, r *redis.ClusterClient) {
	heard(t, r.Subscribe(t.ctx, t.spread("news")), func() error {
		return r.Publish(t.ctx, t.spread("news"), "hello").Err()
	})
}

func goClusterSharded(t *test, r *redis.ClusterClient) {
	for nth := range 5 {
		channel := t.spread(fmt.Sprintf("shard%d", nth))
		heard(t, r.SSubscribe(t.ctx, channel), func() error {
			return r.SPublish(t.ctx, channel, "hello").Err()
		})
	}
}

func heard(t *test, listener *redis.PubSub, publish func() error) {
	defer listener.Close()
	_, err := listener.Receive(t.ctx)
	t.ok(err)
	t.ok(publish())
	message, err := listener.ReceiveMessage(t.ctx)
	t.ok(err)
	equal(t, message.Payload, nil, "hello")
}

func goClusterStops(t *test, r *redis.ClusterClient) {
	pid, err := strconv.Atoi(os.Getenv("STOCK_VICTIM"))
	t.ok(err)
	for nth := range 100 {
		t.ok(r.Set(t.ctx, t.spread(nth), nth, 0).Err())
	}
	t.ok(syscall.Kill(pid, syscall.SIGKILL))
	deadline := time.Now().Add(15 * time.Second)
	for nth := range 100 {
		for {
			got, err := r.Get(t.ctx, t.spread(nth)).Result()
			if err == nil {
				equal(t, got, err, strconv.Itoa(nth))
				if err = r.Set(t.ctx, t.spread(nth), nth, 0).Err(); err == nil {
					break
				}
			}
			t.check(time.Now().Before(deadline), fmt.Sprintf("it goes on: %v", err))
			time.Sleep(20 * time.Millisecond)
		}
	}
}
