package main

import (
	"strings"
	"testing"

	"loxilb/internal/datapath"
)

// TestCheckUpgrade: programs that are right pass, and packets that do not come out as they should are named.
func TestCheckUpgrade(t *testing.T) {
	t.Parallel()
	d, err := datapath.Trial(datapath.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := try(d, trials()); err != nil {
		t.Fatal(err)
	}
	const service = "10.0.0.2:80/tcp endpoints=192.0.2.1:8080"
	for _, wrong := range []trial{
		{"tcp 198.51.100.2:4000 > 10.0.0.1:80 S", ""},      // of a service
		{"tcp 198.51.100.2:4000 > 10.0.0.2:81 S", service}, // of none
	} {
		err := try(d, []trial{wrong})
		if err == nil || !strings.Contains(err.Error(), "do not treat packets right here, 1 of 1: packet \""+wrong.packet) {
			t.Errorf("%q: %v", wrong.packet, err)
		}
	}
}
