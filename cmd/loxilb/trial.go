package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// errTrialNetwork reports that the network for test packets could not be made. The programs are
// untested.
var errTrialNetwork = errors.New("there is no network for the trial")

// vector is a packet and its expected outcome, in the language of package pkt. An empty out means
// that the packet goes unchanged to the kernel.
type vector struct{ in, out string }

// vectorServices returns the services of the vectors, as text.
func vectorServices() []string {
	return []string{
		"10.0.0.1:80/tcp endpoints=192.0.2.1:8080",
		"10.0.0.1:53/udp endpoints=192.0.2.1:5353",
		"[2001:db8::1]:80/tcp endpoints=[2001:db8:2::1]:8080",
		"[2001:db8::1]:53/udp endpoints=[2001:db8:2::1]:5353",
		"10.0.0.2:80/tcp mode=fullnat endpoints=192.0.2.1:8080",
		"10.0.0.3:80/tcp endpoints=192.0.2.1:8080 weights=0",
	}
}

// vectors returns packets with the outcome that correct programs have on any machine. Each packet
// meets the state that the previous ones left.
func vectors() []vector {
	return []vector{
		// packets without a service
		{"eth 0x0806 len 46", ""},
		{"tcp 198.51.100.1:4000 > 203.0.113.1:80 S", ""},
		{"udp [2001:db8:100::1]:4000 > [2001:db8:203::1]:53 len 8", ""},
		{"ip 198.51.100.1 > 10.0.0.1 proto 47 len 20", ""},
		{"tcp 198.51.100.1:4000 > 10.0.0.1:81 S", ""},
		// a connection, in both directions, to its end
		{"tcp 198.51.100.1:4000 > 10.0.0.1:80 S seq 1000", "tcp 198.51.100.1:4000 > 192.0.2.1:8080 S seq 1000 ttl 63"},
		{"tcp 192.0.2.1:8080 > 198.51.100.1:4000 SA seq 5000 ack 1001", "tcp 10.0.0.1:80 > 198.51.100.1:4000 SA seq 5000 ack 1001 ttl 63"},
		{"tcp 198.51.100.1:4000 > 10.0.0.1:80 PA seq 1001 ack 5001 len 100", "tcp 198.51.100.1:4000 > 192.0.2.1:8080 PA seq 1001 ack 5001 len 100"},
		{"tcp 192.0.2.1:8080 > 198.51.100.1:4000 R seq 5001", "tcp 10.0.0.1:80 > 198.51.100.1:4000 R seq 5001"},
		{"tcp [2001:db8:100::1]:4000 > [2001:db8::1]:80 S", "tcp [2001:db8:100::1]:4000 > [2001:db8:2::1]:8080 S"},
		{"tcp [2001:db8:2::1]:8080 > [2001:db8:100::1]:4000 SA", "tcp [2001:db8::1]:80 > [2001:db8:100::1]:4000 SA"},
		{"udp 198.51.100.1:4000 > 10.0.0.1:53 len 8", "udp 198.51.100.1:4000 > 192.0.2.1:5353 len 8"},
		{"udp 192.0.2.1:5353 > 198.51.100.1:4000 len 8", "udp 10.0.0.1:53 > 198.51.100.1:4000 len 8"},
		{"udp [2001:db8:100::1]:4000 > [2001:db8::1]:53 len 8", "udp [2001:db8:100::1]:4000 > [2001:db8:2::1]:5353 len 8"},
		{"udp [2001:db8:2::1]:5353 > [2001:db8:100::1]:4000 len 8", "udp [2001:db8::1]:53 > [2001:db8:100::1]:4000 len 8"},
		// a connection whose source is translated as well
		{"tcp 198.51.100.1:4000 > 10.0.0.2:80 S", "tcp 10.0.0.2:4000 > 192.0.2.1:8080 S"},
		{"tcp 192.0.2.1:8080 > 10.0.0.2:4000 SA", "tcp 10.0.0.2:80 > 198.51.100.1:4000 SA"},
		// an ICMP error about this connection
		{"icmp 192.0.2.1 > 10.0.0.2 unreach port / tcp 10.0.0.2:4000 > 192.0.2.1:8080 A", "icmp 10.0.0.2 > 198.51.100.1 unreach port / tcp 198.51.100.1:4000 > 10.0.0.2:80 A"},
		// refused packets
		{"tcp 198.51.100.2:4000 > 10.0.0.1:80 A ack 77", "tcp 10.0.0.1:80 > 198.51.100.2:4000 R seq 77"},
		{"tcp 198.51.100.2:4000 > 10.0.0.3:80 S seq 9", "tcp 10.0.0.3:80 > 198.51.100.2:4000 RA ack 10"},
	}
}

