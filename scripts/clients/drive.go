// Runs the list of operations with gomemcache, and prints a line for each: its name, a tab, and its result.
//
//	drive gomemcache HOST PORT
//
// `scripts/clients/run.py` has the list and the form of the lines. If the first operation fails, the rest is not run.
package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

var client *memcache.Client

func expect(found, wanted any) {
	if found != wanted {
		panic(fmt.Errorf("returned %.60v, expected %.60v", found, wanted))
	}
}

func done(err error) {
	if err != nil {
		panic(err)
	}
}

// Checks that a call has ended with an error of the client that says why.
func refused(err, wanted error) {
	if !errors.Is(err, wanted) {
		panic(fmt.Errorf("returned %v, expected %v", err, wanted))
	}
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func expectGet(key, value string) {
	found, err := client.Get(key)
	done(err)
	expect(string(found.Value), value)
}

func expectMissing(key string) {
	_, err := client.Get(key)
	refused(err, memcache.ErrCacheMiss)
}

func noise(length int) []byte {
	value := make([]byte, length)
	rand.Read(value)
	return value
}

type operation struct {
	name string
	run  func()
}

var operations = []operation{
	{"set", func() { done(client.Set(item("key", "value"))) }},
	{"get", func() { expectGet("key", "value") }},
	{"get missing", func() { expectMissing("missing") }},
	// A value of gomemcache is bytes, with flags that are the program's.
	{"types", func() {
		done(client.Set(&memcache.Item{Key: "typed", Value: []byte("a\r\nb"), Flags: 0xfedcba98}))
		found, err := client.Get("typed")
		done(err)
		expect(found.Flags, uint32(0xfedcba98))
		expect(string(found.Value), "a\r\nb")
	}},
	{"add", func() {
		done(client.Add(item("added", "one")))
		expectGet("added", "one")
	}},
	{"add existing", func() {
		refused(client.Add(item("added", "two")), memcache.ErrNotStored)
		expectGet("added", "one")
	}},
	{"replace", func() {
		done(client.Replace(item("added", "three")))
		expectGet("added", "three")
		refused(client.Replace(item("missing", "three")), memcache.ErrNotStored)
		expectMissing("missing")
	}},
	{"append", func() {
		done(client.Set(item("joined", "b")))
		done(client.Append(item("joined", "c")))
		expectGet("joined", "bc")
	}},
	{"prepend", func() {
		done(client.Prepend(item("joined", "a")))
		expectGet("joined", "abc")
	}},
	{"cas", func() {
		done(client.Set(item("swapped", "one")))
		found, err := client.Get("swapped")
		done(err)
		expect(string(found.Value), "one")
		found.Value = []byte("two")
		done(client.CompareAndSwap(found))
		expectGet("swapped", "two")
	}},
	{"cas conflict", func() {
		found, err := client.Get("swapped")
		done(err)
		done(client.Set(item("swapped", "three")))
		found.Value = []byte("four")
		refused(client.CompareAndSwap(found), memcache.ErrCASConflict)
		expectGet("swapped", "three")
	}},
	{"incr", func() {
		done(client.Set(item("count", "10")))
		found, err := client.Increment("count", 5)
		done(err)
		expect(found, uint64(15))
	}},
	{"decr", func() {
		found, err := client.Decrement("count", 6)
		done(err)
		expect(found, uint64(9))
		// memcached keeps the length of the number, with a space in the place of a digit.
		kept, err := client.Get("count")
		done(err)
		expect(strings.TrimSpace(string(kept.Value)), "9")
	}},
	{"delete", func() {
		done(client.Delete("key"))
		expectMissing("key")
	}},
	{"delete missing", func() { refused(client.Delete("key"), memcache.ErrCacheMiss) }},
	{"many keys", func() {
		keys := []string{"missing"}
		for number := range 100 {
			key := fmt.Sprintf("many%d", number)
			keys = append(keys, key)
			done(client.Set(item(key, "value of "+key)))
		}
		found, err := client.GetMulti(keys)
		done(err)
		expect(len(found), 100)
		for _, key := range keys[1:] {
			expect(string(found[key].Value), "value of "+key)
		}
	}},
	{"touch", func() {
		done(client.Set(&memcache.Item{Key: "touched", Value: []byte("value"), Expiration: 100}))
		done(client.Touch("touched", 1))
		expectGet("touched", "value")
		time.Sleep(2500 * time.Millisecond)
		expectMissing("touched")
		refused(client.Touch("touched", 1), memcache.ErrCacheMiss)
	}},
	{"gat", func() {
		done(client.Set(&memcache.Item{Key: "gotten", Value: []byte("value"), Expiration: 100}))
		found, err := client.GetAndTouch("gotten", 1)
		done(err)
		expect(string(found.Value), "value")
		time.Sleep(2500 * time.Millisecond)
		expectMissing("gotten")
	}},
	{"expiry", func() {
		done(client.Set(&memcache.Item{Key: "short", Value: []byte("value"), Expiration: 1}))
		done(client.Set(&memcache.Item{Key: "long", Value: []byte("value"), Expiration: 100}))
		time.Sleep(2500 * time.Millisecond)
		expectMissing("short")
		expectGet("long", "value")
	}},
	{"900 KB", func() {
		value := noise(900_000)
		done(client.Set(&memcache.Item{Key: "large", Value: value}))
		found, err := client.Get("large")
		done(err)
		expect(bytes.Equal(found.Value, value), true)
	}},
	{"over 1 MB", func() {
		err := client.Set(&memcache.Item{Key: "over", Value: noise(2_000_000)})
		expect(err != nil && strings.Contains(err.Error(), "too large"), true)
	}},
	{"after over 1 MB", func() {
		done(client.Set(item("after", "value")))
		expectGet("after", "value")
		expectMissing("over")
	}},
	{"key of 250 bytes", func() {
		key := strings.Repeat("k", 250)
		done(client.Set(item(key, "value")))
		expectGet(key, "value")
	}},
	// `Ping` sends the command, and drops the version.
	{"stats", nil},
	{"version", func() { done(client.Ping()) }},
	{"1000 in a row", func() {
		for step := range 1000 {
			done(client.Set(item(fmt.Sprintf("row%d", step), fmt.Sprintf("value%d", step))))
			expectGet(fmt.Sprintf("row%d", step), fmt.Sprintf("value%d", step))
		}
	}},
	{"two at once", func() {
		ends := make(chan error)
		for number := range 2 {
			go func() {
				ends <- try(func() {
					for step := range 200 {
						key := fmt.Sprintf("task%d-%d", number, step)
						done(client.Set(item(key, "value of "+key)))
						expectGet(key, "value of "+key)
					}
				})
			}()
		}
		first, second := <-ends, <-ends
		done(errors.Join(first, second))
	}},
	{"flush_all", func() {
		done(client.Set(item("flushed", "value")))
		done(client.FlushAll())
		expectMissing("flushed")
		done(client.Set(item("flushed", "again")))
		expectGet("flushed", "again")
	}},
}

func try(run func()) (failure error) {
	defer func() {
		if caught := recover(); caught != nil {
			failure = fmt.Errorf("%v", caught)
		}
	}()
	run()
	return nil
}

func main() {
	client = memcache.New(os.Args[2] + ":" + os.Args[3])
	client.Timeout = 20 * time.Second
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/bradfitz/gomemcache" {
			fmt.Printf("client\t%s\ttext\n", dependency.Version)
		}
	}
	for _, operation := range operations {
		result := "not offered"
		if operation.run != nil {
			result = "ok"
			if failure := try(operation.run); failure != nil {
				result = "failed: " + strings.Join(strings.Fields(fmt.Sprintf("%.200s", failure)), " ")
			}
		}
		fmt.Printf("%s\t%s\n", operation.name, result)
		if operation.name == "set" && result != "ok" {
			break
		}
	}
}
