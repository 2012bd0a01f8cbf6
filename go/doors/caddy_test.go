package doors

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

// Caddy serves, and proxies to itself, on a listener that a network of its configuration names.
func TestCaddyServes(t *testing.T) {
	onEachWay(t, func(t *testing.T, w way) {
		network := "doors-" + fmt.Sprint(len(networks))
		networks = append(networks, network)
		front, back := w.listener(t), w.listener(t)
		listeners := map[string]net.Listener{"1": front, "2": back}
		caddy.RegisterNetwork(network, func(
			_ context.Context, _, _, port string, _ uint, _ net.ListenConfig,
		) (any, error) {
			return listeners[port], nil
		})
		configuration := fmt.Sprintf(`{
			"admin": {"disabled": true},
			"logging": {"logs": {"default": {"level": "ERROR"}}},
			"apps": {"http": {"servers": {
				"front": {
					"listen": ["%[1]s/127.0.0.1:1"], "automatic_https": {"disable": true},
					"routes": [{"handle": [{"handler": "reverse_proxy", "upstreams": [{"dial": "%[2]s"}]}]}]
				},
				"back": {
					"listen": ["%[1]s/127.0.0.1:2"], "automatic_https": {"disable": true},
					"routes": [{"handle": [{"handler": "static_response", "body": "{http.request.uri.path} {http.request.body}"}]}]
				}
			}}}
		}`, network, back.Addr())
		if err := caddy.Load([]byte(configuration), true); err != nil {
			t.Fatal(err)
		}
		var clients sync.WaitGroup
		for number := range 8 {
			clients.Go(func() {
				client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
				defer client.CloseIdleConnections()
				for request := range 50 {
					path := fmt.Sprintf("/%d/%d", number, request)
					response, err := client.Get("http://" + front.Addr().String() + path)
					if err != nil {
						t.Error(err)
						return
					}
					body, err := io.ReadAll(response.Body)
					response.Body.Close()
					if err != nil || response.StatusCode != http.StatusOK || string(body) != path+" " {
						t.Errorf("%s: %d %q, %v", path, response.StatusCode, body, err)
					}
				}
			})
		}
		clients.Wait()
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// networks are those that Caddy knows; it forgets none.
var networks []string
