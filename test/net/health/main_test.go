// Package health_test tests which endpoints get connections while servers, hosts and links fail.
package health_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// serveAs is the environment variable that makes this program a server with the given name.
const serveAs = "HEALTH_TEST_SERVES_AS"

// TestMain builds the programs under test.
func TestMain(m *testing.M) {
	if name := os.Getenv(serveAs); name != "" {
		fmt.Fprintln(os.Stderr, serve(name))
		os.Exit(1)
	}
	os.Exit(rig.Main(m))
}

// serve answers the first bytes of each connection with a name. It runs in a process of its own, so
// a test can stop it by SIGSTOP.
func serve(name string) error {
	l, err := net.Listen("tcp", ":5001")
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close() //nolint:errcheck // of a test
			if _, err := c.Read(make([]byte, 64)); err == nil {
				_, _ = c.Write([]byte(name + " answers"))
			}
		}()
	}
}
