package attach

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/bpf"
)

// DecapConfig selects the packets that a Decap decapsulates.
type DecapConfig struct {
	VIPs []netip.Addr   // inner destinations
	From []netip.Prefix // outer sources
	Port uint16         // of UDP, host byte order
}

// Decap is the program of endpoints that removes the outer headers of direct return. It is not
// pinned, and is attached until Close.
type Decap struct {
	obj      bpf.DecapObjects
	attached map[string]decapAt // by name of the interface
}

// decapAt is an attachment to the interface with an index.
type decapAt struct {
	Attachment
	index int
}

// LoadDecap loads the program.
func LoadDecap(c DecapConfig) (*Decap, error) {
	spec, err := bpf.LoadDecap()
	if err == nil {
		err = spec.Variables["decap_port"].Set(bpf.Port(c.Port))
	}
	if err != nil {
		return nil, fmt.Errorf("prepare decap: %w", err)
	}
	d := &Decap{attached: map[string]decapAt{}}
	if err := spec.LoadAndAssign(&d.obj, nil); err != nil {
		return nil, fmt.Errorf("load decap: %w", err)
	}
	for _, vip := range c.VIPs {
		if err := d.obj.DecapVips.Put(bpf.Addr(vip), uint8(1)); err != nil {
			return nil, errors.Join(fmt.Errorf("write VIP %s: %w", vip, err), d.Close())
		}
	}
	for _, p := range c.From {
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += 96
		}
		key := bpf.DecapDecapSource{PrefixLength: uint32(bits), Addr: bpf.DecapIpAddr(bpf.Addr(p.Addr()))}
		if err := d.obj.DecapSources.Put(key, uint8(1)); err != nil {
			return nil, errors.Join(fmt.Errorf("write source %s: %w", p, err), d.Close())
		}
	}
	return d, nil
}

// Attach attaches the program to the interface's ingress, in front of others. It ends the
// attachment to a former interface of the name, which may have been renamed.
func (d *Decap) Attach(i Interface, hook Hook) error {
	former, had := d.attached[i.Name]
	if former.index == i.Index {
		return nil
	}
	prog := d.obj.LoxilbDecapEther
	if i.Layer3 {
		prog = d.obj.LoxilbDecapLayer3
	}
	a, err := attachFirst(i, hook, prog)
	if err != nil {
		return fmt.Errorf("attach %s: %w", i.Name, err)
	}
	d.attached[i.Name] = decapAt{a, i.Index}
	if had {
		_ = former.Detach() // it fails if the interface was deleted
		_ = former.Close()
	}
	return nil
}

// attachFirst attaches a program to the interface's ingress, in front of others, until it is
// detached. A balancer on the same interface keeps its own program.
func attachFirst(i Interface, h Hook, prog *ebpf.Program) (Attachment, error) {
	if h.resolve() != HookTCX {
		return agents.attach(i.Index, ingress, prog, &Exchange{})
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return nil, err
	}
	return Unpinned(l), nil
}

// Counts returns the number of packets by outcome: taken, source, vip, congestion or failed.
func (d *Decap) Counts() (map[string]uint64, error) {
	names := [...]string{"taken", "source", "vip", "congestion", "failed"}
	out := make(map[string]uint64, len(names))
	for i, name := range names {
		var each []uint64
		if err := d.obj.DecapCounts.Lookup(uint32(i), &each); err != nil {
			return nil, fmt.Errorf("read counts: %w", err)
		}
		for _, n := range each {
			out[name] += n
		}
	}
	return out, nil
}

// Close detaches and unloads the program.
func (d *Decap) Close() error {
	var errs []error
	for _, a := range d.attached {
		errs = append(errs, Remove(a.Attachment))
	}
	return errors.Join(append(errs, d.obj.Close())...)
}
