//go:build !quick

package main

import (
	"context"
	"sort"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

func init() {
	libraries = append(libraries, library{name: "rueidis", topics: []topic{
		{"strings", overRueidis(rueidisStrings)},
		{"hashes", overRueidis(rueidisHashes)},
		{"pipelines", overRueidis(rueidisPipelines)},
		{"transactions", overRueidis(rueidisTransactions)},
		{"pub/sub", overRueidis(rueidisPubSub)},
		{"blocking", overRueidis(rueidisBlocking)},
		{"scripts", overRueidis(rueidisScripts)},
		{"scan", overRueidis(rueidisScan)},
		{"client-side caching", overRueidis(rueidisCaching)},
	}})
}

func overRueidis(work func(*test, rueidis.Client)) func(*test) {
	return func(t *test) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{t.address}})
		t.ok(err)
		defer client.Close()
		work(t, client)
	}
}

func rueidisStrings(t *test, r rueidis.Client) {
	ctx, a, b := t.ctx, t.together("a"), t.together("b")
	t.ok(r.Do(ctx, r.B().Set().Key(a).Value("value").ExSeconds(100).Build()).Error())
	got, err := r.Do(ctx, r.B().Get().Key(a).Build()).ToString()
	equal(t, got, err, "value")
	err = r.Do(ctx, r.B().Set().Key(a).Value("other").Nx().Build()).Error()
	t.check(rueidis.IsRedisNil(err), "SET NX of what is there")
	number, err := r.Do(ctx, r.B().Incrby().Key(t.spread("n")).Increment(41).Build()).AsInt64()
	equal(t, number, err, 41)
	t.ok(r.Do(ctx, r.B().Mset().KeyValue().KeyValue(a, "1").KeyValue(b, "2").Build()).Error())
	values, err := r.Do(ctx, r.B().Mget().Key(a, b).Build()).AsStrSlice()
	equal(t, values, err, []string{"1", "2"})
	count, err := r.Do(ctx, r.B().Del().Key(a, b).Build()).AsInt64()
	equal(t, count, err, 2)
}

func rueidisHashes(t *test, r rueidis.Client) {
	ctx, h := t.ctx, t.spread("h")
	set := r.B().Hset().Key(h).FieldValue().FieldValue("f", "1").FieldValue("g", "2").Build()
	count, err := r.Do(ctx, set).AsInt64()
	equal(t, count, err, 2)
	number, err := r.Do(ctx, r.B().Hincrby().Key(h).Field("f").Increment(4).Build()).AsInt64()
	equal(t, number, err, 5)
	all, err := r.Do(ctx, r.B().Hgetall().Key(h).Build()).AsStrMap()
	equal(t, all, err, map[string]string{"f": "5", "g": "2"})
	some, err := r.Do(ctx, r.B().Hscan().Key(h).Cursor(0).Build()).AsScanEntry()
	equal(t, len(some.Elements), err, 4)
	count, err = r.Do(ctx, r.B().Hdel().Key(h).Field("f", "g").Build()).AsInt64()
	equal(t, count, err, 2)
}

func rueidisPipelines(t *test, r rueidis.Client) {
	commands := make(rueidis.Commands, 0, 400)
	for nth := range 200 {
		commands = append(commands,
			r.B().Set().Key(t.spread(nth)).Value(strconv.Itoa(nth)).Build(),
			r.B().Get().Key(t.spread(nth)).Build())
	}
	replies := r.DoMulti(t.ctx, commands...)
	for nth := range 200 {
		got, err := replies[2*nth+1].ToString()
		equal(t, got, err, strconv.Itoa(nth))
	}
}

func rueidisTransactions(t *test, r rueidis.Client) {
	ctx, a := t.ctx, t.together("a")
	set := func(c rueidis.DedicatedClient, value string) []rueidis.RedisResult {
		return c.DoMulti(ctx, c.B().Multi().Build(),
			c.B().Set().Key(a).Value(value).Build(),
			c.B().Append().Key(a).Value("!").Build(), c.B().Exec().Build())
	}
	t.ok(r.Dedicated(func(c rueidis.DedicatedClient) error {
		replies, err := set(c, "value")[3].ToArray()
		t.ok(err)
		length, err := replies[1].AsInt64()
		equal(t, length, err, 6)
		t.ok(c.Do(ctx, c.B().Watch().Key(a).Build()).Error())
		t.ok(r.Do(ctx, r.B().Set().Key(a).Value("changed").Build()).Error())
		err = set(c, "lost")[3].Error()
		t.check(rueidis.IsRedisNil(err), "EXEC in spite of a change to a watched key")
		return nil
	}))
	got, err := r.Do(ctx, r.B().Get().Key(a).Build()).ToString()
	equal(t, got, err, "changed")
}

