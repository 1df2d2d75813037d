package network_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"loxilb/test/dptest"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// hostRule is a row of the table in docs/hosts.md: a part of the host's own configuration.
type hostRule struct {
	name       string
	setUp      string // commands in the balancer's namespace
	remove     string
	dropReason string // of packets of new connections; empty: the rule does not apply
	uncounted  bool   // drops are not counted, or by a reason that varies
	doctor     string // id of doctor's finding; "none": it reports no policy of the endpoint; empty: not checked
	requires   string // a command that fails if the kernel does not support the rule
}

// TestHostRules checks, for each row of the table in docs/hosts.md, whether the host's own rule
// applies to balanced packets.
func TestHostRules(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--redirect-peer=false"}})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=32.32.32.1:1", rig.VIP4)
	vip := rig.Join(rig.VIP4, 80)
	drop := "nft add table inet host; nft 'add chain inet host c { type filter hook %s priority -300; policy drop; }'"
	const flush = "nft delete table inet host"
	for _, row := range []hostRule{
		{name: "IPsec out block", setUp: "ip xfrm policy add dir out dst 31.31.31.0/24 action block", remove: "ip xfrm policy flush", doctor: "ipsec:31.31.31.1", uncounted: true},
		{
			name: "IPsec out ESP", doctor: "ipsec:31.31.31.1", uncounted: true, remove: "ip xfrm policy flush",
			setUp: "ip xfrm policy add dir out src 0.0.0.0/0 dst 31.31.31.1/32 proto tcp dport 5001 tmpl proto esp mode transport",
		},
		{
			name: "IPsec out to clients", doctor: "ipsec:100.100.100.0/24", dropReason: "ipsec-policy", remove: "ip xfrm policy flush",
			setUp: "ip xfrm policy add dir out src 20.20.20.1/32 dst 100.100.100.0/24 tmpl src 1.2.3.4 dst 5.6.7.8 proto esp mode tunnel",
		},
		{name: "IPsec default block", setUp: "ip xfrm policy setdefault out block", remove: "ip xfrm policy setdefault out accept", doctor: "ipsec:31.31.31.1", uncounted: true},
		{name: "IPsec fwd block", setUp: "ip xfrm policy add dir fwd dst 20.20.20.1 action block", remove: "ip xfrm policy flush", doctor: "ipsec:31.31.31.1", uncounted: true},
		{name: "IPsec fwd ESP", setUp: "ip xfrm policy add dir fwd src 0.0.0.0/0 dst 20.20.20.1 tmpl proto esp mode transport", remove: "ip xfrm policy flush", dropReason: "ipsec-policy"},
		{name: "IPsec in block", setUp: "ip xfrm policy add dir in dst 20.20.20.1 action block", remove: "ip xfrm policy flush", doctor: "none"},
		{name: "IPsec by interface id", setUp: "ip xfrm policy add dir out dst 31.31.31.0/24 if_id 7 action block", remove: "ip xfrm policy flush", doctor: "none"},
		{
			name: "IPsec with an exception before", doctor: "none", remove: "ip xfrm policy flush",
			setUp: "ip xfrm policy add dir out dst 31.31.31.1/24 priority 10 action allow; ip xfrm policy add dir out dst 31.31.31.0/24 priority 20 action block",
		},
		{
			name:   "IPsec by mark, and of others",
			setUp:  "ip xfrm policy add dir out dst 31.31.31.0/24 mark 7 mask 0xff action block; ip xfrm policy add dir out src 9.9.8.0/24 dst 9.9.9.0/24 action block",
			remove: "ip xfrm policy flush", doctor: "none",
		},
		{
			name:   "netfilter prerouting",
			setUp:  fmt.Sprintf(drop, "prerouting") + "; nft 'insert rule inet host c ct state established accept'; nft 'insert rule inet host c iif lo accept'",
			remove: flush,
		},
		{name: "netfilter input", setUp: fmt.Sprintf(drop, "input") + "; nft 'insert rule inet host c iif lo accept'", remove: flush},
		{name: "netfilter output", setUp: fmt.Sprintf(drop, "output") + "; nft 'insert rule inet host c oif lo accept'", remove: flush},
		{
			name:   "masquerading",
			setUp:  "nft add table ip host; nft 'add chain ip host c { type nat hook postrouting priority 100; }'; nft add rule ip host c masquerade",
			remove: "nft delete table ip host",
		},
		{name: "netfilter forward", setUp: fmt.Sprintf(drop, "forward"), remove: flush},
		{name: "netfilter postrouting", setUp: fmt.Sprintf(drop, "postrouting") + "; nft 'insert rule inet host c oif lo accept'", remove: flush},
		{
			name: "netfilter ingress",
			setUp: "nft add table netdev host; nft 'add chain netdev host c { type filter hook ingress device client priority 0; policy accept; }'; nft 'add " +
				"rule netdev host c tcp dport 80 drop'",
			remove: "nft delete table netdev host",
		},
		{
			name: "netfilter egress",
			setUp: "nft add table netdev host; nft 'add chain netdev host c { type filter hook egress device ep1 priority 0; policy accept; }'; nft 'add rule " +
				"netdev host c tcp dport 5001 drop'",
			remove: "nft delete table netdev host",
			// Kernels without this feature also call the hook for redirected packets.
			requires: "grep -aq nf_skip_egress /sys/kernel/btf/vmlinux",
		},
		{
			name: "rule by mark",
			setUp: "nft add table inet host; nft 'add chain inet host c { type filter hook prerouting priority -300; }'; nft add rule inet host c meta mark set " +
				"7; ip rule add fwmark 7 prohibit",
			remove: flush + "; ip rule del fwmark 7",
		},
		{name: "rule by interface", setUp: "ip rule add iif client to 31.31.31.1 prohibit", remove: "ip rule del iif client to 31.31.31.1 prohibit"},
		{
			name: "rule by source", setUp: "ip rule add from 100.100.100.1 to 31.31.31.1 prohibit",
			remove: "ip rule del from 100.100.100.1 to 31.31.31.1 prohibit", dropReason: "route-unreachable",
		},
		{
			name: "rule by port", setUp: "ip rule add to 31.31.31.1 ipproto tcp dport 5001 blackhole",
			remove: "ip rule del to 31.31.31.1 ipproto tcp dport 5001 blackhole", dropReason: "route-unreachable",
		},
		{name: "rule by destination", setUp: "ip rule add to 31.31.31.1 prohibit", remove: "ip rule del to 31.31.31.1 prohibit", dropReason: "route-unreachable"},
		{name: "route of type blackhole", setUp: "ip route add blackhole 31.31.31.1", remove: "ip route del blackhole 31.31.31.1", dropReason: "route-unreachable"},
		{name: "route of type prohibit", setUp: "ip route add prohibit 31.31.31.1", remove: "ip route del prohibit 31.31.31.1", dropReason: "route-unreachable"},
		{name: "route", setUp: "ip route add unreachable 31.31.31.1", remove: "ip route del unreachable 31.31.31.1", dropReason: "route-unreachable"},
		{name: "VRF of the endpoint", setUp: vrf + "ip link set ep1 master vrf7", remove: "ip link del vrf7", dropReason: "no-route", requires: needsVRF},
		{name: "VRF of the client", setUp: vrf + "ip link set client master vrf7", remove: "ip link del vrf7", dropReason: "no-route", requires: needsVRF},
		{
			name: "VRF of both", setUp: vrf + "ip link set client master vrf7; ip link set ep1 master vrf7",
			remove: "ip link del vrf7", dropReason: "no-route", requires: needsVRF,
		},
		{
			name: "VRF, and a route outside of it", setUp: vrf + "ip link set ep1 master vrf7; ip route add 31.31.31.1/32 dev ep1",
			remove: "ip route del 31.31.31.1/32; ip link del vrf7", requires: needsVRF,
		},
		{
			name: "qdisc at egress", setUp: "tc qdisc add dev ep1 root tbf rate 1kbit burst 40 limit 40", remove: "tc qdisc del dev ep1 root", uncounted: true,
			requires: "tc qdisc add dev ep2 root tbf rate 1kbit burst 40 limit 40; rc=$?; tc qdisc del dev ep2 root; exit $rc",
		},
	} {
		row.check(t, r, vip)
	}
}

