package faulty

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/test/netnstest"
)

// Direction is one direction of a wire.
type Direction struct {
	objects wireObjects
	links   []link.Link
	delayer *delayer
	faults  wireFaults
}

// newDirection forwards packets from one interface to another.
func newDirection(h *netnstest.Host, from, to string, mtu int, seed uint64) (d *Direction, err error) {
	d = &Direction{}
	if d.delayer, err = newDelayer(h, "held-"+from, mtu); err != nil {
		return nil, err
	}
	if err := d.load(h, to, seed); err != nil {
		d.close()
		return nil, err
	}
	err = h.Do(func() error {
		return errors.Join(d.attach(h, from, d.objects.Carry), d.attach(h, d.delayer.name, d.objects.Release))
	})
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *Direction) load(h *netnstest.Host, to string, seed uint64) error {
	spec, err := loadWire()
	if err != nil {
		return err
	}
	far, err := ifindex(h, to)
	if err != nil {
		return err
	}
	held, err := ifindex(h, d.delayer.name)
	if err != nil {
		return err
	}
	err = errors.Join(spec.Variables["seed"].Set(seed), spec.Variables["far_end"].Set(far), spec.Variables["holder"].Set(held))
	if err == nil {
		err = spec.LoadAndAssign(&d.objects, nil)
	}
	if err != nil {
		return fmt.Errorf("load the wire's programs: %w", err)
	}
	return nil
}

// attach attaches a program to an interface. The caller is in the namespace of the wire.
func (d *Direction) attach(h *netnstest.Host, name string, p *ebpf.Program) error {
	at, err := ifindex(h, name)
	if err != nil {
		return err
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: int(at), Program: p, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return fmt.Errorf("attach the wire's program to %s: %w", name, err)
	}
	d.links = append(d.links, l)
	return nil
}

func (d *Direction) close() {
	for _, l := range d.links {
		_ = l.Close()
	}
	_ = d.objects.Close()
	d.delayer.close()
}

// Set sets the faults of this direction.
func (d *Direction) Set(f Faults) error {
	d.delayer.delay.Store(int64(f.DelayTime))
	d.faults = wireFaults{
		Lose: threshold(f.Loss), Repeat: threshold(f.Duplicate), Delay: threshold(f.Delay), Corrupt: threshold(f.Corrupt),
		Cut: d.faults.Cut,
	}
	return d.updateMap()
}

// SetCut makes this direction drop all packets, or forward them again.
func (d *Direction) SetCut(cut bool) error {
	d.faults.Cut = 0
	if cut {
		d.faults.Cut = 1
	}
	return d.updateMap()
}

func (d *Direction) updateMap() error {
	if err := d.objects.Faults.Put(uint32(0), d.faults); err != nil {
		return fmt.Errorf("set the wire's faults: %w", err)
	}
	return nil
}

// Counts returns the counts of packets so far.
func (d *Direction) Counts() (Counts, error) {
	var c wireCounts
	if err := d.objects.Counts.Lookup(uint32(0), &c); err != nil {
		return Counts{}, fmt.Errorf("read the wire's counts: %w", err)
	}
	return Counts{Packets: c.Packets, Lost: c.Lost, Duplicated: c.Repeated, Delayed: c.Delayed, Corrupted: c.Corrupted, Cut: c.Cut}, nil
}

// threshold returns the number of faults among 2^32 packets, for a share between 0 and 1.
func threshold(share float64) uint64 { return uint64(share * (math.MaxUint32 + 1)) }
