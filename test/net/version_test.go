package net_test

import (
	"bytes"
	"context"
	"debug/elf"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// otherFlag names a directory with loxilb and loxicmd of another version, whose maps have the same layout.
const otherFlag = "other"

// otherVersion is a directory with a loxilb whose programs have other code: that of the flag, or the one under test with an instruction that does
// the same in another way.
func otherVersion(t *testing.T) string {
	t.Helper()
	if dir := flag.Lookup(otherFlag).Value.String(); dir != "" {
		return dir
	}
	object, err := os.ReadFile("../../internal/datapath/bpf/tc_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(os.Getenv(binDir), "loxilb"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(program, object) != 1 {
		t.Fatal("the object is not in the program as it is")
	}
	at := bytes.Index(program, object) + neutralInstruction(t, object)
	const mov32, mov64 = 0xb4, 0xb7
	if program[at] != mov32 {
		t.Fatalf("opcode %#x", program[at])
	}
	program[at] = mov64
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "loxilb"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(os.Getenv(binDir), "loxicmd"), filepath.Join(dir, "loxicmd")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// neutralInstruction is where in an object the program for Ethernet sets a register to a number that is not negative, by 32 bits: by 64 it is the same.
func neutralInstruction(t *testing.T, object []byte) int {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name != "loxilb_ether" {
			continue
		}
		section := f.Sections[s.Section]
		code := object[section.Offset+s.Value:][:s.Size]
		for i := 0; i < len(code); i += 8 {
			switch code[i] {
			case 0x18: // takes two
				i += 8
			case 0xb4:
				if code[i+7]&0x80 == 0 {
					return int(section.Offset+s.Value) + i
				}
			}
		}
	}
	t.Fatal("no such instruction")
	return 0
}

// exchange has the daemon be another version's from here on.
func (r *rig) exchange(dir string) {
	r.t.Helper()
	r.Stop()
	r.SetBin(dir)
	r.restart()
}

// TestUpgrade: a version takes over from another one, and that from it, again and again, while clients go on: none notices, and all is counted.
//
// P29 an upgrade and a downgrade between versions whose maps have the same layout lose no packet, no connection and no count
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t, hook)
			v.crowd.hold(join(vip4, heldPort), heldConnections)
			v.crowd.visit(join(vip6, visitedPort))
			own, other := os.Getenv(binDir), otherVersion(t)
			for range 2 {
				for _, dir := range []string{other, own} {
					v.exchange(dir)
					v.crowd.flows()
					v.wantCounts()
				}
				const tried, replaced = "packets came out of the programs of this version as they should", "the programs of another version were replaced"
				if log := v.Log(); !strings.Contains(log, tried) || !strings.Contains(log, replaced) {
					t.Errorf("the start has not said that it exchanged programs:\n%s", log)
				}
			}
			if err := v.crowd.finish(); err != nil {
				t.Error(err)
			}
			t.Logf("the slowest of %d answers took %v", v.crowd.answers(), v.crowd.slowest.Round(time.Millisecond))
		})
	}
}

// TestGoBack: drops that jump after an exchange bring the former programs back; they go on with what is changed from there on. If the drops go on, the
// new ones are there again.
//
// P28
func TestGoBack(t *testing.T) {
	t.Parallel()
	for _, goesOn := range []bool{false, true} {
		t.Run(fmt.Sprintf("drops go on %v", goesOn), func(t *testing.T) {
			t.Parallel()
			v := newVictim(t, "auto")
			v.loxicmd("create lb 20.20.20.4 --udp=9:9 --endpoints=%s --sources=192.0.2.0/24", endpoints4())
			v.crowd.hold(join(vip4, heldPort), 5)
			v.crowd.visit(join(vip6, visitedPort))
			own := v.attachedPrograms()
			v.exchange(otherVersion(t))
			other := v.attachedPrograms()
			if own == other {
				t.Fatal("the programs have the same code")
			}
			v.exchange(os.Getenv(binDir))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			v.refused(ctx)
			labtest.Eventually(t, patience, func(context.Context) error {
				if now := v.attachedPrograms(); now != other {
					return fmt.Errorf("the programs are %s, the former ones %s", now, other)
				}
				return nil
			})
			want := other
			if goesOn {
				want = own
			} else {
				stop()
			}
			labtest.Eventually(t, patience, func(context.Context) error {
				back := strings.Contains(v.loxicmd("get status --failed"), "packets were dropped within")
				if now := v.attachedPrograms(); now != want || back == goesOn {
					return fmt.Errorf("the programs are %s, want %s; told to be back: %v", now, want, back)
				}
				return nil
			})
			// what is the first of its kind is told to programs by variables
			v.loxicmd("create lb 20.20.20.5 --tcp=any:any --endpoints=%s", endpoints4())
			labtest.Eventually(t, patience, func(context.Context) error { _, err := v.ask(join("20.20.20.5", 5001)); return err })
			if err := v.crowd.finish(); err != nil {
				t.Error(err)
			}
		})
	}
}

// refused sends datagrams that are dropped, until ctx ends.
func (r *rig) refused(ctx context.Context) {
	r.t.Helper()
	conn, err := r.Client.DialContext(ctx, "udp", "20.20.20.4:9")
	if err != nil {
		r.t.Fatal(err)
	}
	tick := time.NewTicker(pace)
	r.lab().Cleanup(func() { _ = conn.Close() })
	go func() {
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			for range 10 {
				_, _ = conn.Write([]byte("x"))
			}
		}
	}()
}

// attachedPrograms are the tags of the programs that packets of the client and of endpoints go through, if they are the same.
func (r *rig) attachedPrograms() string {
	r.t.Helper()
	tags := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(netnstest.PinPath(r.Dir()), "links", "*"))
	if err != nil || len(paths) == 0 {
		r.t.Fatal("no links are pinned", err)
	}
	for _, path := range paths {
		tag, err := tagOf(path)
		if err != nil {
			r.t.Fatal(err)
		}
		tags[tag] = true
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(tags)))
}

// tagOf is the tag of a pinned link's program.
func tagOf(path string) (string, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return "", err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return "", err
	}
	p, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return "", err
	}
	defer p.Close()
	program, err := p.Info()
	if err != nil {
		return "", err
	}
	return program.Tag, nil
}
