package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// shortWait is how long to wait for an answer that must not arrive.
const shortWait = 500 * time.Millisecond

// connect returns an error unless a host can open a connection and gets an answer within shortWait.
func connect(ctx context.Context, h *netnstest.Host, network, address string) error {
	ctx, cancel := context.WithTimeout(ctx, shortWait)
	defer cancel()
	c, err := h.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	return checkAnswers(c)
}

// checkAnswers returns an error unless an open connection gets an answer.
func checkAnswers(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(shortWait)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("who am I?\n")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 64))
	return err
}

// TestFirewall checks that rules apply to connections of services, of this machine itself and to
// established ones, also after a kill and a restart of the daemon.
func TestFirewall(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	r.ServeSource(r.LB, ":7100", ":7100")
	for _, f := range []struct{ vip, endpoints, client, lb, endpoint, towards string }{
		{rig.VIP4, rig.Endpoints4(), "100.100.100.1", "100.100.100.254", "31.31.31.1", "31.31.31.254"},
		{rig.VIP6, rig.Endpoints6(), "2001:db8:100::1", "2001:db8:100::fe", "2001:db8:31::1", "2001:db8:31::fe"},
	} {
		r.Loxicmd("create lb %s --tcp=80:7000 --udp=80:7000 --endpoints=%s", f.vip, f.endpoints)
		own := r.WantSource(r.LB, "tcp", rig.Join(f.endpoint, 7000), f.towards)
		for _, network := range []string{"tcp", "udp"} {
			service, here := rig.Join(f.vip, 80), rig.Join(f.lb, 7100)
			open := r.WantSource(r.Client, network, service, f.client)
			kept := r.WantSource(r.Client, network, here, f.client)
			rule := fmt.Sprintf("sourceIP:%s,protocol:%s,preference:10", f.client, network)
			if network == "tcp" {
				want := fmt.Sprintf("these rules would end the connection from %s to %s", kept.LocalAddr(), here)
				if out, err := r.Command("create", "firewall", "--firewallRule="+rule, "--drop"); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s %v; want %q", out, err, want)
				}
				if err := checkAnswers(kept); err != nil {
					t.Errorf("a refused change has an effect: %v", err)
				}
			}
			r.Loxicmd("create firewall --firewallRule=%s --drop --force", rule)
			for _, address := range []string{service, here} {
				if err := connect(t.Context(), r.Client, network, address); err == nil {
					t.Errorf("%s %s: no packet is dropped", network, address)
				}
			}
			for _, c := range []net.Conn{open, kept} {
				if checkAnswers(c) == nil {
					t.Errorf("%s %s does not end", network, c.RemoteAddr())
				}
			}
			r.Kill()
			if err := connect(t.Context(), r.Client, network, service); err == nil {
				t.Errorf("%s: no packet is dropped without the daemon", network)
			}
			r.Restart()
			if got := r.Loxicmd("get firewall -o wide"); !strings.Contains(got, "Drop") || strings.Contains(got, "| 0:0 ") {
				t.Errorf("the rules after a restart are:\n%s", got)
			}
			if err := connect(t.Context(), r.Client, network, here); err == nil {
				t.Errorf("%s: no packet is dropped after a restart", network)
			}
			r.Loxicmd("delete firewall --firewallRule=%s", rule)
			for _, address := range []string{service, here} {
				if err := connect(t.Context(), r.Client, network, address); err != nil {
					t.Errorf("%s %s: %v without the rule", network, address, err)
				}
			}
		}
		// With the default drop, replies to this machine's own old and new connections pass.
		r.Loxicmd("create firewall --firewallRule=preference:0 --drop --force")
		for _, network := range []string{"tcp", "udp"} {
			if err := connect(t.Context(), r.LB, network, rig.Join(f.endpoint, 7000)); err != nil {
				t.Errorf("%s: this machine gets no answer: %v", network, err)
			}
			if err := connect(t.Context(), r.Client, network, rig.Join(f.lb, 7100)); err == nil {
				t.Errorf("%s: the default has no effect", network)
			}
		}
		if err := checkAnswers(own); err != nil {
			t.Errorf("a connection of this machine is interrupted: %v", err)
		}
		r.Loxicmd("delete firewall --all")
	}
}