// vrf creates a VRF, and needsVRF fails if the kernel does not support VRFs.
const (
	vrf      = "ip link add vrf7 type vrf table 77; ip link set vrf7 up; "
	needsVRF = "ip link add probe7 type vrf table 78 && ip link del probe7"
)

// TestHostRulesBefore checks that other programs that run before loxilb's at ingress apply.
func TestHostRulesBefore(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
	vip := rig.Join(rig.VIP4, 80)
	programs := map[string]func(index int) (link.Link, error){
		"XDP": func(index int) (link.Link, error) {
			return link.AttachXDP(link.XDPOptions{Interface: index, Program: programReturning(t, ebpf.XDP, 1), Flags: link.XDPGenericMode})
		},
	}
	if dptest.HasTCX() {
		const drops = 2 // TC_ACT_SHOT
		programs["tcx"] = func(index int) (link.Link, error) {
			return link.AttachTCX(link.TCXOptions{Interface: index, Program: programReturning(t, ebpf.SchedCLS, drops), Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
		}
	}
	for name, attach := range programs {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, vip) })
		var attached link.Link
		err := r.LB.Do(func() error {
			i, err := net.InterfaceByName("client")
			if err == nil {
				attached, err = attach(i.Index)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if served(t.Context(), r, vip) == nil {
			t.Errorf("%s: a program before loxilb's does not apply", name)
		}
		if err := attached.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// programReturning returns a program that returns a constant.
func programReturning(t *testing.T, kind ebpf.ProgramType, returns int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: kind, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, returns), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// dropAtEgress returns, for each egress hook of the host, the commands that add and remove a rule
// that drops packets at an interface.
func dropAtEgress() map[string][2]string {
	return map[string][2]string{
		"netfilter": {
			"nft add table netdev host; nft 'add chain netdev host c { type filter hook egress device ep1 priority 0; policy accept; }'; nft 'add rule netdev host c tcp dport 5001 drop'",
			"nft delete table netdev host",
		},
		"tc":    {tcRule("ep1 egress", "99", true).setUp, tcRule("ep1 egress", "99", true).remove},
		"qdisc": {"tc qdisc add dev ep1 root tbf rate 1kbit burst 40 limit 40", "tc qdisc del dev ep1 root"},
	}
}

// TestHostRulesRedirectPeer checks that, with --redirect-peer, rules at this machine's end of a
// veth do not apply, and rules of the namespace at its other end do.
func TestHostRulesRedirectPeer(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
	vip := rig.Join(rig.VIP4, 80)
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, vip) })
	for name, rule := range dropAtEgress() {
		if _, err := r.LB.Run("sh", "-e", "-c", strings.ReplaceAll(rule[0], "; ", "\n")); err != nil {
			t.Logf("%s: not here: this kernel lacks it", name)
			continue
		}
		for range 3 {
			if err := served(t.Context(), r, vip); err != nil {
				t.Errorf("%s at this end of the veth applies: %v", name, err)
			}
		}
		rig.MustRun(t, r.LB, "sh", "-c", rule[1])
	}
	for name, rule := range map[string][2]string{
		"netfilter": {
			"nft add table netdev host; nft 'add chain netdev host c { type filter hook ingress device eth0 priority 0; policy accept; }'; nft 'add rule netdev host c tcp dport 5001 drop'",
			"nft delete table netdev host",
		},
		"tc": {tcRule("eth0 ingress", "99", true).setUp, tcRule("eth0 ingress", "99", true).remove},
	} {
		if _, err := r.Endpoints[0].Run("sh", "-e", "-c", strings.ReplaceAll(rule[0], "; ", "\n")); err != nil {
			t.Logf("%s: not here: this kernel lacks it", name)
			continue
		}
		if served(t.Context(), r, vip) == nil {
			t.Errorf("%s at the other end of the veth does not apply", name)
		}
		rig.MustRun(t, r.Endpoints[0], "sh", "-c", rule[1])
	}
}

// TestHostRulesXDP checks that egress rules of an interface do not apply to packets that XDP
// forwards.
func TestHostRulesXDP(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--xdp=generic", "--redirect-peer=false"}, Before: rig.DisableOffloads})
	r.ServeEchoes()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
	for name, rule := range dropAtEgress() {
		var conn net.Conn
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			c, err := r.Client.DialContext(t.Context(), "tcp", rig.Join(rig.VIP4, 80))
			conn = c
			return err
		})
		forwarded := func() float64 { return r.Metric("xdp_forwarded_packets_total") }
		before := forwarded()
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			if err := rig.Exchange(conn, "before\n"); err != nil || forwarded() == before {
				return fmt.Errorf("XDP forwards no packet: %w", err)
			}
			return nil
		})
		if _, err := r.LB.Run("sh", "-e", "-c", strings.ReplaceAll(rule[0], "; ", "\n")); err != nil {
			t.Logf("%s: not here: this kernel lacks it", name)
			continue
		}
		for range 3 {
			if err := rig.Exchange(conn, "while it is there\n"); err != nil {
				t.Errorf("%s at egress applies to packets that XDP forwards: %v", name, err)
				break
			}
		}
		rig.MustRun(t, r.LB, "sh", "-c", rule[1])
		_ = conn.Close()
	}
}

