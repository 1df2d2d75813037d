package roles_test

import (
	"strings"
	"testing"
)

// TestBFDCommands checks the commands for BFD sessions, and the contract's field names in answers.
func TestBFDCommands(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.awaitElection()
	a.Loxicmd("set bfd %s --interval=150000 --retryCount=4", b.address)
	p.awaitRoles(a)
	out := a.Loxicmd("get bfd -o json")
	for _, want := range []string{
		`"instance": "default"`, `"remoteIp": "` + b.address, `"sourceIP": "` + a.address, `"port": 3784`, `"interval": 150000`,
		`"retryCount": 4`, `"state": "BFDUp"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if strings.Contains(out, "sourceIp") {
		t.Errorf(`got %v, want no "sourceIp" in out`, out)
	}
	if out := a.Loxicmd("get bfd -o wide"); !strings.Contains(out, a.address) { // set bfd has not removed the source address
		t.Errorf("got %v, want a.address in out", out)
	}
	a.Loxicmd("create bfd 2001:db8::7 --instance=blue")
	a.Loxicmd("delete bfd 2001:db8::7 --instance=blue")
	if out := a.Loxicmd("get bfd -o wide"); strings.Contains(out, "blue") || !strings.Contains(out, "150000 us") {
		t.Errorf(`got %v, want no "blue" in out, "150000 us" in out`, out)
	}
	a.Loxicmd("delete bfd %s", b.address)
	b.awaitRole("MASTER")
	b.Loxicmd("node drain --deadline=1s --wait")
	b.awaitRole("BACKUP")
	if out := b.Loxicmd("get bfd -o wide"); !strings.Contains(out, "BACKUP") || !strings.Contains(out, "the node is drained until") {
		t.Errorf(`got %v, want "BACKUP" in out, "the node is drained until" in out`, out)
	}
}
