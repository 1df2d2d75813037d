package network_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest/labtest"
	"loxilb/test/net/rig"
)

// hostRule is a row of the table in docs/hosts.md: something that the host itself is configured with.
type hostRule struct {
	name    string
	do      string // sets it up, in the balancer's namespace
	undo    string
	refused string // new connections of the service fail for this drop reason; empty: they are served as before
	silent  bool   // they fail, and no counter of ours tells
	doctor  string // the id of what doctor finds; "none": it finds no policy of IPsec; empty: not asked
	needs   string // a command that fails where the kernel lacks it
}

// TestHostRules: which of the host's own rules apply to balanced packets, row by row of docs/hosts.md.
func TestHostRules(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--redirect-peer=false"}})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
	vip := rig.Join(rig.VIP4, 80)
	drop := "nft add table inet host; nft 'add chain inet host c { type filter hook %s priority -300; policy drop; }'"
	const flush = "nft delete table inet host"
	for _, row := range []hostRule{
		{name: "IPsec out block", do: "ip xfrm policy add dir out dst 31.31.31.0/24 action block", undo: "ip xfrm policy flush", doctor: "ipsec:31.31.31.1"},
		{
			name: "IPsec out ESP", doctor: "ipsec:31.31.31.1", undo: "ip xfrm policy flush",
			do: "ip xfrm policy add dir out src 0.0.0.0/0 dst 31.31.31.1/32 proto tcp dport 5001 tmpl proto esp mode transport",
		},
		{
			name: "IPsec out to clients", doctor: "ipsec:20.20.20.1", undo: "ip xfrm policy flush",
			do: "ip xfrm policy add dir out src 20.20.20.1/32 dst 100.100.100.0/24 tmpl src 1.2.3.4 dst 5.6.7.8 proto esp mode tunnel",
		},
		{name: "IPsec default block", do: "ip xfrm policy setdefault out block", undo: "ip xfrm policy setdefault out accept", doctor: "ipsec:31.31.31.1"},
		{
			name: "IPsec with an exception before", doctor: "none", undo: "ip xfrm policy flush",
			do: "ip xfrm policy add dir out dst 31.31.31.0/24 priority 20 action block; ip xfrm policy add dir out dst 31.31.31.1/24 priority 10 action allow",
		},
		{name: "IPsec by mark, and of others", do: "ip xfrm policy add dir out dst 31.31.31.0/24 mark 7 mask 0xff action block; ip xfrm policy add dir out dst 9.9.9.0/24 action block", undo: "ip xfrm policy flush", doctor: "none"},
		{name: "netfilter prerouting", do: fmt.Sprintf(drop, "prerouting") + "; nft 'insert rule inet host c ct state established accept'; nft 'insert rule inet host c iif lo accept'", undo: flush},
		{name: "netfilter forward", do: fmt.Sprintf(drop, "forward"), undo: flush},
		{name: "netfilter postrouting", do: fmt.Sprintf(drop, "postrouting") + "; nft 'insert rule inet host c oif lo accept'", undo: flush},
		{
			name: "netfilter ingress",
			do:   "nft add table netdev host; nft 'add chain netdev host c { type filter hook ingress device client priority 0; policy accept; }'; nft 'add rule netdev host c tcp dport 80 drop'",
			undo: "nft delete table netdev host",
		},
		{
			name: "netfilter egress",
			do:   "nft add table netdev host; nft 'add chain netdev host c { type filter hook egress device ep1 priority 0; policy accept; }'; nft 'add rule netdev host c tcp dport 5001 drop'",
			undo: "nft delete table netdev host", silent: true,
		},
		{name: "rule by mark", do: "nft add table inet host; nft 'add chain inet host c { type filter hook prerouting priority -300; }'; nft add rule inet host c meta mark set 7; ip rule add fwmark 7 prohibit", undo: flush + "; ip rule del fwmark 7"},
		{name: "rule by interface", do: "ip rule add iif client to 31.31.31.1 prohibit", undo: "ip rule del iif client to 31.31.31.1 prohibit"},
		{name: "rule by source", do: "ip rule add from 100.100.100.1 to 31.31.31.1 prohibit", undo: "ip rule del from 100.100.100.1 to 31.31.31.1 prohibit", refused: "route-unreachable"},
		{name: "rule by port", do: "ip rule add to 31.31.31.1 ipproto tcp dport 5001 blackhole", undo: "ip rule del to 31.31.31.1 ipproto tcp dport 5001 blackhole", refused: "route-unreachable"},
		{name: "route", do: "ip route add unreachable 31.31.31.1", undo: "ip route del unreachable 31.31.31.1", refused: "route-unreachable"},
		{name: "VRF", do: "ip link add vrf7 type vrf table 77; ip link set vrf7 up; ip link set ep1 master vrf7", undo: "ip link del vrf7", refused: "no-route", needs: "ip link add probe7 type vrf table 78 && ip link del probe7"},
		{
			name: "tc at ingress, behind", do: "tc qdisc add dev client clsact; tc filter add dev client ingress prio 99 matchall action drop", undo: "tc qdisc del dev client clsact",
			needs: "tc qdisc add dev client clsact && tc filter add dev client ingress prio 99 matchall action pass; rc=$?; tc qdisc del dev client clsact; exit $rc",
		},
		{
			name: "tc at egress", do: "tc qdisc add dev ep1 clsact; tc filter add dev ep1 egress matchall action drop", undo: "tc qdisc del dev ep1 clsact", silent: true,
			needs: "tc qdisc add dev client clsact && tc filter add dev client egress matchall action pass; rc=$?; tc qdisc del dev client clsact; exit $rc",
		},
	} {
		if row.needs != "" {
			if _, err := r.LB.Run("sh", "-c", row.needs); err != nil {
				t.Logf("%s: not here: this kernel lacks it", row.name)
				continue
			}
		}
		row.check(t, r, vip)
	}
}

// check sets a rule up, sees what becomes of new connections, and takes it back.
func (row *hostRule) check(t *testing.T, r *rig.Rig, vip string) {
	t.Helper()
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, vip) })
	var before float64
	if row.refused != "" {
		before = r.Metric("drops_total", "reason="+row.refused)
	}
	rig.MustRun(t, r.LB, "sh", "-e", "-c", strings.ReplaceAll(row.do, "; ", "\n"))
	if row.refused == "" && !row.silent {
		for range 3 {
			if err := served(t.Context(), r, vip); err != nil {
				t.Errorf("%s: applies to balanced packets: %v", row.name, err)
			}
		}
	} else {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			if served(ctx, r, vip) == nil {
				return fmt.Errorf("%s: does not apply to balanced packets", row.name)
			}
			return nil
		})
	}
	if row.doctor != "" {
		out, _ := r.Command("doctor", "-o", "json")
		if found := strings.Contains(out, `"ipsec:`); found != (row.doctor != "none") || found && !strings.Contains(out, row.doctor) {
			t.Errorf("%s: doctor finds other than %s:\n%s", row.name, row.doctor, out)
		}
	}
	if row.refused != "" && r.Metric("drops_total", "reason="+row.refused) == before {
		t.Errorf("%s: not dropped as %s", row.name, row.refused)
	}
	rig.MustRun(t, r.LB, "sh", "-e", "-c", strings.ReplaceAll(row.undo, "; ", "\n"))
}

// served opens a connection of the client and asks for an answer.
func served(ctx context.Context, r *rig.Rig, vip string) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err := r.Client.Get(ctx, vip)
	return err
}
