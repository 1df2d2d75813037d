package differential

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"loxilb/internal/lb"
	"loxilb/test/packet/lab"
)

// kernel is nftables dnat (and snat) with nf_conntrack, on a router.
type kernel struct {
	net     *lab.Network
	invalid uint64 // number of packets that conntrack has considered invalid
}

func newKernel() (balancer, error) {
	n, err := lab.NewNetwork()
	if err != nil {
		return nil, err
	}
	k := &kernel{net: n}
	err = errors.Join(k.load(ruleset(nil)), router(settings()...), addVIPs())
	for _, link := range []*lab.Link{n.Client, n.Server} {
		_, readErr := n.TakeSent(link) // packets that the kernel sent when the link came up
		err = errors.Join(err, readErr)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return k, nil
}

func (k *kernel) network() *lab.Network { return k.net }

func (k *kernel) begin(q *sequence) error {
	if err := k.load(ruleset(q.services)); err != nil {
		return err
	}
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("flush conntrack: %w", err)
	}
	var err error
	k.invalid, err = countInvalid()
	return err
}

func (k *kernel) record(o *outcome) error {
	n, err := countInvalid()
	o.invalid, k.invalid = o.invalid || n > k.invalid, n
	return err
}

func (k *kernel) close() error { return k.net.Close() }

// load replaces the ruleset. Reloaded rules begin with the first endpoint.
func (k *kernel) load(rules string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s\n%s", err, out, rules)
	}
	return nil
}

// ruleset returns the services as rules of nftables.
func ruleset(services []lb.Service) string {
	var dnat, snat strings.Builder
	for _, s := range services {
		ip := "ip"
		if s.VIP.Is6() {
			ip = "ip6"
		}
		var places []string
		for i, e := range s.Endpoints {
			places = append(places, fmt.Sprintf("%d : %s . %d", i, e.Addr, e.Port))
		}
		fmt.Fprintf(&dnat, "\t\t%s daddr %s %s dport %d dnat %s to numgen inc mod %d map { %s }\n",
			ip, s.VIP, s.Protocol, s.Port, ip, len(places), strings.Join(places, ", "))
		of := fmt.Sprintf("ct status dnat ct original %s daddr %s meta l4proto %s ct original proto-dst %d", ip, s.VIP, s.Protocol, s.Port)
		switch s.Mode {
		case lb.ModeFullNAT:
			fmt.Fprintf(&snat, "\t\t%s snat %s to %s\n", of, ip, s.VIP)
		case lb.ModeOneArm:
			fmt.Fprintf(&snat, "\t\t%s masquerade\n", of)
		}
	}
	return fmt.Sprintf("flush ruleset\ntable inet balancer {\n\tchain services {\n\t\ttype nat hook prerouting priority dstnat;\n%s\t}\n"+
		"\tchain sources {\n\t\ttype nat hook postrouting priority srcnat;\n%s\t}\n}\n", &dnat, &snat)
}

// countInvalid returns how many packets conntrack has considered invalid in this namespace.
func countInvalid() (uint64, error) {
	text, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
	if err != nil {
		return 0, err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var n uint64
	for _, line := range lines[1:] { // one for each CPU
		words := strings.Fields(line)
		if len(words) < 5 {
			return 0, fmt.Errorf("nf_conntrack statistics: %q", line)
		}
		by, err := strconv.ParseUint(words[4], 16, 64)
		if err != nil {
			return 0, err
		}
		n += by
	}
	return n, nil
}
