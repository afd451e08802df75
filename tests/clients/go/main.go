// Command stock-clients runs stock Go clients: stock-clients HOST:PORT [LIBRARY ...]
//
// It prints a line per case: language, library, topic, pass or fail, reason.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

const limit = 20 * time.Second

// A library is what one client can do: its topics in order, each with its case.
type library struct {
	name   string
	topics []topic
}

type topic struct {
	name string
	run  func(t *test)
}

// Filled by the file of each library.
var libraries []library

// A test is one case: it names keys and fails by panicking with a failure.
type test struct {
	ctx     context.Context
	address string
	base    string
}

type failure string

// spread names a key that may be on any shard.
func (t *test) spread(name any) string { return fmt.Sprintf("%s:%v", t.base, name) }

// together names a key that shares its shard with the others of the case.
func (t *test) together(name any) string { return fmt.Sprintf("{%s}:%v", t.base, name) }

func (t *test) ok(err error) {
	if err != nil {
		panic(failure(err.Error()))
	}
}

func (t *test) check(condition bool, what string) {
	if !condition {
		panic(failure(what))
	}
}

func equal[T any](t *test, got T, err error, wanted T) {
	t.ok(err)
	if !reflect.DeepEqual(got, wanted) {
		panic(failure(fmt.Sprintf("expected %v, got %v", wanted, got)))
	}
}

// later runs work a little after a blocking command was sent.
func (t *test) later(work func() error) {
	go func() {
		select {
		case <-time.After(300 * time.Millisecond):
			if err := work(); err != nil && os.Getenv("STOCK_VERBOSE") != "" {
				fmt.Fprintln(os.Stderr, err)
			}
		case <-t.ctx.Done():
		}
	}()
}

// Runs one case under a limit; a case that does not end is left behind.
func run(address string, of library, one topic) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	base := fmt.Sprintf("go:%s:%s", of.name, one.name)
	t := &test{ctx: ctx, address: address, base: base}
	ended := make(chan error, 1)
	go func() {
		defer func() {
			switch cause := recover().(type) {
			case nil:
				ended <- nil
			case failure:
				ended <- errors.New(string(cause))
			default:
				ended <- fmt.Errorf("panic: %v", cause)
			}
		}()
		one.run(t)
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(limit + 2*time.Second):
		return fmt.Errorf("no end within %s", limit)
	}
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: stock-clients HOST:PORT [LIBRARY ...]")
		os.Exit(1)
	}
	wanted := os.Args[2:]
	for _, of := range libraries {
		if len(wanted) > 0 && !contains(wanted, of.name) {
			continue
		}
		for _, one := range of.topics {
			verdict := "pass\t"
			if err := run(os.Args[1], of, one); err != nil {
				verdict = "fail\t" + strings.Join(strings.Fields(err.Error()), " ")
			}
			fmt.Printf("go\t%s\t%s\t%s\n", of.name, one.name, verdict)
		}
	}
}

func contains(all []string, one string) bool {
	for _, name := range all {
		if name == one {
			return true
		}
	}
	return false
}
