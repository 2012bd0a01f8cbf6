package doors

import (
	"encoding/xml"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

// The conformance tests of HTTP/2 find the same in net/http whatever carries it.
func TestHTTP2ConformsAsMuchAsOnPackageNet(t *testing.T) {
	var stock []string
	onEachWay(t, func(t *testing.T, w way) {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{
			Protocols: protocols,
			Handler: http.HandlerFunc(func(to http.ResponseWriter, request *http.Request) {
				io.Copy(io.Discard, request.Body)
				io.WriteString(to, "hello")
			}),
		}
		l := w.listener(t)
		go server.Serve(l)
		defer server.Close()
		compareH2Spec(t, &stock, l.Addr().(*net.TCPAddr))
	})
}

// And in the codecs of Netty, Kestrel and hyper.
func TestHTTP2ConformsAsMuchOnTheOtherDoors(t *testing.T) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			var stock []string
			for _, transport := range append([]string{p.stock}, p.ours...) {
				t.Run(transport, func(t *testing.T) { compareH2Spec(t, &stock, p.start(t, "h2c", transport)) })
			}
		})
	}
}

// compareH2Spec runs all cases, and keeps those that fail in stock, or holds them against it if it has been there before. Some
// race: whether a stream is still open when a frame comes depends on how fast the server has responded. So servers are warm, and
// what differs is tried again: it is a difference if it never comes out as it did there.
func compareH2Spec(t *testing.T, stock *[]string, address *net.TCPAddr) {
	t.Helper()
	warmUp(t, address)
	cases, failed := runH2Spec(t, address)
	if cases < 140 {
		t.Fatalf("only %d cases were run", cases)
	}
	if *stock == nil {
		*stock = append([]string{}, failed...)
		t.Logf("of %d cases these fail: %q", cases, failed)
		return
	}
	differs := slices.DeleteFunc(append(slices.Clone(failed), *stock...), func(name string) bool {
		return slices.Contains(failed, name) == slices.Contains(*stock, name)
	})
	for range 5 {
		if len(differs) == 0 {
			return
		}
		var sections []string
		for _, name := range differs {
			t.Logf("tried again, as it came out otherwise than on the stock transport: %s", name)
			section, _, _ := strings.Cut(name, ":")
			sections = append(sections, section)
		}
		_, again := runH2Spec(t, address, sections...)
		differs = slices.DeleteFunc(differs, func(name string) bool {
			return slices.Contains(again, name) == slices.Contains(*stock, name)
		})
	}
	for _, name := range differs {
		t.Errorf("%s: fails on the stock transport: %v; on this one: %v",
			name, slices.Contains(*stock, name), !slices.Contains(*stock, name))
	}
}

// warmUp has the server respond to many requests, so that its runtime has compiled what it needs.
func warmUp(t *testing.T, address *net.TCPAddr) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	for range 3000 {
		response, err := client.Get("http://" + address.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

// report is what h2spec writes for JUnit.
type report struct {
	Suites []struct {
		Package string `xml:"package,attr"`
		Cases   []struct {
			ClassName string    `xml:"classname,attr"`
			Failure   *struct{} `xml:"failure"`
			Error     *struct{} `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func runH2Spec(t *testing.T, address *net.TCPAddr, sections ...string) (cases int, failed []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.xml")
	out := os.Stdout
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = null // it tells its own report there
	_, err = h2spec.Run(&config.Config{
		Host: address.IP.String(), Port: address.Port, Path: "/", Timeout: 10 * time.Second, MaxHeaderLen: 4000,
		JUnitReport: file, Sections: sections,
	})
	os.Stdout = out
	null.Close()
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found report
	if err := xml.Unmarshal(written, &found); err != nil {
		t.Fatal(err)
	}
	for _, suite := range found.Suites {
		for _, one := range suite.Cases {
			cases++
			if one.Failure != nil || one.Error != nil {
				failed = append(failed, suite.Package+": "+one.ClassName)
			}
		}
	}
	slices.Sort(failed)
	return cases, failed
}
