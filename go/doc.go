// Package quoit serves TCP and Unix stream connections, and datagrams, on event loops: on io_uring or epoll through
// libquoit where that can be used, otherwise on package net. The API and its behaviour are the same.
//
// There are two ways in. A Handler is called on the loops, without a goroutine per connection:
//
//	type echo struct{ quoit.BaseHandler }
//
//	func (echo) OnData(c *quoit.Conn)     { c.WriteTo(c) }
//	func (echo) OnWritable(c *quoit.Conn) { c.WriteTo(c) } // what a slow peer left no room for
//
//	err := quoit.Serve(ctx, ":7000", echo{})
//
// And Listen and NewDialer give the net.Listener and net.Conn that existing programs take:
//
//	listener, err := quoit.Listen("tcp", ":8080")
//	err = http.Serve(listener, handler)
//
// The same two ways for datagrams are StartDatagrams with a DatagramHandler, and ListenPacket.
//
// # Which engine runs
//
// EngineAuto takes io_uring where the kernel lets it, otherwise epoll, both in libquoit.so.0: the file that the
// environment's QUOIT_LIBRARY names, or else that on the system's path. Where it is missing or of another version,
// off Linux, with the tag quoit_std, or without cgo and the import of go/nocgo, EngineStd runs on package net. The reason is logged and returned by
// Loops.EngineReason. The tag quoit_static links target/capi/lib/libquoit.a of a clone instead.
//
// # Threads
//
// Each loop of libquoit has a locked thread. It makes one call into the library per turn, in which everything that was
// written since leaves, and what has arrived comes back; no memory of Go's is kept by the library. Callbacks run on
// that thread and must not block. A loop that made goroutines ready lets them run before it waits, or leaves them to another
// processor that is seen to run them in time. What those write while the loop sleeps they send themselves.
//
// A loop that waits keeps one of Go's processors, as every call that blocks does. At most GOMAXPROCS - 1 loops of a
// process do so without limit; a further one keeps its processor for up to 2 ms while it is busy, and otherwise waits in
// Go's own poller, so that timers, goroutines and other descriptors are not held up, also with GOMAXPROCS=1. That costs
// changes of thread: WithSpareProcessor avoids them.
package quoit
