package main

import (
	"errors"
	"sort"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

func init() {
	libraries = append(libraries, library{name: "go-redis", topics: []topic{
		{"strings", goRedis(goRedisStrings)},
		{"hashes", goRedis(goRedisHashes)},
		{"pipelines", goRedis(goRedisPipelines)},
		{"transactions", goRedis(goRedisTransactions)},
		{"pub/sub", goRedis(goRedisPubSub)},
		{"blocking", goRedis(goRedisBlocking)},
		{"scripts", goRedis(goRedisScripts)},
		{"scan", goRedis(goRedisScan)},
	}})
}

func goRedis(work func(*test, *redis.Client)) func(*test) {
	return func(t *test) {
		client := redis.NewClient(&redis.Options{Addr: t.address})
		defer client.Close()
		work(t, client)
	}
}

func goRedisStrings(t *test, r *redis.Client) {
	ctx, a, b := t.ctx, t.together("a"), t.together("b")
	t.ok(r.Ping(ctx).Err())
	t.ok(r.Set(ctx, a, "value", 100*time.Second).Err())
	got, err := r.Get(ctx, a).Result()
	equal(t, got, err, "value")
	fresh, err := r.SetNX(ctx, a, "other", 0).Result()
	equal(t, fresh, err, false)
	length, err := r.Append(ctx, a, "!").Result()
	equal(t, length, err, 6)
	number, err := r.IncrBy(ctx, t.spread("n"), 41).Result()
	equal(t, number, err, 41)
	t.ok(r.MSet(ctx, a, "1", b, "2").Err())
	values, err := r.MGet(ctx, a, b, t.together("none")).Result()
	equal(t, values, err, []any{"1", "2", nil})
	count, err := r.Exists(ctx, a, b).Result()
	equal(t, count, err, 2)
	count, err = r.Del(ctx, a, b).Result()
	equal(t, count, err, 2)
	t.check(errors.Is(r.Get(ctx, a).Err(), redis.Nil), "a deleted key is nil")
}

func goRedisHashes(t *test, r *redis.Client) {
	ctx, h := t.ctx, t.spread("h")
	count, err := r.HSet(ctx, h, "f", "1", "g", "2").Result()
	equal(t, count, err, 2)
	got, err := r.HGet(ctx, h, "f").Result()
	equal(t, got, err, "1")
	some, err := r.HMGet(ctx, h, "f", "none").Result()
	equal(t, some, err, []any{"1", nil})
	number, err := r.HIncrBy(ctx, h, "f", 4).Result()
	equal(t, number, err, 5)
	all, err := r.HGetAll(ctx, h).Result()
	equal(t, all, err, map[string]string{"f": "5", "g": "2"})
	fields, _, err := r.HScan(ctx, h, 0, "*", 10).Result()
	equal(t, len(fields), err, 4)
	count, err = r.HDel(ctx, h, "g").Result()
	equal(t, count, err, 1)
	names, err := r.HKeys(ctx, h).Result()
	equal(t, names, err, []string{"f"})
}

func goRedisPipelines(t *test, r *redis.Client) {
	ctx := t.ctx
	replies := make([]*redis.StringCmd, 200)
	_, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for nth := range replies {
			pipe.Set(ctx, t.spread(nth), nth, 0)
			replies[nth] = pipe.Get(ctx, t.spread(nth))
		}
		return nil
	})
	t.ok(err)
	for nth, reply := range replies {
		equal(t, reply.Val(), reply.Err(), strconv.Itoa(nth))
	}
	pipe := r.Pipeline()
	text := t.spread("text")
	pipe.Set(ctx, text, "text", 0)
	wrong, right := pipe.Incr(ctx, text), pipe.Get(ctx, text)
	_, err = pipe.Exec(ctx)
	t.check(err != nil && wrong.Err() != nil, "the error in its place")
	equal(t, right.Val(), right.Err(), "text")
}

func goRedisTransactions(t *test, r *redis.Client) {
	ctx, a, b := t.ctx, t.together("a"), t.together("b")
	var count *redis.IntCmd
	_, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, a, 1, 0)
		count = pipe.Incr(ctx, a)
		pipe.Set(ctx, b, 5, 0)
		return nil
	})
	t.ok(err)
	equal(t, count.Val(), count.Err(), 2)
	change := func(meanwhile func() error) error {
		return r.Watch(ctx, func(tx *redis.Tx) error {
			if _, err := tx.Get(ctx, a).Int(); err != nil {
				return err
			}
			if err := meanwhile(); err != nil {
				return err
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, a, 7, 0)
				return nil
			})
			return err
		}, a)
	}
	t.ok(change(func() error { return nil }))
	got, err := r.Get(ctx, a).Result()
	equal(t, got, err, "7")
	err = change(func() error { return r.Set(ctx, a, "changed", 0).Err() })
	t.check(errors.Is(err, redis.TxFailedErr), "EXEC in spite of a change to a watched key")
	got, err = r.Get(ctx, a).Result()
	equal(t, got, err, "changed")
}