func rueidisPubSub(t *test, r rueidis.Client) {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	channel, pattern := t.spread("news"), t.spread("n*")
	heard, failed := make(chan string, 8), make(chan error, 2)
	receive := func(command rueidis.Completed) {
		failed <- r.Receive(ctx, command, func(m rueidis.PubSubMessage) { heard <- m.Pattern + m.Message })
	}
	go receive(r.B().Subscribe().Channel(channel).Build())
	go receive(r.B().Psubscribe().Pattern(pattern).Build())
	// Receive does not say when a subscription stands: publish until both heard.
	deadline := time.After(5 * time.Second)
	got := map[string]bool{}
	for len(got) < 2 {
		t.ok(r.Do(ctx, r.B().Publish().Channel(channel).Message("hello").Build()).Error())
		select {
		case one := <-heard:
			got[one] = true
		case err := <-failed:
			t.ok(err)
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.check(false, "no message within 5 s")
		}
	}
	names := make([]string, 0, 2)
	for one := range got {
		names = append(names, one)
	}
	sort.Strings(names)
	equal(t, names, nil, []string{pattern + "hello", "hello"})
}

func rueidisBlocking(t *test, r rueidis.Client) {
	ctx, a, b := t.ctx, t.together("a"), t.together("b")
	push := func(key, value string) func() error {
		return func() error {
			return r.Do(ctx, r.B().Rpush().Key(key).Element(value).Build()).Error()
		}
	}
	t.later(push(b, "value"))
	popped, err := r.Do(ctx, r.B().Blpop().Key(a, b).Timeout(4).Build()).AsStrSlice()
	equal(t, popped, err, []string{b, "value"})
	err = r.Do(ctx, r.B().Blpop().Key(a).Timeout(1).Build()).Error()
	t.check(rueidis.IsRedisNil(err), "BLPOP out of time")
	t.later(push(a, "moved"))
	move := r.B().Blmove().Source(a).Destination(b).Left().Right().Timeout(4).Build()
	moved, err := r.Do(ctx, move).ToString()
	equal(t, moved, err, "moved")
}

func rueidisScripts(t *test, r rueidis.Client) {
	script := rueidis.NewLuaScript("return {KEYS[1], ARGV[1]} -- rueidis")
	for nth := range 20 {
		key := t.spread(nth)
		got, err := script.Exec(t.ctx, r, []string{key}, []string{strconv.Itoa(nth)}).AsStrSlice()
		equal(t, got, err, []string{key, strconv.Itoa(nth)})
	}
	load := r.B().ScriptLoad().Script("return ARGV[1] -- rueidis loaded").Build()
	digest, err := r.Do(t.ctx, load).ToString()
	t.ok(err)
	for nth := range 20 {
		call := r.B().Evalsha().Sha1(digest).Numkeys(1).Key(t.spread(nth)).Arg("7").Build()
		got, err := r.Do(t.ctx, call).ToString()
		equal(t, got, err, "7")
	}
}

func rueidisScan(t *test, r rueidis.Client) {
	ctx, wanted, found := t.ctx, map[string]bool{}, map[string]bool{}
	for nth := range 300 {
		wanted[t.spread(nth)] = true
		t.ok(r.Do(ctx, r.B().Set().Key(t.spread(nth)).Value("1").Build()).Error())
	}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		some, err := r.Do(ctx, r.B().Scan().Cursor(cursor).Match(t.spread("*")).Count(50).Build()).AsScanEntry()
		t.ok(err)
		for _, key := range some.Elements {
			found[key] = true
		}
		cursor = some.Cursor
	}
	equal(t, found, nil, wanted)
}

func rueidisCaching(t *test, r rueidis.Client) {
	ctx, key := t.ctx, t.spread("cached")
	read := func() (rueidis.RedisResult, string) {
		reply := r.DoCache(ctx, r.B().Get().Key(key).Cache(), time.Minute)
		text, err := reply.ToString()
		t.ok(err)
		return reply, text
	}
	other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{t.address}})
	t.ok(err)
	defer other.Close()
	write := func(value string) {
		t.ok(other.Do(ctx, other.B().Set().Key(key).Value(value).Build()).Error())
	}
	write("first")
	read()
	reply, text := read()
	t.check(reply.IsCacheHit() && text == "first", "not served from the client's cache")
	write("second")
	for text != "second" {
		t.check(ctx.Err() == nil, "never invalidated")
		time.Sleep(10 * time.Millisecond)
		_, text = read()
	}
}