// check adds a rule, checks its effect on new connections, and removes it.
func (row *hostRule) check(t *testing.T, r *rig.Rig, vip string) {
	t.Helper()
	if row.requires != "" {
		if _, err := r.LB.Run("sh", "-c", row.requires); err != nil {
			t.Logf("%s: not here: this kernel lacks it", row.name)
			return
		}
	}
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, vip) })
	var before float64
	if row.dropReason != "" {
		before = r.Metric("drops_total", "reason="+row.dropReason)
	}
	rig.MustRun(t, r.LB, "sh", "-e", "-c", strings.ReplaceAll(row.setUp, "; ", "\n"))
	wanted, unwanted := row.doctor, ""
	if row.doctor == "none" {
		// a policy for another endpoint shows that the daemon has read all policies
		rig.MustRun(t, r.LB, "ip", "xfrm", "policy", "add", "dir", "out", "src", "9.9.7.0/24", "dst", "32.32.32.1", "action", "block")
		wanted, unwanted = "ipsec:9.9.7.0/24", "ipsec:31.31.31.1"
	}
	if row.dropReason == "" && !row.uncounted {
		for range 3 {
			if err := servedWithin(t.Context(), r, vip, rig.Patience); err != nil {
				t.Errorf("%s: applies to balanced packets: %v", row.name, err)
			}
		}
	} else {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			for range 3 {
				if served(ctx, r, vip) == nil {
					return fmt.Errorf("%s: does not apply to balanced packets", row.name)
				}
			}
			return nil
		})
	}
	if wanted != "" {
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			out, _ := r.Command("doctor", "-o", "json")
			if !strings.Contains(out, wanted) || unwanted != "" && strings.Contains(out, unwanted) {
				return fmt.Errorf("%s: doctor does not find %s, or finds %q:\n%s", row.name, wanted, unwanted, out)
			}
			return nil
		})
	}
	if row.dropReason != "" && r.Metric("drops_total", "reason="+row.dropReason) == before {
		t.Errorf("%s: not dropped as %s", row.name, row.dropReason)
	}
	rig.MustRun(t, r.LB, "sh", "-e", "-c", strings.ReplaceAll(row.remove, "; ", "\n"))
}

// served opens a connection of the client, and returns an error if it is not answered.
func served(ctx context.Context, r *rig.Rig, vip string) error {
	return servedWithin(ctx, r, vip, 500*time.Millisecond)
}

func servedWithin(ctx context.Context, r *rig.Rig, vip string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := r.Client.Get(ctx, vip)
	return err
}
