package oracle

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Request is one of the requests that all doors send (fuzz/http-requests.txt).
type Request struct {
	Name string
	// Lines are those of the file: the parts that others can be made of.
	Lines []string
}

// Text is what is sent.
func (r Request) Text() string { return strings.Join(r.Lines, "") }

// Requests reads those of the file.
func Requests(t *testing.T) []Request {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "../../..")
	if _, err := os.Stat(filepath.Join(root, "fuzz")); err != nil {
		t.Skip("not in a clone of the repository")
	}
	content, err := os.ReadFile(filepath.Join(root, "fuzz/http-requests.txt"))
	if err != nil {
		t.Fatal(err)
	}
	requests := parse(string(content))
	if len(requests) < 100 {
		t.Fatalf("only %d requests in the file", len(requests))
	}
	return requests
}

func parse(content string) []Request {
	var requests []Request
	for line := range strings.Lines(content) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if name, found := strings.CutPrefix(line, "= "); found {
			requests = append(requests, Request{Name: name})
			continue
		}
		last := &requests[len(requests)-1]
		last.Lines = append(last.Lines, unescape(line))
	}
	return requests
}

var escapes = map[byte]string{'r': "\r", 'n': "\n", 't': "\t", 's': " ", '\\': "\\"}

// unescape panics where a line is not as the head of the file says.
func unescape(line string) string {
	var text strings.Builder
	for at := 0; at < len(line); at++ {
		if line[at] != '\\' {
			text.WriteByte(line[at])
			continue
		}
		at++
		switch line[at] {
		case 'x':
			value, err := strconv.ParseUint(line[at+1:at+3], 16, 8)
			if err != nil {
				panic(err)
			}
			text.WriteByte(byte(value))
			at += 2
		case '{':
			end := at + strings.IndexByte(line[at:], '}')
			count, repeated, _ := strings.Cut(line[at+1:end], " ")
			times, err := strconv.Atoi(count)
			if err != nil {
				panic(err)
			}
			text.WriteString(strings.Repeat(unescape(repeated), times))
			at = end
		default:
			one, found := escapes[line[at]]
			if !found {
				panic("no escape: " + line)
			}
			text.WriteString(one)
		}
	}
	return text.String()
}

// byteWise is the length up to which a request is sent byte by byte.
const byteWise = 300

// Comparison sends all requests of the file to a stock server and to ours: with another behind each, alone, and cut into single
// bytes; longer ones at two places. It then makes others of their lines, 300, or as many as QUOIT_HTTP_REQUESTS says. A client
// of a server that closes by itself also waits for that.
type Comparison struct {
	Stock   net.Addr
	Differs map[string]string // the reasons of exchanges that are listed as different, by their names or the request's
	Tries   int               // as for HTTPWithRaces

	seen sync.Map // of the stock server, which is asked once
}

// With makes the comparison with one of ours.
func (c *Comparison) With(t *testing.T, ours net.Addr) {
	t.Helper()
	requests := Requests(t)
	random := rand.New(rand.NewPCG(2, 0))
	var exchanges []Exchange
	for _, request := range requests {
		exchanges = append(exchanges, ways(random, request.Name, request.Text())...)
	}
	count := 300
	if wanted, err := strconv.Atoi(os.Getenv("QUOIT_HTTP_REQUESTS")); err == nil {
		count = wanted
	}
	for number := range count {
		text := mixed(random, requests)
		exchange := Exchange{Name: fmt.Sprintf("mixed %d", number), Pieces: []string{text + last}, AnyEnd: true}
		if number%4 == 0 {
			exchange.Pieces = cuts(random, text+last)
		}
		exchanges = append(exchanges, exchange)
	}
	c.compare(t, ours, exchanges)
	c.compare(t, ours, c.closing(requests))
}

func (c *Comparison) compare(t *testing.T, ours net.Addr, exchanges []Exchange) {
	t.Helper()
	for index := range exchanges {
		request, _, _ := strings.Cut(exchanges[index].Name, wayIs)
		exchanges[index].Differs = cmp.Or(c.Differs[exchanges[index].Name], c.Differs[request])
	}
	compareAll(t, c.Stock, ours, exchanges, max(c.Tries, 1), &c.seen)
}

// wayIs is between the name of a request and the way in which it is sent.
const wayIs = " | "

// ways are the exchanges in which a request is sent. Where a server may close with more to read, any end is right.
func ways(random *rand.Rand, name, text string) []Exchange {
	pieces := cuts(random, text+last)
	if len(text) <= byteWise {
		pieces = strings.Split(text, "")
		for at := range pieces {
			pieces[at] = text[at : at+1] // not runes
		}
		pieces = append(pieces, last)
	}
	return []Exchange{
		{Name: name + wayIs + "and another", Pieces: []string{text + last}, AnyEnd: true},
		{Name: name + wayIs + "alone", Pieces: []string{text}, AnyEnd: len(text) > 2000},
		{Name: name + wayIs + "cut", Pieces: pieces, AnyEnd: true},
	}
}

// cuts are the pieces of a text that is cut at two places.
func cuts(random *rand.Rand, text string) []string {
	first := random.IntN(len(text))
	second := first + random.IntN(len(text)-first)
	return slices.DeleteFunc([]string{text[:first], text[first:second], text[second:]}, func(piece string) bool { return piece == "" })
}

// mixed makes a request of the lines of others.
func mixed(random *rand.Rand, requests []Request) string {
	any := func() Request { return requests[random.IntN(len(requests))] }
	var text strings.Builder
	for range 1 + random.IntN(3) {
		if random.IntN(3) > 0 {
			text.WriteString("POST /x HTTP/1.1\r\nHost: x\r\n")
		} else {
			text.WriteString(any().Lines[0])
		}
		for range random.IntN(4) {
			// Any line of a head, and sometimes one of a body, but not the end of a head.
			if lines := any().Lines; len(lines) > 2 {
				if line := lines[1+random.IntN(min(3, len(lines)-1))]; line != "\r\n" {
					text.WriteString(line)
				}
			}
		}
		text.WriteString("\r\n")
		lines := any().Lines
		if end := slices.Index(lines, "\r\n"); end >= 0 {
			text.WriteString(strings.Join(lines[end+1:], ""))
		}
	}
	return text.String()
}

// closing are exchanges whose client waits for the end: those of which the stock server has said that it closes, and said the
// same where another request follows, so that it is not for the client's end.
func (c *Comparison) closing(requests []Request) []Exchange {
	last := func(request Request, way string) string {
		seen, _ := c.seen.Load(request.Name + wayIs + way)
		return seen.(string)[max(strings.LastIndex(seen.(string), "[HTTP/1."), 0):]
	}
	var exchanges []Exchange
	for _, request := range requests {
		alone := last(request, "alone")
		if strings.HasSuffix(request.Name, unfinished) || !strings.Contains(alone, "close=true") ||
			alone != last(request, "and another") {
			continue
		}
		text := request.Text()
		exchanges = append(exchanges, Exchange{
			Name: request.Name + wayIs + "to its end", Pieces: []string{text}, Waits: true, AnyEnd: len(text) > 2000,
		})
	}
	return exchanges
}

// unfinished is how the name of a request ends for whose rest a server may wait.
const unfinished = " ..."
