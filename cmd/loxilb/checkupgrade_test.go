package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/internal/config"
	"loxilb/internal/kernel/datapath"
)

// TestVectors checks that correct programs pass, also on a cluster node that prefers other source
// ports, and that the error names each packet with an unexpected result.
//
// P4
func TestVectors(t *testing.T) {
	t.Parallel()
	if err := checkUpgrade(datapath.Config{PortStripe: 3}, io.Discard); err != nil {
		t.Fatal(err)
	}
	d, err := datapath.Load(datapath.Config{Connections: datapath.TrialConnections})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	services := []string{"10.0.0.2:80/tcp endpoints=192.0.2.1:8080 weights=0"}
	for _, wrong := range []vector{
		{"tcp 198.51.100.2:4000 > 10.0.0.2:80 S", ""},                                       // of a service
		{"tcp 198.51.100.2:4000 > 10.0.0.1:81 S", "tcp 10.0.0.1:81 > 198.51.100.2:4000 RA"}, // of none
		{"tcp 198.51.100.2:4000 > 10.0.0.2:80 S", "tcp 198.51.100.2:4000 > 192.0.2.1:8080 S"},
	} {
		err := tryPackets(d, services, []vector{wrong})
		if err == nil || !strings.Contains(err.Error(), "handle 1 of 1 test packets wrongly: packet \""+wrong.in) {
			t.Errorf("wrong packet %q: got %v, want an error that names the packet", wrong.in, err)
		}
	}
}

// TestCheckCredentials checks that a key which this build refuses is noticed before the upgrade.
func TestCheckCredentials(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	c := config.Cluster{Key: path, Node: "a"}
	for key, want := range map[string]string{strings.Repeat("k", 32): "", "two lines\nof one key": "has a key of 9 characters in line 1"} {
		if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkCredentials(&c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("key %q: %v, want %q", key, err, want)
		}
	}
	if err := checkCredentials(&config.Cluster{}); err != nil {
		t.Errorf("without a cluster: %v", err)
	}
}
