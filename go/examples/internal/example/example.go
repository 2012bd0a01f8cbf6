// Package example is what the mains of the examples share: an address to listen on, an end by signal, and how long that
// may last.
package example

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// drainLimit is for how long requests that are under way may go on after the signal: less than what waits for the
// process, such as Kubernetes for 30 s.
const drainLimit = 10 * time.Second

// Run calls serve with the address of the command line, until it ends by itself or by SIGINT or SIGTERM. serve calls
// ready when it listens.
func Run(serve func(ctx context.Context, address string, ready func(net.Addr)) error) {
	address := flag.String("listen", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *address, func(at net.Addr) { fmt.Println("listening on", at) }); err != nil {
		log.Fatal(err)
	}
}

// Drain shuts down, one after the other, what is to end before the process: a server, and then the listener below it. What
// is not over within the limit is aborted, which is no failure of the program's.
func Drain(shutdowns ...func(context.Context) error) error {
	limit, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	var failures []error
	for _, shutdown := range shutdowns {
		if err := shutdown(limit); errors.Is(err, context.DeadlineExceeded) {
			log.Print("what was not over in time was aborted")
		} else {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}
