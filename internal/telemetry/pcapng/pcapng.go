// Package pcapng writes packets that firewall rules select to files for tcpdump and Wireshark.
package pcapng

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

const (
	maxFileBytes = 16 << 20
	keptFiles    = 3 // rotated ones
	// snapLength is more than the packet path copies, with a VLAN tag.
	snapLength = 512
)

// Packet is a copied packet with the names of its interface, rule and others.
type Packet struct {
	report.PacketCopy
	Rule      string // as --firewallRule writes it
	Interface string
}

// origin is a pcapng interface: here, the interface of packets, and the rule.
type origin struct {
	rule, device string
	action       policy.RuleAction
	layer3       bool
}

// A Recording writes firewall.pcapng of a folder, and rotates it to firewall.1.pcapng and so on.
// Only root may read the files: packets contain secrets.
type Recording struct {
	dir     string
	limit   int64    // of written
	file    *os.File // nil: none is open
	written int64
	whole   int64            // of written, up to the last complete packet
	pcapng  *pcapgo.NgWriter // nil: nothing was written to the file
	origins map[origin]int
}

// RecordIn returns the Recording of a folder. The first packet creates its files.
func RecordIn(dir string) *Recording { return &Recording{dir: dir, limit: maxFileBytes} }

// Write writes packets.
func (f *Recording) Write(list []Packet) error {
	for i := range list {
		if err := f.write(&list[i]); err != nil {
			return errors.Join(err, f.giveUp())
		}
	}
	if f.pcapng == nil {
		return nil
	}
	if err := f.pcapng.Flush(); err != nil {
		return errors.Join(fmt.Errorf("write a record: %w", err), f.giveUp())
	}
	return f.commit()
}

// commit marks all written bytes as complete. A file gets its name with its first packets; only
// then are older files rotated.
func (f *Recording) commit() error {
	if f.whole == 0 && f.written > 0 {
		if err := f.rotate(); err != nil {
			return errors.Join(err, f.giveUp())
		}
	}
	f.whole = f.written
	return nil
}

// giveUp removes an incomplete part of a file. A file with packets continues with a new section; an
// empty one is begun again.
func (f *Recording) giveUp() error {
	file := f.file
	if file == nil {
		return nil
	}
	f.written, f.pcapng, f.origins = f.whole, nil, map[origin]int{}
	err := file.Truncate(f.whole)
	if err == nil && f.whole > 0 {
		_, err = file.Seek(f.whole, io.SeekStart)
	}
	if err == nil && f.whole > 0 {
		return nil
	}
	f.file = nil
	return errors.Join(err, file.Close())
}

func (f *Recording) write(p *Packet) error {
	if f.file != nil && f.written >= f.limit {
		if err := f.Close(); err != nil {
			return err
		}
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	id, err := f.origin(origin{p.Rule, p.Interface, p.Action, p.Layer3})
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	about := gopacket.CaptureInfo{Timestamp: p.Time, CaptureLength: len(p.Data), Length: max(p.Length, len(p.Data)), InterfaceIndex: id}
	if err := f.pcapng.WritePacket(about, p.Data); err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	return nil
}

// origin returns the number of an origin in the file.
func (f *Recording) origin(o origin) (int, error) {
	if id, there := f.origins[o]; there {
		return id, nil
	}
	about := pcapgo.NgInterface{
		Name: o.device, Description: "firewall rule, " + o.action.String(), Filter: o.rule, LinkType: layers.LinkTypeEthernet, SnapLength: snapLength, TimestampResolution: 9,
	}
	if o.layer3 {
		about.LinkType = layers.LinkTypeRaw
	}
	var id int
	var err error
	if f.pcapng == nil {
		f.pcapng, err = pcapgo.NewNgWriterInterface(counted{f}, about, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "loxilb"}})
	} else {
		id, err = f.pcapng.AddInterface(about)
	}
	if err == nil {
		f.origins[o] = id
	}
	return id, err
}

// counted counts written bytes.
type counted struct{ *Recording }

func (c counted) Write(b []byte) (int, error) {
	n, err := c.file.Write(b)
	c.written += int64(n)
	return n, err
}

// open creates the temporary file.
func (f *Recording) open() error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of records: %w", err)
	}
	if err := os.Remove(f.temporary()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("begin a record: %w", err)
	}
	file, err := os.OpenFile(f.temporary(), os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("begin a record: %w", err)
	}
	f.file, f.written, f.whole, f.pcapng, f.origins = file, 0, 0, nil, map[origin]int{}
	return nil
}

// rotate renames the existing files, and gives the first name to the new one.
func (f *Recording) rotate() error {
	for n := keptFiles; n >= 1; n-- {
		if err := os.Rename(f.name(n-1), f.name(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rotate records: %w", err)
		}
	}
	if err := os.Rename(f.temporary(), f.name(0)); err != nil {
		return fmt.Errorf("begin a record: %w", err)
	}
	return nil
}

// temporary returns the path of a file that has no complete packet yet.
func (f *Recording) temporary() string { return filepath.Join(f.dir, "firewall.pcapng.tmp") }

func (f *Recording) name(n int) string {
	if n == 0 {
		return filepath.Join(f.dir, "firewall.pcapng")
	}
	return filepath.Join(f.dir, fmt.Sprintf("firewall.%d.pcapng", n))
}

// Close ends the file. The next packet begins another one.
func (f *Recording) Close() error {
	if f.file == nil {
		return nil
	}
	var err error
	if f.pcapng != nil {
		if err = f.pcapng.Flush(); err == nil {
			err = f.commit()
		}
	}
	if err != nil {
		err = errors.Join(err, f.giveUp())
	}
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	f.file, f.pcapng = nil, nil
	if err != nil {
		return fmt.Errorf("end a record: %w", err)
	}
	return nil
}
