package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filter has the name, priority and handle of a filter, by which a later process finds it.
type filter struct {
	name     string
	priority uint16
	handle   uint32 // of those with the same priority, the last added one comes first
}

// The filters of the packet path, of probes, which run after it, and of agents on endpoints.
var (
	balancing = filter{"loxilb", 1, 0x10b}
	probing   = filter{"loxilb-probe", 2, 0x10b}
	agents    = filter{"loxilb-agent", 1, 0x10c}
)

// clsact is a filter at an interface's clsact qdisc. It stays when the process ends.
type clsact struct {
	filter
	index int
	at    side
}

func (c clsact) Close() error  { return nil }
func (c clsact) Detach() error { return c.detach(c.index, c.at) }

// Update replaces the filter's program.
func (c clsact) Update(prog *ebpf.Program) error {
	filter := c.filter.at(c.index, c.at)
	filter.Fd = prog.FD()
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("add clsact filter: %w", err)
	}
	return nil
}

func (f filter) attach(index int, at side, prog *ebpf.Program, e *Exchange) (Place, error) {
	qdisc := clsactQdisc(index)
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("add clsact: %w", err)
	}
	c := clsact{f, index, at}
	former, err := f.programs(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, at.clsact())
	if err != nil {
		return nil, err
	}
	if len(former) > 0 {
		err = e.Replace(former[0], prog, c.Update)
	} else {
		err = c.Update(e.Current(prog))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func clsactQdisc(index int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

func (f filter) at(index int, at side) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: at.clsact(), Handle: f.handle,
			Protocol: unix.ETH_P_ALL, Priority: f.priority,
		},
		Name: f.name, DirectAction: true,
	}
}

// detach removes the filter from an interface, and the qdisc if it has no other filter. A missing
// filter or interface is no error.
func (f filter) detach(index int, at side) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil //nolint:nilerr // the interface is gone, and the filter with it
	}
	ours, err := f.programs(l, at.clsact())
	if err != nil || len(ours) == 0 {
		return err
	}
	if err := netlink.FilterDel(f.at(index, at)); err != nil {
		return fmt.Errorf("remove clsact filter: %w", err)
	}
	in, err1 := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	out, err2 := netlink.FilterList(l, netlink.HANDLE_MIN_EGRESS)
	if err1 == nil && err2 == nil && len(in)+len(out) == 0 {
		if err := netlink.QdiscDel(clsactQdisc(index)); err != nil {
			return fmt.Errorf("remove clsact: %w", err)
		}
	}
	return nil
}

// programs returns the programs of our filters at a hook; an interface without the qdisc has none.
func (f filter) programs(l netlink.Link, parent uint32) (list []ebpf.ProgramID, err error) {
	filters, err := netlink.FilterList(l, parent)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list clsact filters: %w", err)
	}
	for _, one := range filters {
		if b, ok := one.(*netlink.BpfFilter); ok && b.Name == f.name {
			list = append(list, ebpf.ProgramID(b.Id))
		}
	}
	return list, nil
}

// clsactPrograms returns the ingress programs of connections at all interfaces.
func clsactPrograms() (all []ebpf.ProgramID, err error) {
	interfaces, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range interfaces {
		list, err := balancing.programs(l, ingress.clsact())
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// DetachClsact removes our filters from every interface of the namespace, where possible.
func DetachClsact() error { return errors.Join(balancing.detachAll(), probing.detachAll()) }

func (f filter) detachAll() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		errs = append(errs, f.detach(l.Attrs().Index, ingress), f.detach(l.Attrs().Index, egress))
	}
	return errors.Join(errs...)
}
