package loophttp_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/turns"
	"github.com/quoit-io/quoit/go/loophttp"
)

// What is left behind a request when its handler has returned: by net/http, and by our loops.

// post sends a request with a body, and returns the one of the response.
func (c client) post(t *testing.T, path, body string) string {
	t.Helper()
	fmt.Fprintf(c.Conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	_, text := c.answer(t, "POST")
	return text
}

// A handler that keeps a body has no part of what others send, nor of its own request's.
func TestABodyEndsWithItsHandler(t *testing.T) {
	const ours, others = 10_000, 20_000 // longer than the buffer of a reader
	for _, before := range []int{0, 10, 6000, ours} {
		for _, chooses := range []bool{false, true} {
			kept := make(chan io.ReadCloser, 1)
			keep := func(r *http.Request) {
				_, _ = io.CopyN(io.Discard, r.Body, int64(before))
				kept <- r.Body
			}
			made := func() *http.Server {
				return quietServer(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/kept" {
						keep(r)
					}
				})
			}
			var options []loophttp.Option
			if chooses {
				// It has a body of its own.
				options = append(options, loophttp.Blocking(func(r *http.Request) bool {
					if r.URL.Path == "/chosen" {
						keep(r)
					}
					return false
				}))
			}
			t.Run(fmt.Sprintf("%d read, chosen %v", before, chooses), func(t *testing.T) {
				differing(t, made, options, func(t *testing.T, address net.Addr, stock bool) {
					path := "/kept"
					if chooses && !stock {
						path = "/chosen"
					}
					c := dial(t, address)
					c.post(t, path, strings.Repeat("a", ours))
					c.post(t, "/", "") // with net/http the response leaves before the body is closed
					body := receive(t, kept)
					dial(t, address).post(t, "/", strings.Repeat("secret", others/6))
					buffer := make([]byte, ours)
					if n, err := body.Read(buffer); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
						t.Errorf("%q, %v", buffer[:min(n, 20)], err)
					}
				})
			})
		}
	}
}

// A goroutine that reads a body while its handler returns gets bytes of that body, or an error.
func TestABodyIsReadWhileItsHandlerReturns(t *testing.T) {
	const length, rounds = 10_000, 50
	type result struct {
		strange string
		err     error
	}
	results := make(chan result, 1)
	made := func() *http.Server {
		return quietServer(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/kept" {
				return
			}
			body, began := r.Body, make(chan struct{})
			go func() {
				var found result
				buffer := make([]byte, 10)
				close(began)
				for found.err == nil {
					var n int
					n, found.err = body.Read(buffer)
					found.strange += strings.ReplaceAll(string(buffer[:n]), "a", "")
				}
				results <- found
			}()
			<-began
		})
	}
	differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
		c, other := dial(t, address), dial(t, address)
		for range rounds {
			c.post(t, "/kept", strings.Repeat("a", length))
			other.post(t, "/", strings.Repeat("b", length))
			found := receive(t, results)
			if found.strange != "" || found.err != io.EOF && !errors.Is(found.err, http.ErrBodyReadAfterClose) {
				t.Fatalf("%.20q, %v", found.strange, found.err)
			}
		}
	})
}

// Files of a form that lie on the disk go with their request.
func TestTheFilesOfAFormAreRemoved(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	files := func(t *testing.T) int {
		found, err := os.ReadDir(folder)
		if err != nil {
			t.Error(err)
		}
		return len(found)
	}
	const form = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n%s\r\n--x--\r\n"
	content := fmt.Sprintf(form, strings.Repeat("a", 100))
	parse := func(t *testing.T, r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil {
			t.Error(err)
		}
		if files(t) == 0 {
			t.Error("the form has no file on the disk")
		}
	}
	for _, by := range []string{"the handler", "Blocking, for the loop", "Blocking, for a goroutine"} {
		t.Run(by, func(t *testing.T) {
			made := func() *http.Server {
				return quietServer(func(w http.ResponseWriter, r *http.Request) {
					if by == "the handler" && r.Method == http.MethodPost {
						parse(t, r)
					}
				})
			}
			var options []loophttp.Option
			if by != "the handler" {
				options = append(options, loophttp.Blocking(func(r *http.Request) bool {
					if r.Method == http.MethodPost {
						parse(t, r)
					}
					return by == "Blocking, for a goroutine"
				}))
			}
			differing(t, made, options, func(t *testing.T, address net.Addr, stock bool) {
				c := dial(t, address)
				fmt.Fprintf(c.Conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n%s",
					len(content), content)
				c.answer(t, "POST")
				io.WriteString(c.Conn, plainGet)
				c.answer(t, "GET") // with net/http the first response leaves before the files are removed
				if left := files(t); left != 0 {
					t.Errorf("%d are left", left)
				}
			})
		})
	}
}

// hijacked answers with each byte that comes, after what a handler had to say about its response.
func hijacked(w http.ResponseWriter, said func() string) {
	connection, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	text := said()
	go func() {
		defer connection.Close()
		_, _ = io.WriteString(connection, text)
		_, _ = io.Copy(connection, buffered)
	}()
}

