package lifecycle_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	objectfile "loxilb/internal/kernel/datapath/bpf/object"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// otherFlag is the flag that names a directory with loxilb and loxicmd of another version with the
// same map layout.
const otherFlag = "other"

// otherVersion returns a directory with a loxilb whose programs have different code: that of the
// flag, or the one under test after replacing an instruction by an equivalent one.
func otherVersion(t *testing.T) string {
	t.Helper()
	if dir := flag.Lookup(otherFlag).Value.String(); dir != "" {
		return dir
	}
	compressed, err := os.ReadFile(filepath.Join(rig.Root, "internal/kernel/datapath/bpf/tc_bpfel.o.gz"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(rig.Program("loxilb"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(program, compressed) != 1 {
		t.Fatal("the program does not contain the compressed object exactly once")
	}
	copy(program[bytes.Index(program, compressed):], otherObject(t, compressed))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "loxilb"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(rig.Program("loxicmd"), filepath.Join(dir, "loxicmd")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// otherObject returns a compressed object of the same length, whose code differs by one instruction
// that has the same effect.
func otherObject(t *testing.T, compressed []byte) []byte {
	t.Helper()
	object, err := io.ReadAll(io.NewSectionReader(objectfile.Open(compressed), 0, math.MaxInt64))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	const mov64 = 0xb7
	object[neutralInstruction(t, f)] = mov64
	// The symbols that a linker may not merge: no loader reads them, and zeros make room for an
	// instruction that compresses worse.
	unused := f.Section(".llvm_addrsig")
	if unused == nil {
		t.Fatal("the object has no section .llvm_addrsig")
	}
	clear(object[unused.Offset:][:unused.FileSize])
	return compressTo(t, object, len(compressed))
}

// compressTo compresses an object as tools/bpf does and pads it to a length by an extra field of
// the header (RFC 1952).
func compressTo(t *testing.T, object []byte, length int) []byte {
	t.Helper()
	gzip := exec.Command("gzip", "-9n")
	gzip.Stdin = bytes.NewReader(object)
	compressed, err := gzip.Output()
	if err != nil {
		t.Fatal(err)
	}
	const flags, extraField, header, size = 3, 4, 10, 2
	room := length - len(compressed)
	if room < size {
		t.Fatalf("the compressed object is %d bytes too long for a field that fills the rest", size-room)
	}
	compressed[flags] |= extraField
	extra := append(binary.LittleEndian.AppendUint16(nil, uint16(room-size)), make([]byte, room-size)...)
	return slices.Insert(compressed, header, extra...)
}

// neutralInstruction returns the offset of an instruction in the program for Ethernet that sets a
// register to a non-negative 32-bit constant: its 64-bit form has the same effect.
func neutralInstruction(t *testing.T, f *elf.File) int {
	t.Helper()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "loxilb_ether" })
	if i < 0 {
		t.Fatal("the object has no program loxilb_ether")
	}
	section := f.Sections[symbols[i].Section]
	code, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	const mov32, wide = 0xb4, 0x18 // wide takes two instructions
	for at := symbols[i].Value; at < symbols[i].Value+symbols[i].Size; at += 8 {
		switch {
		case code[at] == wide:
			at += 8
		case code[at] == mov32 && code[at+7]&0x80 == 0:
			return int(section.Offset + at)
		}
	}
	t.Fatal("loxilb_ether sets no register to a constant")
	return 0
}

// exchangeDaemon replaces the daemon by another version's.
func exchangeDaemon(r *rig.Rig, dir string) {
	r.T.Helper()
	r.Stop()
	r.SetBin(dir)
	r.Restart()
}

// TestUpgrade exchanges two versions repeatedly under traffic: no client notices, and everything is
// counted.
//
// P29 An upgrade and a downgrade between versions with the same map layout lose no packet,
// connection or count
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			v := newCrowdedVictim(t, hook)
			own, other := rig.Bin(), otherVersion(t)
			for range 2 {
				for _, dir := range []string{other, own} {
					exchangeDaemon(v.Rig, dir)
					v.crowd.AwaitAnswers()
					v.wantCounts()
				}
				const tried, replaced = "the programs of this version passed their trial", "the programs of another version were replaced"
				if log := v.Log(); !strings.Contains(log, tried) || !strings.Contains(log, replaced) {
					t.Errorf("the start has not said that it exchanged programs:\n%s", log)
				}
			}
			if err := v.crowd.Finish(); err != nil {
				t.Error(err)
			}
			t.Logf("the slowest of %d answers took %v", v.crowd.Answers(), v.crowd.Slowest.Round(time.Millisecond))
		})
	}
}