func goRedisPubSub(t *test, r *redis.Client) {
	ctx, channel, pattern := t.ctx, t.spread("news"), t.spread("n*")
	p := r.Subscribe(ctx, channel)
	defer p.Close()
	_, err := p.ReceiveTimeout(ctx, 5*time.Second)
	t.ok(err)
	t.ok(p.PSubscribe(ctx, pattern))
	_, err = p.ReceiveTimeout(ctx, 5*time.Second)
	t.ok(err)
	receivers, err := r.Publish(ctx, channel, "hello").Result()
	t.ok(err)
	t.check(receivers >= 1, "no receiver")
	patterns := make([]string, 0, 2)
	for range 2 {
		got, err := p.ReceiveTimeout(ctx, 5*time.Second)
		t.ok(err)
		message, is := got.(*redis.Message)
		t.check(is && message.Channel == channel && message.Payload == "hello", "a message")
		patterns = append(patterns, message.Pattern)
	}
	sort.Strings(patterns)
	equal(t, patterns, nil, []string{"", pattern})
	t.ok(p.Ping(ctx))
	_, err = p.ReceiveTimeout(ctx, 5*time.Second)
	t.ok(err)
	t.ok(p.Unsubscribe(ctx, channel))
}

func goRedisBlocking(t *test, r *redis.Client) {
	ctx, a, b, z := t.ctx, t.together("a"), t.together("b"), t.together("z")
	t.later(func() error { return r.RPush(ctx, b, "value").Err() })
	popped, err := r.BLPop(ctx, 4*time.Second, a, b).Result()
	equal(t, popped, err, []string{b, "value"})
	t.check(errors.Is(r.BLPop(ctx, time.Second, a).Err(), redis.Nil), "BLPOP out of time")
	t.later(func() error { return r.RPush(ctx, a, "moved").Err() })
	moved, err := r.BLMove(ctx, a, b, "LEFT", "RIGHT", 4*time.Second).Result()
	equal(t, moved, err, "moved")
	t.later(func() error { return r.ZAdd(ctx, z, redis.Z{Score: 2, Member: "member"}).Err() })
	least, err := r.BZPopMin(ctx, 4*time.Second, z).Result()
	t.ok(err)
	equal(t, least.Score, err, 2)
	x := t.together("x")
	t.later(func() error {
		return r.XAdd(ctx, &redis.XAddArgs{Stream: x, Values: []any{"f", "v"}}).Err()
	})
	read, err := r.XRead(ctx, &redis.XReadArgs{Streams: []string{x, "$"}, Block: 4 * time.Second}).Result()
	t.ok(err)
	equal(t, len(read[0].Messages), err, 1)
}

func goRedisScripts(t *test, r *redis.Client) {
	ctx := t.ctx
	const source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
	got, err := r.Eval(ctx, source, []string{t.spread("a")}, "1").Text()
	equal(t, got, err, "1")
	script := redis.NewScript(source + " -- go-redis")
	for nth := range 20 {
		got, err := script.Run(ctx, r, []string{t.spread(nth)}, nth).Text()
		equal(t, got, err, strconv.Itoa(nth))
	}
	digest, err := r.ScriptLoad(ctx, "return ARGV[1] -- go-redis loaded").Result()
	t.ok(err)
	for nth := range 20 {
		got, err := r.EvalSha(ctx, digest, []string{t.spread(nth)}, nth).Text()
		equal(t, got, err, strconv.Itoa(nth))
	}
	there, err := r.ScriptExists(ctx, digest).Result()
	equal(t, there, err, []bool{true})
}

func goRedisScan(t *test, r *redis.Client) {
	ctx, wanted, found := t.ctx, map[string]bool{}, map[string]bool{}
	for nth := range 300 {
		wanted[t.spread(nth)] = true
		t.ok(r.Set(ctx, t.spread(nth), "1", 0).Err())
	}
	all := r.Scan(ctx, 0, t.spread("*"), 50).Iterator()
	for all.Next(ctx) {
		found[all.Val()] = true
	}
	equal(t, found, all.Err(), wanted)
	size, err := r.DBSize(ctx).Result()
	t.ok(err)
	t.check(size >= 300, "DBSIZE")
}
