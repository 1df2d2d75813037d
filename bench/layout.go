package main

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"loxilb/test/netnstest"
)

// layout says which CPUs the parts of a rig may use. In the layout "one" all use all, as on one
// machine. In "pinned" each has its own, which is as near to separate machines as one machine
// comes.
type layout struct {
	client, lb, endpoints []int // empty: all
	steered               bool  // packets are moved to the CPUs of who is to handle them
}

// together has all on one CPU.
func together() layout { return layout{client: []int{0}, lb: []int{0}, endpoints: []int{0}} }

// layoutNamed divides n CPUs. With two, the client and the endpoints share one: it is the balancer
// that is measured.
func layoutNamed(name string, n int) (layout, error) {
	switch {
	case name == "one":
		return layout{}, nil
	case name != "pinned":
		return layout{}, fmt.Errorf("layout %q is none; there are one and pinned", name)
	case n < 2:
		return layout{}, fmt.Errorf("layout pinned needs 2 CPUs, and here is %d", n)
	case n == 2:
		return layout{client: []int{0}, endpoints: []int{0}, lb: []int{1}, steered: true}, nil
	}
	third := max(n/3, 1)
	l := layout{steered: true}
	for cpu := range n {
		switch {
		case cpu < third:
			l.client = append(l.client, cpu)
		case cpu < 2*third:
			l.lb = append(l.lb, cpu)
		default:
			l.endpoints = append(l.endpoints, cpu)
		}
	}
	return l, nil
}

// of returns the CPUs of a host's programs.
func (l layout) of(r *rig, h *netnstest.Host) []int {
	switch h {
	case r.LB:
		return l.lb
	case r.Client:
		return l.client
	}
	return l.endpoints
}

// steer has each host's packets handled on its CPUs. A veth hands a packet over on the CPU that
// sent it; receive packet steering moves it to one of the receiver's, as the interrupt of its own
// network card would.
func (l layout) steer(r *rig) error {
	if !l.steered {
		return nil
	}
	steer := func(h *netnstest.Host, name string) error {
		file := "/sys/class/net/" + name + "/queues/rx-0/rps_cpus"
		return sysfs(h, file, cpuMask(l.of(r, h)))
	}
	for _, h := range append(r.Endpoints[:], r.Client) {
		if err := steer(h, "eth0"); err != nil {
			return err
		}
		if err := steer(r.LB, h.Name); err != nil {
			return err
		}
	}
	return nil
}

// sysfs writes a file of /sys as a host sees it, which takes a mount of its own.
func sysfs(h *netnstest.Host, file, value string) error {
	_, err := h.Run("ip", "netns", "exec", h.Namespace, "sh", "-c", "echo "+value+" >"+file)
	return err
}

func cpuList(cpus []int) string {
	var out []string
	for _, c := range cpus {
		out = append(out, strconv.Itoa(c))
	}
	return strings.Join(out, ",")
}

// cpuMask returns a set of CPUs in the kernel's form: hexadecimal words of 32 bits, commas between
// them.
func cpuMask(cpus []int) string {
	set := new(big.Int)
	for _, c := range cpus {
		set.SetBit(set, c, 1)
	}
	hex := set.Text(16)
	var words []string
	for len(hex) > 8 {
		words = append([]string{hex[len(hex)-8:]}, words...)
		hex = hex[:len(hex)-8]
	}
	return strings.Join(append([]string{hex}, words...), ",")
}
