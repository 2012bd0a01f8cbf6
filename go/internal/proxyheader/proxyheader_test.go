package proxyheader

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func binaryHeader(command, family byte, rest string) string {
	length := binary.BigEndian.AppendUint16(nil, uint16(len(rest)))
	return signature + string([]byte{command, family}) + string(length) + rest
}

const ipv4 = "\xc0\x00\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb"

func TestHeadersThatNameBothEnds(t *testing.T) {
	for header, expected := range map[string][3]string{
		"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n": {"192.0.2.7:56324", "198.51.100.1:443", "tcp"},
		"PROXY TCP6 2001:DB8::7 ::1 1 2\r\n":              {"[2001:db8::7]:1", "[::1]:2", "tcp"},
		binaryHeader(0x21, 0x11, ipv4):                    {"192.0.2.7:56324", "198.51.100.1:443", "tcp"},
		binaryHeader(0x21, 0x21, strings.Repeat("\x00", 15)+"\x01"+strings.Repeat("\x00", 15)+"\x02\x00\x50\x00\x5a"): {
			"[::1]:80", "[::2]:90", "tcp"},
		binaryHeader(0x21, 0x31, "/run/sock"+strings.Repeat("\x00", 100)+"abc"+strings.Repeat("\x00", 104)): {
			"/run/sock", "@abc", "unix"},
	} {
		read, length, err := Decode([]byte(header+"behind"), DefaultLimit)
		if err != nil || read == nil || length != len(header) {
			t.Errorf("%q: %v, %d, %v", header, read, length, err)
			continue
		}
		found := [3]string{read.Source.String(), read.Destination.String(), read.Source.Network()}
		if found != expected {
			t.Errorf("%q: %q", header, found)
		}
	}
}

func TestHeadersThatNameNobody(t *testing.T) {
	for _, header := range []string{
		"PROXY UNKNOWN\r\n", "PROXY UNKNOWN what ever \x01\r\n",
		binaryHeader(0x20, 0, ""), binaryHeader(0x20, 0x11, "\x01\x02\x03"), binaryHeader(0x20, 0xff, "\x03\xff"),
		binaryHeader(0x21, 0, "\x03\xff"), binaryHeader(0x21, 0x01, ipv4), binaryHeader(0x21, 0x10, ipv4),
		binaryHeader(0x21, 0x12, ipv4), binaryHeader(0x21, 0x32, strings.Repeat("\x00", 216)),
	} {
		read, length, err := Decode([]byte(header), DefaultLimit)
		if err != nil || read == nil || length != len(header) || read.Source != nil || read.Values != nil {
			t.Errorf("%q: %v, %d, %v", header, read, length, err)
		}
	}
}

func TestWhatIsNoHeader(t *testing.T) {
	for _, header := range []string{
		"GET / HTTP/1.1\r\n", "PROXYTCP4", "\r\n\r\n\x00\r\nQUIX",
		"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n", "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\rx",
		"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
		"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n", "PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n",
		"PROXY TCP4 ::1 ::1 1 2\r\n", "PROXY TCP6 192.0.2.7 192.0.2.7 1 2\r\n", "PROXY TCP6 ::1%1 ::1 1 2\r\n",
		"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n",
		"PROXY TCP4 192.0.2.7 198.51.100.1 1 65536\r\n", "PROXY UNKNOWNS\r\n", "PROXY UNKNOWN \n",
		"PROXY UNKNOWN " + strings.Repeat("x", 100) + "\r\n",
		binaryHeader(0x11, 0x11, ipv4), binaryHeader(0x22, 0x11, ipv4), binaryHeader(0x21, 0x41, ipv4),
		binaryHeader(0x21, 0x13, ipv4), binaryHeader(0x21, 0x11, ipv4[:11]),
		binaryHeader(0x21, 0x11, ipv4+"\x04"), binaryHeader(0x21, 0x11, ipv4+"\x04\x00\x01"),
		binaryHeader(0x21, 0x11, ipv4+"\x03\x00\x04\x00\x00\x00\x00"),
		binaryHeader(0x21, 0x31, strings.Repeat("a", 216)), binaryHeader(0x21, 0, strings.Repeat("x", 4081)),
	} {
		if read, _, err := Decode([]byte(header), DefaultLimit); err == nil {
			t.Errorf("%.60q is taken: %v", header, read)
		}
	}
}

// corpus is what the fuzz target of the Rust crate begins with: two bytes of limit before each.
func corpus(t testing.TB) map[string][]byte {
	folder := filepath.Join("..", "..", "..", "fuzz", "corpus", "proxy_header")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Skip("the corpus is in the repository alone: ", err)
	}
	inputs := make(map[string][]byte)
	for _, entry := range entries {
		input, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		inputs[entry.Name()] = input
	}
	return inputs
}

// The same verdict as the Rust crate's, whose tests say what each file is.
func TestTheCorpus(t *testing.T) {
	taken := map[string]bool{
		"tcp4": true, "tcp6": true, "unknown": true, "local": true, "ipv4": true, "ipv6": true, "unix": true, "checksum": true,
	}
	for name, input := range corpus(t) {
		read, _, err := Decode(input[2:], int(binary.BigEndian.Uint16(input)))
		if (read != nil) != taken[name] || (read == nil && err == nil) != (name == "cut") {
			t.Errorf("%s: %v, %v", name, read, err)
		}
	}
}

// What is said of some bytes holds for more: otherwise it would matter how they are cut.
func FuzzDecode(f *testing.F) {
	for _, input := range corpus(f) {
		f.Add(input[2:], int(binary.BigEndian.Uint16(input)))
	}
	f.Fuzz(func(t *testing.T, input []byte, limit int) {
		header, length, err := Decode(input, limit)
		for end := range input {
			early, earlyLength, earlyErr := Decode(input[:end], limit)
			if early == nil && earlyErr == nil {
				if end >= max(limit, MostText) {
					t.Fatalf("more is asked for at %d bytes", end)
				}
				continue
			}
			if !reflect.DeepEqual(early, header) || earlyLength != length || (earlyErr == nil) != (err == nil) {
				t.Fatalf("%q says %v, %v, and %q says %v, %v", input[:end], early, earlyErr, input, header, err)
			}
			break
		}
		if header == nil {
			return
		}
		if length > len(input) || length > max(limit, MostText) {
			t.Fatalf("%d bytes of %d", length, len(input))
		}
		again := bytes.Clone(input)
		read, _, _ := Decode(again, limit)
		for at := range again {
			again[at] ^= 0xff
		}
		if !reflect.DeepEqual(read, header) {
			t.Fatal("it refers to the bytes that it was read from")
		}
	})
}