// TestGoBack checks that a jump in drops after an upgrade brings the former programs back, which
// apply later changes. If the drops continue, the new programs are attached again.
//
// P28
func TestGoBack(t *testing.T) {
	t.Parallel()
	for _, goesOn := range []bool{false, true} {
		t.Run(fmt.Sprintf("drops go on %v", goesOn), func(t *testing.T) {
			t.Parallel()
			v := newVictim(t, "auto")
			v.Loxicmd("create lb 20.20.20.4 --udp=9:9 --endpoints=%s --sources=192.0.2.0/24", rig.Endpoints4())
			v.crowd.Hold(rig.Join(rig.VIP4, heldPort), 5)
			v.crowd.OpenRepeatedly(rig.Join(rig.VIP6, visitedPort))
			own, err := attachedPrograms(v.Rig)
			if err != nil {
				t.Fatal(err)
			}
			exchangeDaemon(v.Rig, otherVersion(t))
			other, err := attachedPrograms(v.Rig)
			if err != nil {
				t.Fatal(err)
			}
			if own == other {
				t.Fatal("the programs have the same code")
			}
			exchangeDaemon(v.Rig, rig.Bin())
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			sendDropped(ctx, v.Rig)
			labtest.Eventually(t, rig.Patience, func(context.Context) error {
				now, err := attachedPrograms(v.Rig)
				if now != other {
					return errors.Join(fmt.Errorf("the programs are %s, the former ones %s", now, other), err)
				}
				return nil
			})
			want := other
			if goesOn {
				want = own
			} else {
				stop()
			}
			labtest.Eventually(t, rig.Patience, func(context.Context) error {
				back := strings.Contains(v.Loxicmd("get status --failed"), "packets were dropped within")
				now, err := attachedPrograms(v.Rig)
				if now != want || back == goesOn {
					return errors.Join(fmt.Errorf("the programs are %s, want %s; told to be back: %v", now, want, back), err)
				}
				return nil
			})
			// the first service of this kind sets a variable of the programs
			v.Loxicmd("create lb 20.20.20.5 --tcp=any:any --endpoints=%s", rig.Endpoints4())
			labtest.Eventually(t, rig.Patience, func(context.Context) error { _, err := v.Ask(rig.Join("20.20.20.5", 5001)); return err })
			if err := v.crowd.Finish(); err != nil {
				t.Error(err)
			}
		})
	}
}

// sendDropped sends datagrams that are dropped, until ctx ends.
func sendDropped(ctx context.Context, r *rig.Rig) {
	r.T.Helper()
	conn, err := r.Client.DialContext(ctx, "udp", "20.20.20.4:9")
	if err != nil {
		r.T.Fatal(err)
	}
	tick := time.NewTicker(rig.Pace)
	r.Lab.Cleanup(func() { _ = conn.Close() })
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

// attachedPrograms returns the tag of the programs at the client's and endpoints' interfaces, if it
// is the same for all.
func attachedPrograms(r *rig.Rig) (string, error) {
	r.T.Helper()
	tags := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(netnstest.PinPath(r.Dir()), "links", "*"))
	if err != nil || len(paths) == 0 {
		r.T.Fatal("no links are pinned", err)
	}
	for _, path := range paths {
		tag, err := tagOf(path)
		if err != nil {
			return "", err // one may be missing during an exchange
		}
		tags[tag] = true
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(tags))), nil
}

// tagOf returns the tag of a pinned link's program.
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
