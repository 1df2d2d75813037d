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

// otherVersionFlag is the flag that names a directory with loxilb and loxicmd of another version
// with the same map layout.
const otherVersionFlag = "other"

// otherVersion returns the directory of otherVersionFlag. By default, it makes one, with a copy of
// loxilb in which an instruction of the BPF program is replaced by an equivalent one.
func otherVersion(t *testing.T) string {
	t.Helper()
	if dir := flag.Lookup(otherVersionFlag).Value.String(); dir != "" {
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
		t.Fatal("loxilb does not contain the compressed object exactly once")
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

// otherObject returns a compressed object of the same length, in which an instruction is replaced
// by an equivalent one.
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
	// No loader reads .llvm_addrsig. Zeros in it make room for an instruction that compresses
	// worse.
	unused := f.Section(".llvm_addrsig")
	if unused == nil {
		t.Fatal("the object has no section .llvm_addrsig")
	}
	clear(object[unused.Offset:][:unused.FileSize])
	return compressTo(t, object, len(compressed))
}

// compressTo compresses an object as tools/bpf does, and pads it to a length by an extra field of
// the gzip header (RFC 1952).
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
		t.Fatalf("the compressed object is %d bytes too long to pad it", size-room)
	}
	compressed[flags] |= extraField
	extra := append(binary.LittleEndian.AppendUint16(nil, uint16(room-size)), make([]byte, room-size)...)
	return slices.Insert(compressed, header, extra...)
}

// neutralInstruction returns the offset of an instruction in loxilb_ether that sets a register to a
// non-negative 32-bit constant. The 64-bit form of the instruction has the same effect.
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

// replaceDaemon stops the daemon, and starts the version in dir.
func replaceDaemon(r *rig.Rig, dir string) {
	r.T.Helper()
	r.Stop()
	r.SetBin(dir)
	r.Restart()
}

// TestUpgrade replaces two versions by each other under traffic: no client sees an error, and the
// counts are complete.
//
// P29 An upgrade and a downgrade between versions with the same map layout lose no packet,
// connection or count
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			k := newKillRigWithLoad(t, hook)
			own, other := rig.Bin(), otherVersion(t)
			for range 2 {
				for _, dir := range []string{other, own} {
					replaceDaemon(k.Rig, dir)
					k.clients.AwaitAnswers()
					k.wantCounts()
				}
				const tried, replaced = "the programs of this version passed their trial", "replaced the programs of another version"
				if log := k.Log(); !strings.Contains(log, tried) || !strings.Contains(log, replaced) {
					t.Errorf("the log does not report that programs were replaced:\n%s", log)
				}
			}
			if err := k.clients.Finish(); err != nil {
				t.Error(err)
			}
			t.Logf("the slowest of %d answers took %v", k.clients.Answers(), k.clients.Slowest.Round(time.Millisecond))
		})
	}
}

// TestRestoreFormerPrograms checks that the daemon restores the former programs if drops increase
// after an upgrade, and that these apply later changes. If the drops continue, the daemon attaches
// the new programs again.
//
// P28
func TestRestoreFormerPrograms(t *testing.T) {
	t.Parallel()
	for _, dropsContinue := range []bool{false, true} {
		t.Run(fmt.Sprintf("drops continue %v", dropsContinue), func(t *testing.T) {
			t.Parallel()
			k := newKillRig(t, "auto")
			k.Loxicmd("create lb 20.20.20.4 --udp=9:9 --endpoints=%s --sources=192.0.2.0/24", rig.Endpoints4())
			k.clients.Hold(rig.Join(rig.VIP4, heldPort), 5)
			k.clients.OpenRepeatedly(rig.Join(rig.VIP6, shortPort))
			own, err := attachedPrograms(k.Rig)
			if err != nil {
				t.Fatal(err)
			}
			replaceDaemon(k.Rig, otherVersion(t))
			other, err := attachedPrograms(k.Rig)
			if err != nil {
				t.Fatal(err)
			}
			if own == other {
				t.Fatal("the programs have the same code")
			}
			replaceDaemon(k.Rig, rig.Bin())
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			sendDatagramsToDrop(ctx, k.Rig)
			labtest.Eventually(t, rig.Patience, func(context.Context) error {
				now, err := attachedPrograms(k.Rig)
				if now != other {
					return errors.Join(fmt.Errorf("the programs are %s, the former ones %s", now, other), err)
				}
				return nil
			})
			want := other
			if dropsContinue {
				want = own
			} else {
				stop()
			}
			labtest.Eventually(t, rig.Patience, func(context.Context) error {
				reported := strings.Contains(k.Loxicmd("get status --failed"), "packets were dropped within")
				now, err := attachedPrograms(k.Rig)
				if now != want || reported == dropsContinue {
					return errors.Join(fmt.Errorf("the programs are %s, want %s; the status reports the drops: %v", now, want, reported), err)
				}
				return nil
			})
			// The first service of this kind sets a variable of the programs.
			k.Loxicmd("create lb 20.20.20.5 --tcp=any:any --endpoints=%s", rig.Endpoints4())
			labtest.Eventually(t, rig.Patience, func(context.Context) error { _, err := k.Ask(rig.Join("20.20.20.5", 5001)); return err })
			if err := k.clients.Finish(); err != nil {
				t.Error(err)
			}
		})
	}
}

// sendDatagramsToDrop sends datagrams that the balancer drops, until ctx ends.
func sendDatagramsToDrop(ctx context.Context, r *rig.Rig) {
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

// attachedPrograms returns the different tags of the attached programs.
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
			return "", err // a link may be missing during a replacement
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