// A hijacked connection is the hijacker's: its response is none any more, and no end of the handler ends it.
func TestAHijackedConnectionIsLeftAlone(t *testing.T) {
	for _, ends := range []string{"returns", "panics", "aborts", "exits"} {
		t.Run(ends, func(t *testing.T) {
			const text = "ErrHijacked ErrHijacked ErrHijacked 0 "
			made := func() *http.Server {
				return quietServer(func(w http.ResponseWriter, r *http.Request) {
					hijacked(w, func() string {
						w.WriteHeader(http.StatusTeapot)
						said := ""
						n, err := w.Write([]byte("none"))
						_, err2 := io.WriteString(w, "")
						_, _, err3 := http.NewResponseController(w).Hijack()
						for _, one := range []error{err, err2, err3} {
							if errors.Is(one, http.ErrHijacked) {
								said += "ErrHijacked "
							} else {
								said += fmt.Sprint(one, " ")
							}
						}
						return said + fmt.Sprint(n, " ")
					})
					switch ends {
					case "panics":
						panic("as asked")
					case "aborts":
						panic(http.ErrAbortHandler)
					case "exits":
						runtime.Goexit()
					}
				})
			}
			differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
				c := dial(t, address)
				io.WriteString(c.Conn, plainGet)
				said := make([]byte, len(text))
				if _, err := io.ReadFull(c, said); string(said) != text || err != nil {
					t.Errorf("%q, %v", said, err)
				}
				// Whatever the handler's end brings has come when another request is served.
				other := dial(t, address)
				io.WriteString(other.Conn, plainGet)
				if _, err := io.ReadFull(other, said); err != nil {
					t.Error(err)
				}
				for _, one := range "ab" {
					io.WriteString(c.Conn, string(one))
					if came, err := c.ReadByte(); rune(came) != one || err != nil {
						t.Errorf("%q, %v", came, err)
					}
				}
			})
		})
	}
}

// The body of a request whose connection was hijacked is its handler's for ever.
func TestTheBodyOfAHijackedRequestStays(t *testing.T) {
	const length = 10_000
	kept := make(chan io.ReadCloser, 1)
	made := func() *http.Server {
		return quietServer(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/kept" {
				return
			}
			_, _ = io.CopyN(io.Discard, r.Body, 10)
			if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
				panic(err)
			}
			kept <- r.Body
		})
	}
	differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
		c := dial(t, address)
		fmt.Fprintf(c.Conn, "POST /kept HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", length, strings.Repeat("a", length))
		body := receive(t, kept)
		for range 3 {
			dial(t, address).post(t, "/", strings.Repeat("b", length))
		}
		text, err := io.ReadAll(body)
		if string(text) != strings.Repeat("a", length-10) || err != nil {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	})
}

// What a handler has not read of a body, when it takes the connection over, comes first from the reader that it is given: that reader
// and the body are one stream.
func TestAHijackerReadsTheRestOfTheBody(t *testing.T) {
	const behind = "behind"
	for _, length := range []int{1, 10, 3000, 4096, 10_000} {
		for _, before := range []int{0, 1, 10, 6000, 10_000} {
			for _, copies := range []bool{false, true} {
				if before > length {
					continue
				}
				t.Run(fmt.Sprintf("%d of %d read, copied %v", before, length, copies), func(t *testing.T) {
					sent := strings.Repeat("abcdefghij", length/10+1)[:length]
					made := func() *http.Server {
						return quietServer(func(w http.ResponseWriter, r *http.Request) {
							first := make([]byte, before)
							if _, err := io.ReadFull(r.Body, first); err != nil {
								panic(err)
							}
							connection, buffered, err := http.NewResponseController(w).Hijack()
							if err != nil {
								panic(err)
							}
							go func() {
								defer connection.Close()
								_, _ = connection.Write(first)
								if copies {
									_, _ = io.Copy(connection, buffered)
									return
								}
								rest := make([]byte, length-before+len(behind))
								n, _ := io.ReadFull(buffered, rest)
								_, _ = connection.Write(rest[:n])
							}()
						})
					}
					differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
						c := dial(t, address)
						fmt.Fprintf(c.Conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", length, sent)
						came := make([]byte, before)
						if _, err := io.ReadFull(c, came); err != nil {
							t.Fatal(err)
						}
						io.WriteString(c.Conn, behind)
						c.Conn.(*net.TCPConn).CloseWrite()
						rest, err := io.ReadAll(c)
						if all := string(came) + string(rest); all != sent+behind || err != nil {
							t.Errorf("%d of %d bytes, the last ones %q, %v", len(all), length+len(behind), all[max(0, len(all)-20):], err)
						}
					})
				})
			}
		}
	}
}

// Requests that come faster than they are served stop their peer. A hijack behind the last of them lets it go on.
func TestAHijackBehindManyRequestsReceives(t *testing.T) {
	const limit, requests = 1000, turns.Share + 40 // more than the limit is left for the turn that hijacks
	made := func() *http.Server {
		return quietServer(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hijack" {
				hijacked(w, func() string { return "" })
			}
		})
	}
	many := strings.Repeat(plainGet, requests) + "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n"
	test := func(t *testing.T, address net.Addr, stock bool) {
		c := dial(t, address)
		io.WriteString(c.Conn, many)
		for range requests {
			c.answer(t, "GET")
		}
		io.WriteString(c.Conn, "x")
		if came, err := c.ReadByte(); came != 'x' || err != nil {
			t.Errorf("%q, %v", came, err)
		}
	}
	differing(t, made, []loophttp.Option{loophttp.RequestLimit(limit / 2)}, test, quoit.WithInboundLimit(limit))
}
