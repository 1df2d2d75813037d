package datapath

import "testing"

// TestTrial checks that a trial loads the programs of each protocol, which the daemon loads with
// the first service that needs them.
func TestTrial(t *testing.T) {
	t.Parallel()
	d, err := Trial(Config{PinDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // of a test
	for name, loaded := range map[string]bool{
		"SCTP": d.collection.HandlesSCTP(), "QUIC": d.collection.HandlesQUIC(), "PROXY and FTP": d.collection.HandlesProxy(),
	} {
		if !loaded {
			t.Errorf("the programs of %s are not loaded", name)
		}
	}
}