// tryBeforeExchange sends the vectors through the new programs before they replace the former ones.
// After an error, the former programs stay.
//
// Only the program for interfaces with a link-layer header is tried: the others have the same code,
// and verifying them again costs 0.15 s (XDP) to 0.5 s of CPU each, as much as the rest of a start.
// If the kernel refuses a program, the former one stays; if a program drops packets, exchangeWatch
// notices.
func tryBeforeExchange(d *datapath.Datapath, c datapath.Config) error {
	replaces, err := d.Replaces()
	if err != nil || !replaces {
		return err
	}
	start := time.Now()
	c = trialConfig(c)
	c.PinDir, c.Connections = "", datapath.TrialConnections
	err = tryVectors(func() (*datapath.Datapath, error) { return datapath.Load(c) })
	if errors.Is(err, errTrialNetwork) {
		c.Log.Warn("the programs of this version replace the former ones without a trial", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("nothing was changed, and the attached programs stay; start their version again: %w", err)
	}
	c.Log.Info("the programs of this version passed their trial", "packets", len(vectors()), "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// trialConfig returns the settings of the trial. The vectors expect full NAT to keep the client's
// port, so the trial ignores the stripe of ports that this node prefers.
func trialConfig(c datapath.Config) datapath.Config {
	c.PortStripe = 0
	return c
}

// tryVectors sends the vectors through the programs of a separate data path, with its own maps and
// network.
func tryVectors(load func() (*datapath.Datapath, error)) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its network namespace end with the goroutine
		done <- func() error {
			if err := trialNetwork(); err != nil {
				return fmt.Errorf("%w: %w", errTrialNetwork, err)
			}
			d, err := load()
			if err != nil {
				return err
			}
			return errors.Join(tryPackets(d, vectorServices(), vectors()), d.Close())
		}()
	}()
	return <-done
}

// trialNetwork moves the thread into a network namespace where every address is reached through lo.
func trialNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByIndex(1)
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return err
	}
	for _, version := range []string{"ipv4", "ipv6"} {
		if err := netdev.WriteSysctl(version+"/conf/lo/forwarding", 1); err != nil {
			return err
		}
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		_, dst, err := net.ParseCIDR(all)
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: 1, Dst: dst})
		}
		if err != nil {
			return fmt.Errorf("route %s: %w", all, err)
		}
	}
	return nil
}

// tryPackets makes the services and sends the packets through programs that are attached nowhere.
func tryPackets(d *datapath.Datapath, services []string, list []vector) error {
	for _, text := range services {
		s, err := lb.ParseService(text)
		if err != nil {
			return err
		}
		table := compile.Service(s, nil, 0, nil)
		if err := d.Apply([]datapath.Change{{Key: table.Key, Table: &table}})[0]; err != nil {
			return fmt.Errorf("try service %s: %w", text, err)
		}
	}
	var errs []error
	for _, v := range list {
		if err := v.run(d); err != nil {
			errs = append(errs, fmt.Errorf("packet %q: %w", v.in, err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("on this machine, the programs of this version handle %d of %d test packets wrongly: %w", len(errs), len(list), errors.Join(errs...))
	}
	return nil
}

// run sends the packet to lo.
func (v vector) run(d *datapath.Datapath) error {
	const lo = 1
	p, err := pkt.Parse(v.in)
	if err != nil {
		return err
	}
	frame := p.Set(pkt.To, pkt.MAC(make([]byte, 6))).Build()
	got, err := d.TestRun().Run(testrun.Input{Frame: frame, Ifindex: lo})
	if err != nil {
		return err
	}
	if v.out == "" {
		if got.Verdict != testrun.Next || !bytes.Equal(got.Frame, frame) {
			return errors.New("a packet without a service was not passed to the kernel unchanged")
		}
		return nil
	}
	want, err := pkt.Parse(v.out)
	if err != nil {
		return err
	}
	if got.Verdict != testrun.Redirect {
		return fmt.Errorf("the verdict is %d, want the packet to leave as %s", got.Verdict, v.out)
	}
	if diff := pkt.Match(want, pkt.Decode(got.Frame), nil); diff != "" {
		return fmt.Errorf("the packet that left differs:\n%s", diff)
	}
	return nil
}