// TestFirewallInterface checks that a rule for an interface applies to the interface with that
// name, also if the interface is created later.
func TestFirewallInterface(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	links, err := r.LB.Run("sh", "-c", "ip -o -4 addr show to 100.100.100.0/24 | cut -d' ' -f2")
	if err != nil {
		t.Fatal(links, err)
	}
	name := strings.TrimSpace(links)
	r.Loxicmd("create fw --firewallRule=portName:later --drop")
	if err := connect(t.Context(), r.Client, "tcp", rig.Join(rig.VIP4, 80)); err != nil {
		t.Error(err)
	}
	if out, err := r.LB.Run("sh", "-c", "ip link set "+name+" down; ip link set "+name+" name later; ip link set later up"); err != nil {
		t.Fatal(out, err)
	}
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
		if connect(ctx, r.Client, "tcp", rig.Join(rig.VIP4, 80)) == nil {
			return errors.New("no packet is dropped")
		}
		return nil
	})
	r.Loxicmd("delete fw --firewallRule=portName:later")
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return connect(ctx, r.Client, "tcp", rig.Join(rig.VIP4, 80)) })
}

// TestFirewallSNAT checks that routed connections leave with the address of a rule, also after a
// restart, until the rule is deleted. If the rule is for default routes, connections to connected
// networks keep their source.
func TestFirewallSNAT(t *testing.T) {
	t.Parallel()
	r := newOutside(t)
	for _, f := range []struct{ source, to, outside, near, own string }{
		{"31.31.31.0/24", "20.20.20.77", outside4, "100.100.100.1", "31.31.31.1"},
		{"2001:db8:31::/64", "2001:db8:20::77", outside6, "2001:db8:100::1", "2001:db8:31::1"},
	} {
		ep1, ep2 := r.Endpoints[0], r.Endpoints[1]
		r.Loxicmd("create fw --firewallRule=sourceIP:%s --snat=%s --egress", f.source, f.to)
		if !r.HasAddress(f.to) {
			t.Errorf("the balancer does not have the address %s", f.to)
		}
		for _, network := range []string{"tcp", "udp"} {
			c := r.WantSource(ep1, network, rig.Join(f.outside, 7000), f.to)
			r.WantSource(ep1, network, rig.Join(f.near, 7000), f.own)
			r.WantSource(ep2, network, rig.Join(f.outside, 7000), rig.HostAddress(ep2, strings.Contains(f.to, ":")))
			r.Kill()
			r.Restart()
			r.WantSource(ep1, network, rig.Join(f.outside, 7000), f.to)
			if got, err := rig.AskSource(c); err != nil || got != f.to {
				t.Errorf("%s: an existing connection is seen as %q: %v", network, got, err)
			}
		}
		if got := r.Loxicmd("get fw"); !strings.Contains(got, "Snat("+f.to+":0),Egr") {
			t.Errorf("the rules are:\n%s", got)
		}
		r.Loxicmd("create fw --firewallRule=sourceIP:%s --snat=%s", f.source, f.to)
		r.WantSource(ep1, "tcp", rig.Join(f.near, 7000), f.to)
		r.Loxicmd("delete fw --firewallRule=sourceIP:%s", f.source)
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return checkSource(ctx, ep1, "tcp", rig.Join(f.outside, 7000), f.own) })
		if r.HasAddress(f.to) {
			t.Errorf("the balancer still has the address %s", f.to)
		}
	}
}

// TestFirewallRecords checks that a rule records packets, with its name, in a file that libpcap can
// read. Recording continues after a restart and ends with the rule.
func TestFirewallRecords(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	file := filepath.Join(r.Dir(), "state", "records", "firewall.pcapng")
	const key = "sourceIP:100.100.100.1/32,minDestinationPort:80,maxDestinationPort:80,protocol:6"
	r.Loxicmd("create firewall --firewallRule=%s --record", key)
	if got := r.Loxicmd("get firewall"); !strings.Contains(got, "Allow,Record") {
		t.Errorf("the rules are:\n%s", got)
	}
	for range 2 {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			return errors.Join(connect(ctx, r.Client, "tcp", rig.Join(rig.VIP4, 80)), checkRecord(file, key, rig.VIP4))
		})
		r.Kill()
		if err := os.Rename(file, file+".before"); err != nil {
			t.Fatal(err)
		}
		r.Restart()
	}
	r.Loxicmd("delete firewall --firewallRule=%s", key)
	if err := connect(t.Context(), r.Client, "tcp", rig.Join(rig.VIP4, 80)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file exists without a rule that records: %v", err)
	}
}

// checkRecord returns an error unless the first packet of a file is a SYN to an address, recorded
// by a rule.
func checkRecord(path, rule, to string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	read, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		return err
	}
	data, about, err := read.ReadPacketData()
	if err != nil {
		return err
	}
	from, err := read.Interface(about.InterfaceIndex)
	if err != nil {
		return err
	}
	p := gopacket.NewPacket(data, from.LinkType, gopacket.Default)
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if !ok || !tcp.SYN || p.NetworkLayer().NetworkFlow().Dst().String() != to || from.Filter != rule || from.Name == "" {
		return fmt.Errorf("%s of %+v", p, from)
	}
	return nil
}
