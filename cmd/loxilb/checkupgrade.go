package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"loxilb/internal/compile"
	"loxilb/internal/datapath"
	"loxilb/internal/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// trial is a packet, in the language of package pkt, and the service whose connections it adds to; none: it is left to the kernel as it came.
type trial struct{ packet, service string }

// trials are what programs must do right wherever they are: the rest depends on the network that they are in.
func trials() []trial {
	return []trial{
		{"eth 0x0806 len 46", ""},
		{"tcp 198.51.100.1:4000 > 203.0.113.1:80 S", ""},
		{"udp [2001:db8:100::1]:4000 > [2001:db8:203::1]:53 len 8", ""},
		{"ip 198.51.100.1 > 10.0.0.1 proto 47 len 20", ""},
		{"tcp 198.51.100.1:4000 > 10.0.0.1:81 S", ""},
		{"tcp 198.51.100.1:4000 > 10.0.0.1:80 S", "10.0.0.1:80/tcp endpoints=192.0.2.1:8080"},
		{"udp 198.51.100.1:4000 > 10.0.0.1:53 len 8", "10.0.0.1:53/udp endpoints=192.0.2.1:5353"},
		{"tcp [2001:db8:100::1]:4000 > [2001:db8::1]:80 S", "[2001:db8::1]:80/tcp endpoints=[2001:db8:2::1]:8080"},
		{"udp [2001:db8:100::1]:4000 > [2001:db8::1]:53 len 8", "[2001:db8::1]:53/udp endpoints=[2001:db8:2::1]:5353"},
	}
}

// checkUpgrade tells whether a start of this loxilb could take over what is pinned. It changes nothing, and a daemon may run.
func checkUpgrade(c datapath.Config, out io.Writer) error {
	d, err := datapath.Trial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	list := trials()
	if err := try(d, list); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "loxilb %s can take over: what is pinned has the layout that it reads, the kernel takes its programs, and %d packets came out of them as they should\n", version, len(list))
	return err
}

// try sends packets through programs that are attached nowhere.
func try(d *datapath.Datapath, list []trial) error {
	for _, t := range list {
		if t.service == "" {
			continue
		}
		s, err := lb.ParseService(t.service)
		if err != nil {
			return err
		}
		table := compile.Service(s, nil, 0, nil)
		if err := d.Apply([]datapath.Change{{Key: table.Key, Table: &table}})[0]; err != nil {
			return fmt.Errorf("try service %s: %w", t.service, err)
		}
	}
	var errs []error
	for _, t := range list {
		if err := t.run(d); err != nil {
			errs = append(errs, fmt.Errorf("packet %q: %w", t.packet, err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the programs of this version do not treat packets right here, %d of %d: %w", len(errs), len(list), errors.Join(errs...))
	}
	return nil
}

// run sends the packet to lo.
func (t trial) run(d *datapath.Datapath) error {
	const lo = 1
	p, err := pkt.Parse(t.packet)
	if err != nil {
		return err
	}
	frame := p.Set(pkt.To, pkt.MAC(make([]byte, 6))).Build()
	got, err := d.TestRun().Run(testrun.Input{Frame: frame, Ifindex: lo})
	if err != nil {
		return err
	}
	if t.service == "" {
		if got.Verdict != testrun.Next || !bytes.Equal(got.Frame, frame) {
			return errors.New("it is of no service, and was not left to the kernel as it came")
		}
		return nil
	}
	s, err := lb.ParseService(t.service)
	if err != nil {
		return err
	}
	if stats, ok := d.ServiceStats(compile.Key(s.Key)); !ok || stats.Connections != 1 {
		return fmt.Errorf("it opened %d connections of service %s, not 1", stats.Connections, s.Key)
	}
	return nil
}
