package roles_test

import (
	"syscall"
	"testing"
	"time"
)

// slack is what a busy machine adds to detection times.
const slack = 700 * time.Millisecond

// TestBFDSilent checks that the survivor takes over, and that nobody sees two owners.
func TestBFDSilent(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.elected()
	o := p.observe()
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	a.Signal(syscall.SIGSTOP)
	b.becomes("MASTER")
	time.Sleep(time.Second)
	a.Signal(syscall.SIGCONT)
	p.settled(b)
	v := o.end(began)
	t.Logf("%+v", v)
}
