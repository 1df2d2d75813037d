package packet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"loxilb/test/packet/lab"
	"loxilb/test/quictest"
)

// quicLengths are the lengths of the parts of a connection ID.
type quicLengths struct{ server, nonce int }

// allQUICLengths returns all allowed lengths.
func allQUICLengths() (list []quicLengths) {
	for server := 1; server <= 15; server++ {
		for nonce := 4; server+nonce <= 19; nonce++ {
			list = append(list, quicLengths{server, nonce})
		}
	}
	return list
}

// pattern returns bytes that depend on a text.
func pattern(text string, n int) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:n]
}

// quicScript returns a script with a service for each combination of lengths, each with its own
// key, and packets with server IDs of both endpoints.
func quicScript(t *testing.T, encrypted bool) script {
	t.Helper()
	lines := []string{}
	for n, s := range allQUICLengths() {
		key := pattern(fmt.Sprint("key", n), 16)
		config := fmt.Sprint(n % 7)
		if encrypted {
			config = fmt.Sprintf("%d:%d:%x", n%7, s.nonce, key)
		}
		servers := [2][]byte{pattern(fmt.Sprint("server", n), s.server), pattern(fmt.Sprint("server", n), s.server)}
		servers[1][s.server-1] ^= 1
		vip := fmt.Sprintf("10.0.2.%d", n+1)
		lines = append(lines, fmt.Sprintf("service %s:443/udp select=quic quic=%s endpoints=192.168.1.10:8443:1#%x,192.168.1.11:8443:1#%x", vip, config, servers[0], servers[1]))
		for k := range 6 {
			ids := quictest.IDs{Config: byte(n % 7), Server: servers[k%2]}
			if encrypted {
				ids.Key = key
			}
			id, err := ids.With(pattern(fmt.Sprint("nonce", n, k), s.nonce))
			if err != nil {
				t.Fatal(err)
			}
			client := fmt.Sprintf("1.1.%d.1:%d", n+1, 4000+k)
			lines = append(lines,
				fmt.Sprintf("in client udp %s > %s:443 data 40%s0000", client, vip, hex.EncodeToString(id)),
				fmt.Sprintf("out server udp %s > 192.168.1.1%d:8443", client, k%2))
		}
	}
	return script{"quic", lines}
}

// TestQUICLengths checks that the program finds the server ID in connection IDs of every length
// that the draft allows, in plaintext and encrypted by another implementation of AES.
func TestQUICLengths(t *testing.T) {
	t.Parallel()
	for name, encrypted := range map[string]bool{"plaintext": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := quicScript(t, encrypted)
			r, err := newWorkers(t, lab.Config{}, []script{s}).run(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.failures {
				t.Error(f)
			}
		})
	}
}
