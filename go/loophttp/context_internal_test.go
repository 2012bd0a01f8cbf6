package loophttp

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

type own struct{}

// What may be asked of a request's context, before and after its handler has returned, is what context.WithCancel has it be.
func TestTheContextOfARequestIsAsOneThatCanBeCancelled(t *testing.T) {
	server := &http.Server{}
	base := context.WithValue(context.WithValue(t.Context(), own{}, "of the base"), http.ServerContextKey, server)
	questions := map[string]func(context.Context) any{
		"Err":    func(c context.Context) any { return c.Err() },
		"Cause":  func(c context.Context) any { return context.Cause(c) },
		"own":    func(c context.Context) any { return c.Value(own{}) },
		"server": func(c context.Context) any { return c.Value(http.ServerContextKey) == server },
		"none":   func(c context.Context) any { return c.Value("none") },
		"is done": func(c context.Context) any {
			select {
			case <-c.Done():
				return true
			default:
				return false
			}
		},
		"deadline": func(c context.Context) any { _, is := c.Deadline(); return is },
		"a child": func(c context.Context) any {
			child, cancel := context.WithTimeout(c, time.Hour)
			defer cancel()
			return child.Err()
		},
	}
	for name, ask := range questions {
		for _, early := range []bool{false, true} {
			stock, cancel := context.WithCancel(base)
			ours := &requestContext{Context: base}
			if early {
				if wanted, found := ask(stock), ask(ours); wanted != found {
					t.Errorf("%s: %v, and %v before", name, wanted, found)
				}
			}
			cancel()
			ours.ends()
			if wanted, found := ask(stock), ask(ours); wanted != found {
				t.Errorf("%s, asked before %v: %v, and %v after", name, early, wanted, found)
			}
		}
	}
}

func TestWhatHangsOnARequestEndsWithIt(t *testing.T) {
	ours := &requestContext{Context: context.Background()}
	child, cancel := context.WithCancelCause(ours)
	defer cancel(nil)
	told := make(chan struct{})
	stop := context.AfterFunc(ours, func() { close(told) })
	defer stop()
	ours.ends()
	<-child.Done()
	<-told
	if !errors.Is(context.Cause(child), context.Canceled) {
		t.Error(context.Cause(child))
	}
}
