//go:build !quick

package main

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func init() {
	libraries = append(libraries, library{name: "gomemcache", topics: []topic{
		{"values", goMemcache(goMemcacheValues)},
		{"conditions", goMemcache(goMemcacheConditions)},
		{"cas", goMemcache(goMemcacheCas)},
		{"many", goMemcache(goMemcacheMany)},
		{"counters", goMemcache(goMemcacheCounters)},
		{"expiry", goMemcache(goMemcacheExpiry)},
	}})
}

func goMemcache(work func(*test, *memcache.Client)) func(*test) {
	return func(t *test) {
		client := memcache.New(t.address)
		client.Timeout = limit
		defer client.Close()
		t.ok(client.Ping())
		work(t, client)
	}
}

func goMemcacheValues(t *test, c *memcache.Client) {
	large := bytes.Repeat([]byte("x"), 900_000)
	for _, value := range [][]byte{[]byte("text"), {}, {0, 13, 10, 255}, large} {
		t.ok(c.Set(&memcache.Item{Key: t.spread("v"), Value: value, Flags: 77}))
		item, err := c.Get(t.spread("v"))
		t.ok(err)
		t.check(bytes.Equal(item.Value, value) && item.Flags == 77, "what was set is read")
	}
	t.ok(c.Append(&memcache.Item{Key: t.spread("v"), Value: []byte("!")}))
	t.ok(c.Prepend(&memcache.Item{Key: t.spread("v"), Value: []byte("!")}))
	item, err := c.Get(t.spread("v"))
	t.ok(err)
	equal(t, len(item.Value), nil, len(large)+2)
	tooLarge := bytes.Repeat([]byte("x"), 2<<20)
	t.check(c.Set(&memcache.Item{Key: t.spread("v"), Value: tooLarge}) != nil, "2 MiB are refused")
	_, err = c.Get(t.spread("v"))
	t.check(errors.Is(err, memcache.ErrCacheMiss), "and nothing stale is left")
}

func goMemcacheConditions(t *test, c *memcache.Client) {
	item := &memcache.Item{Key: t.spread("c"), Value: []byte("1")}
	t.check(errors.Is(c.Replace(item), memcache.ErrNotStored), "replace of none")
	t.ok(c.Add(item))
	t.check(errors.Is(c.Add(item), memcache.ErrNotStored), "add of one that is there")
	t.ok(c.Replace(item))
	t.ok(c.Delete(item.Key))
	t.check(errors.Is(c.Delete(item.Key), memcache.ErrCacheMiss), "delete of none")
}

func goMemcacheCas(t *test, c *memcache.Client) {
	key := t.spread("cas")
	t.ok(c.Set(&memcache.Item{Key: key, Value: []byte("a")}))
	first, err := c.Get(key)
	t.ok(err)
	second, err := c.Get(key)
	t.ok(err)
	first.Value = []byte("b")
	t.ok(c.CompareAndSwap(first))
	t.check(errors.Is(c.CompareAndSwap(second), memcache.ErrCASConflict), "the second is late")
}

func goMemcacheMany(t *test, c *memcache.Client) {
	keys := []string{t.spread("none")}
	for nth := range 200 {
		key := t.spread(nth)
		keys = append(keys, key)
		t.ok(c.Set(&memcache.Item{Key: key, Value: []byte(strconv.Itoa(nth))}))
	}
	items, err := c.GetMulti(keys)
	t.ok(err)
	equal(t, len(items), nil, 200)
	equal(t, string(items[t.spread(199)].Value), nil, "199")
}

func goMemcacheCounters(t *test, c *memcache.Client) {
	_, err := c.Increment(t.spread("none"), 1)
	t.check(errors.Is(err, memcache.ErrCacheMiss), "incr of none")
	t.ok(c.Set(&memcache.Item{Key: t.spread("n"), Value: []byte("10")}))
	number, err := c.Increment(t.spread("n"), 5)
	equal(t, number, err, uint64(15))
	number, err = c.Decrement(t.spread("n"), 20)
	equal(t, number, err, uint64(0))
}

func goMemcacheExpiry(t *test, c *memcache.Client) {
	key := t.spread("e")
	t.ok(c.Set(&memcache.Item{Key: key, Value: []byte("a"), Expiration: 1000}))
	t.ok(c.Touch(key, 2000))
	t.check(errors.Is(c.Touch(t.spread("none"), 1), memcache.ErrCacheMiss), "touch of none")
	in := int32(time.Now().Add(-time.Hour).Unix())
	t.ok(c.Set(&memcache.Item{Key: key, Value: []byte("a"), Expiration: in}))
	_, err := c.Get(key)
	t.check(errors.Is(err, memcache.ErrCacheMiss), "a time gone by has expired")
}
