package pcapng

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

func packet(rule string, n int, layer3 bool) Packet {
	return Packet{Rule: rule, Interface: "eth0", PacketCopy: report.PacketCopy{
		Time: time.Unix(1700000000, int64(n)), Action: policy.RuleDrop, Layer3: layer3, Length: 1500, Data: bytes.Repeat([]byte{byte(n)}, 60+n),
	}}
}

// contents reads a file as tcpdump does.
func contents(t *testing.T, path string) (packets int, read *pcapgo.NgReader) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read, err = pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for ; ; packets++ {
		data, about, err := read.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return packets, read
		}
		if err != nil {
			t.Fatal(err)
		}
		n := int(data[0])
		if len(data) != 60+n || about.Length != 1500 || !about.Timestamp.Equal(time.Unix(1700000000, int64(n))) {
			t.Errorf("packet %d: %d of %d bytes at %s", n, len(data), about.Length, about.Timestamp)
		}
	}
}

// TestFiles checks that each packet is in the file as soon as it is written, with its rule,
// interface and action.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "records")
	f := RecordIn(dir)
	if err := f.Write(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder is there before any packet: %v", err)
	}
	if err := f.Write([]Packet{packet("preference:0", 1, false), packet("portName:eth0", 2, true), packet("preference:0", 3, false)}); err != nil {
		t.Fatal(err)
	}
	n, read := contents(t, filepath.Join(dir, "firewall.pcapng"))
	if n != 3 || read.NInterfaces() != 2 {
		t.Errorf("%d packets of %d origins", n, read.NInterfaces())
	}
	for i, want := range []struct {
		rule string
		link layers.LinkType
	}{{"preference:0", layers.LinkTypeEthernet}, {"portName:eth0", layers.LinkTypeRaw}} {
		if about, err := read.Interface(i); err != nil || about.Name != "eth0" || about.Filter != want.rule || about.Description != "firewall rule, drop" || about.LinkType != want.link {
			t.Errorf("got %+v, %v, want the description of eth0 for %+v", about, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "firewall.pcapng")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info, err)
	}
}

// TestBounded checks that files are moved aside when they are full and when a process starts, and
// that the oldest are deleted.
func TestBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		f := RecordIn(dir)
		f.limit = 4096
		for range 500 {
			if err := f.Write([]Packet{packet("preference:0", 5, false)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1+keptFiles {
		t.Errorf("got %v, %v, want the file and %d older ones", list, err, keptFiles)
	}
	for _, e := range list {
		info, err := e.Info()
		if err != nil || info.Size() > 4096+200 {
			t.Errorf("got %v %v, want no error, info.Size() <= 4096+200", info, err)
		}
		if n, _ := contents(t, filepath.Join(dir, e.Name())); n == 0 {
			t.Errorf("%s has no packet", e.Name())
		}
	}
}

// TestNotWritten checks that the error for a packet that cannot be written names the file, and that
// later packets are written.
func TestNotWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "records")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := RecordIn(dir)
	if err := f.Write([]Packet{packet("preference:0", 1, false)}); err == nil {
		t.Error("a missing folder is not an error")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Write([]Packet{packet("preference:0", 1, false)}); err != nil {
		t.Error(err)
	}
}

// TestFullDisk checks that a disk that is repeatedly full loses no packet that was written, and
// that later ones are written once there is room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	f := RecordIn(dir)
	f.limit = 16 << 10
	some := []Packet{packet("preference:0", 5, false)}
	for range 4 * 200 { // fills all kept files
		if err := f.Write(some); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (sum int) {
		list, err := filepath.Glob(filepath.Join(dir, "firewall*.pcapng"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range list {
			n, _ := contents(t, path)
			sum += n
		}
		return sum
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	had, failed, written := count(), 0, 0
	for range 200 {
		if err := f.Write(some); err != nil {
			failed++
		} else {
			written++
		}
	}
	if failed < 100 || count() != had+written {
		t.Errorf("%d packets were there, %d were written and %d not; there are %d", had, written, failed, count())
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(some); err != nil {
		t.Error(err)
	}
	if n := count(); n != had+written+1 {
		t.Errorf("there are %d packets, want %d", n, had+written+1)
	}
}
