package compile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

// TestBackups checks for every algorithm that backups have slots only while the levels before them
// have too few endpoints, also with all down and in panic mode.
func TestBackups(t *testing.T) {
	const endpoints = "10.0.1.1:80,10.0.1.2:80,10.0.1.3:80:2@1,10.0.1.4:80@2"
	for _, tc := range []struct {
		flags string
		up    string // for each endpoint, 1 if it is up
		want  []bool // which endpoints have slots
	}{
		{"", "1111", []bool{true, true, false, false}},
		{"", "0111", []bool{false, true, false, false}},
		{"", "0011", []bool{false, false, true, false}},
		{"", "0001", []bool{false, false, false, true}},
		{"", "0000", []bool{false, false, false, false}},
		{" all-down=panic", "0000", []bool{true, true, false, false}},
		{" failover-below=51", "0111", []bool{false, true, true, false}},
		{" failover-below=51", "0101", []bool{false, true, false, true}},
	} {
		for _, algorithm := range []string{"rr", "priority", "hash", "persist", "lc", "random"} {
			s, err := lb.ParseService("10.0.0.1:80/tcp endpoints=" + endpoints + " select=" + algorithm + tc.flags)
			if err != nil {
				t.Fatal(err)
			}
			table := Service(s, func(e lb.Endpoint) bool { return tc.up[e.Addr.As4()[3]-1] == '1' }, 1, nil)
			got, available := make([]bool, len(s.Endpoints)), make([]bool, len(s.Endpoints))
			for _, slot := range table.Slots {
				got[slot] = true
			}
			for i := range available {
				available[i] = table.Endpoints[i].CurrentWeight > 0
			}
			if diff := cmp.Diff(tc.want, got) + cmp.Diff(tc.want, available); diff != "" {
				t.Errorf("%s%s, up %s: -want +got:\n%s", algorithm, tc.flags, tc.up, diff)
			}
		}
	}
}

// TestBackupsBehindServices checks that the levels of a service that is an endpoint come after the
// outer service's own level, and do not reduce the shares of the levels before them.
func TestBackupsBehindServices(t *testing.T) {
	list := parsed(t, "10.0.0.1:80/tcp endpoints=10.0.0.2:80,10.0.1.9:80,10.0.1.8:80@1", "10.0.0.2:80/tcp endpoints=10.0.1.1:80,10.0.1.2:80:7@1")
	got, _, err := NewResolver(newState(list...)).Resolve(list[0])
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, e := range got.Endpoints {
		text = append(text, e.String())
	}
	if diff := cmp.Diff([]string{"10.0.1.1:80", "10.0.1.2:80@1", "10.0.1.9:80", "10.0.1.8:80@1"}, text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
