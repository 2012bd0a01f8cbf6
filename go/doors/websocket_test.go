package doors

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
)

// The cases of Autobahn|Testsuite that are run. Of those with compression (12.*: what is compressed, 13.*: what is negotiated),
// each has 18 for one length of messages or of their fragments. All of them take two minutes a group and transport, so that of
// each group there are messages of 1 KiB, and of one also fragments. Left out are messages of 4 MiB in fragments of 64 and 256
// bytes, too, which take as long as all others of 9.*, and measure the client.
var (
	websocketCases = []string{
		"1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*", "12.*.4", "12.1.11", "13.*.4", "13.1.11",
	}
	websocketExcluded = []string{"9.3.1", "9.3.2", "9.4.1", "9.4.2"}
)

const (
	// fewestWebSocketCases are those that the strictest of the libraries leaves to be passed, of some 310.
	fewestWebSocketCases = 250
	// websocketTries is for what depends on what a server finds first: an end, or the message ahead of it.
	websocketTries = 20
	// websocketPatience ends a run of the cases that hangs.
	websocketPatience = 10 * time.Minute
)

// outcome is what a case found.
type outcome struct {
	Behavior        string
	BehaviorClose   string
	RemoteCloseCode int
}

// What carries WebSocket makes no difference to what its libraries do with each case of the conformance tests.
func TestWebSocketConformsAsMuchAsOnTheStockTransports(t *testing.T) {
	if os.Getenv("QUOIT_WSTEST") == "" {
		t.Skip("QUOIT_WSTEST names no wstest of Autobahn|Testsuite; make doors-websocket does")
	}
	t.Run("go", func(t *testing.T) {
		var ways []string
		servers := map[string]*net.TCPAddr{}
		eachWay(t, func(name string, w way) {
			l := w.listener(t)
			server := &http.Server{Handler: http.HandlerFunc(echoWebSocket)}
			go server.Serve(l)
			t.Cleanup(func() { server.Close() })
			ways, servers[name] = append(ways, name), l.Addr().(*net.TCPAddr)
		})
		compareWebSocket(t, ways, servers)
	})
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			ways := append([]string{p.stock}, p.ours...)
			servers := map[string]*net.TCPAddr{}
			for _, transport := range ways {
				servers[transport] = p.start(t, "websocket", transport)
			}
			compareWebSocket(t, ways, servers)
		})
	}
}

// echoWebSocket sends every message back.
func echoWebSocket(to http.ResponseWriter, request *http.Request) {
	c, err := websocket.Accept(to, request, &websocket.AcceptOptions{
		CompressionMode: websocket.CompressionContextTakeover, CompressionThreshold: 1,
	})
	if err != nil {
		return // the client was told
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		kind, message, err := c.Read(request.Context())
		if err != nil {
			return
		}
		if kind == websocket.MessageText && !utf8.Valid(message) {
			c.Close(websocket.StatusInvalidFramePayloadData, "text that is not UTF-8") // which the library leaves to its user
			return
		}
		if err := c.Write(request.Context(), kind, message); err != nil {
			return
		}
	}
}

// compareWebSocket holds the outcomes of each way against those of the first, which is the stock transport. Those that differ
// are tried again: they count as the same if either way does once what the other did.
func compareWebSocket(t *testing.T, ways []string, servers map[string]*net.TCPAddr) {
	found := make([]map[string]outcome, len(ways))
	t.Run("each", func(t *testing.T) {
		for at, name := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				found[at] = runAutobahn(t, servers[name], websocketCases, websocketExcluded)
			})
		}
	})
	if t.Failed() {
		return
	}
	stock := found[0]
	counts := map[string]int{}
	for _, one := range stock {
		counts[one.Behavior]++
	}
	t.Logf("of %d cases on %s: %v", len(stock), ways[0], counts)
	if counts["OK"] < fewestWebSocketCases {
		t.Fatalf("%s itself does not what the cases ask for: %v", ways[0], stock)
	}
	for at, name := range ways[1:] {
		ours := found[at+1]
		if !slices.Equal(slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(stock))) {
			t.Fatalf("%s had other cases: %v; %s these: %v", name, ours, ways[0], stock)
		}
		wanted, seen := map[string][]outcome{}, map[string][]outcome{}
		for id := range stock {
			if stock[id] != ours[id] {
				wanted[id], seen[id] = []outcome{stock[id]}, []outcome{ours[id]}
			}
		}
		for try := 1; try < websocketTries && len(wanted) > 0; try++ {
			again := slices.Sorted(maps.Keys(wanted))
			t.Logf("%s: tried again: %v; on %s: %v", name, seen, ways[0], wanted)
			for id, one := range runAutobahn(t, servers[ways[0]], again, nil) {
				wanted[id] = append(wanted[id], one)
			}
			for id, one := range runAutobahn(t, servers[name], again, nil) {
				seen[id] = append(seen[id], one)
			}
			for _, id := range again {
				if slices.ContainsFunc(seen[id], func(one outcome) bool { return slices.Contains(wanted[id], one) }) {
					delete(wanted, id)
					delete(seen, id)
				}
			}
		}
		for id := range wanted {
			t.Errorf("case %s: on %s %+v, on %s %+v", id, name, seen[id], ways[0], wanted[id])
		}
	}
}

// runAutobahn runs cases against a server, and returns what each found, by its number.
func runAutobahn(t *testing.T, address *net.TCPAddr, cases, excluded []string) map[string]outcome {
	t.Helper()
	folder := t.TempDir()
	type server struct {
		Agent string `json:"agent"`
		URL   string `json:"url"`
	}
	const agent = "server"
	spec, err := json.Marshal(struct {
		Out      string   `json:"outdir"`
		Servers  []server `json:"servers"`
		Cases    []string `json:"cases"`
		Excluded []string `json:"exclude-cases"`
	}{
		filepath.Join(folder, "reports"), []server{{agent, fmt.Sprintf("ws://%s/", address)}}, cases,
		append([]string{}, excluded...),
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "spec.json")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	patience, end := context.WithTimeout(t.Context(), websocketPatience)
	defer end()
	wstest := exec.CommandContext(patience, os.Getenv("QUOIT_WSTEST"), "--mode", "fuzzingclient", "--spec", file)
	wstest.Dir = folder
	if said, err := wstest.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said[max(0, len(said)-2000):])
	}
	index, err := os.ReadFile(filepath.Join(folder, "reports", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found map[string]map[string]outcome
	if err := json.Unmarshal(index, &found); err != nil {
		t.Fatal(err)
	}
	return found[agent]
}
