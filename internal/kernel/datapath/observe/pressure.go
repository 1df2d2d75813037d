package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/report"
)

// Meter reads how full the connection table is, how many clients the packet path has challenged,
// and how many it knows (docs/adr/0070-pressure.md).
type Meter struct {
	shared       *loader.Collection
	clock        loader.Clock
	knownClients func() (*ebpf.Memory, error) // mapped once
}

// NewMeter reads the counters of a collection's programs.
func NewMeter(c *loader.Collection) *Meter {
	return &Meter{shared: c, knownClients: sync.OnceValues(c.Maps.KnownClients.Memory)}
}

// Pressure returns the current numbers of connections, and the challenges so far.
func (m *Meter) Pressure() (p report.Pressure, err error) {
	if p, err = m.Fullness(); err != nil {
		return p, err
	}
	if p.Challenged, p.Answered, err = m.Challenges(); err != nil {
		return p, err
	}
	p.KnownClients, err = m.known()
	return p, err
}

// Challenges returns the number of challenged SYNs so far, and of answers.
func (m *Meter) Challenges() (sent, answered uint64, err error) {
	var each []bpf.TcChallengeCounts
	if err := m.shared.Maps.Challenges.Lookup(uint32(0), &each); err != nil {
		return 0, 0, fmt.Errorf("read challenges: %w", err)
	}
	for _, n := range each {
		sent += n.Sent
		answered += n.Answered
	}
	return sent, answered, nil
}

// Fullness returns the part of Pressure that is read with a few look-ups: how full the table is.
func (m *Meter) Fullness() (p report.Pressure, err error) {
	var now bpf.TcHalfOpen
	var kept []bpf.TcHalfOpenKept
	entries, err1 := m.shared.Conntrack.Len()
	most, err2 := m.shared.Conntrack.Max()
	short, err3 := m.portsShort()
	err = errors.Join(err1, err2, err3, m.shared.Maps.HalfOpens.Lookup(uint32(0), &now), m.shared.Maps.HalfOpensKept.Lookup(uint32(0), &kept))
	if err != nil {
		return p, fmt.Errorf("read how full the connection table is: %w", err)
	}
	for _, k := range kept {
		for class := range now.Of {
			now.Of[class] += k.Of[class]
		}
	}
	return report.Pressure{
		HalfOpenTCP:    max(0, now.Of[bpf.TcHalfOpenClassHALF_OPEN_TCP]),
		HalfOpenOthers: max(0, now.Of[bpf.TcHalfOpenClassHALF_OPEN_OTHERS]),
		HalfOpenMax:    int64(most/conntrack.EntriesPerConnection) * int64(m.shared.HalfOpen) / 100,
		Entries:        int64(entries), EntriesMax: int64(most), PortsShort: short,
	}, nil
}

// portsShort reports whether packets have recently found a nearly used-up pool of source ports
// (bpf/limit/port_pressure.h).
func (m *Meter) portsShort() (bool, error) {
	var until uint32
	if err := m.shared.Variables.PortPressureUntil.Get(&until); err != nil || until == 0 {
		return false, err
	}
	now, err := m.clock.In(0, &m.shared.Settings)
	return until-now-1 < m.shared.Jiffies(time.Duration(bpf.TcPortLayoutPORT_PRESSURE_SECONDS)*time.Second), err
}

// known counts the valid rows. It reads them as memory: system calls would take most of the time of
// a scrape of metrics.
func (m *Meter) known() (n uint64, err error) {
	now, err := loader.Now()
	if err != nil {
		return 0, err
	}
	memory, err := m.knownClients()
	if err != nil {
		return 0, fmt.Errorf("map known clients: %w", err)
	}
	longest := m.shared.Jiffies(loader.KnownTime)
	page := make([]byte, os.Getpagesize())
	for at := 0; at < int(memory.Size()); at += len(page) {
		if _, err := memory.ReadAt(page, int64(at)); err != nil {
			return 0, fmt.Errorf("read known clients: %w", err)
		}
		for i := 0; i < len(page); i += 8 {
			row := binary.NativeEndian.Uint64(page[i:])
			if left := uint32(row) - now; row != 0 && left != 0 && left <= longest {
				n++
			}
		}
	}
	return n, nil
}
