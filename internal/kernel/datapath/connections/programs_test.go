package connections

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/loader"
)

// TestProgramsLater checks that a start with a table that cannot grow loads only the sweep program,
// and that each other program is loaded once, at its first use, with the same maps.
func TestProgramsLater(t *testing.T) {
	t.Parallel()
	c, err := loader.Open(loader.Settings{Connections: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := LoadSweep(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if len(p.loaded) != 1 || p.loaded[sweepRows] == nil {
		t.Errorf("the first programs are %v", p.loaded)
	}
	if err := p.walkMet.Set(uint64(4711)); err != nil {
		t.Fatal(err)
	}
	first, err := p.Program(walkRows)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Program(walkRows); err != nil || again != first {
		t.Errorf("%v is loaded again, %v", first, err)
	}
	var met uint64
	if err := p.walkMet.Get(&met); err != nil || met != 4711 {
		t.Errorf("its variable was 4711, and is %d (%v)", met, err)
	}
	if err := p.all(); err != nil || len(p.loaded) != 10 {
		t.Errorf("all are %v (%v)", p.loaded, err)
	}
}

// TestProgramsDoNotWait checks that a loaded program is available while another one is being
// loaded.
func TestProgramsDoNotWait(t *testing.T) {
	t.Parallel()
	p := &Programs{loaded: map[string]*ebpf.Program{sweepRows: {}}}
	p.loading.Lock()
	defer p.loading.Unlock()
	had := make(chan error)
	go func() {
		_, err := p.Program(sweepRows)
		had <- err
	}()
	select {
	case err := <-had:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the sweep waits for another program")
	}
}
