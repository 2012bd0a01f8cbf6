// Package example is what the mains of the examples share: an address to listen on, and an end by signal.
package example

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
)

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
