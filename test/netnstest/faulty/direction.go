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
	holder  *holder
	faults  wireFaults
}

// newDirection carries packets that arrive at one interface to another.
func newDirection(h *netnstest.Host, from, to string, mtu int, seed uint64) (d *Direction, err error) {
	d = &Direction{}
	if d.holder, err = newHolder(h, "held-"+from, mtu); err != nil {
		return nil, err
	}
	if err := d.load(h, to, seed); err != nil {
		d.close()
		return nil, err
	}
	err = h.Do(func() error {
		return errors.Join(d.attach(h, from, d.objects.Carry), d.attach(h, d.holder.name, d.objects.Release))
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
	far, err := index(h, to)
	if err != nil {
		return err
	}
	held, err := index(h, d.holder.name)
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

// attach is called in the namespace of the wire.
func (d *Direction) attach(h *netnstest.Host, name string, p *ebpf.Program) error {
	at, err := index(h, name)
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
	d.holder.close()
}

// Set has faults happen in this direction from now on.
func (d *Direction) Set(f Faults) error {
	d.holder.by.Store(int64(f.By))
	d.faults = wireFaults{
		Lose: threshold(f.Lose), Repeat: threshold(f.Repeat), Delay: threshold(f.Delay), Corrupt: threshold(f.Corrupt),
		Cut: d.faults.Cut,
	}
	return d.put()
}

// Cut has nothing pass in this direction, or all again.
func (d *Direction) Cut(cut bool) error {
	d.faults.Cut = 0
	if cut {
		d.faults.Cut = 1
	}
	return d.put()
}

func (d *Direction) put() error {
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
	return Counts{Packets: c.Packets, Lost: c.Lost, Repeated: c.Repeated, Delayed: c.Delayed, Corrupted: c.Corrupted, Cut: c.Cut}, nil
}

// threshold returns how many of 2^32 packets it happens to.
func threshold(share float64) uint64 { return uint64(share * (math.MaxUint32 + 1)) }
