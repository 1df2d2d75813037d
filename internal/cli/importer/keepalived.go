package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"loxilb/internal/lb"
)

// block is a line of a keepalived.conf, with the lines in braces after it.
type block struct {
	line  int
	words []string
	lines []*block
}

// blocks parses a file into nested lines.
func blocks(c *collector, text string) []*block {
	stack := []*block{{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		for _, comment := range []string{"#", "!"} {
			line, _, _ = strings.Cut(line, comment)
		}
		line = strings.NewReplacer("{", " { ", "}", " } ").Replace(line)
		b := &block{line: number}
		for word := range strings.FieldsSeq(line) {
			top := stack[len(stack)-1]
			switch word {
			case "{":
				if len(b.words) == 0 && len(top.lines) > 0 { // on a line of its own
					b = top.lines[len(top.lines)-1]
				} else {
					if len(b.words) == 0 {
						b.words = []string{""}
					}
					top.lines = append(top.lines, b)
				}
				stack, b = append(stack, b), &block{line: number}
			case "}":
				if len(b.words) > 0 {
					top.lines = append(top.lines, b)
				}
				if b = (&block{line: number}); len(stack) > 1 {
					stack = stack[:len(stack)-1]
				} else {
					c.addNote(number, "a brace is closed that was not opened")
				}
			default:
				b.words = append(b.words, strings.Trim(word, `"`))
			}
		}
		if len(b.words) > 0 {
			top := stack[len(stack)-1]
			top.lines = append(top.lines, b)
		}
	}
	if len(stack) > 1 {
		c.addNote(stack[len(stack)-1].line, "a brace is not closed")
	}
	return stack[0].lines
}

func (b *block) argument(i int) string {
	if i < len(b.words) {
		return b.words[i]
	}
	return ""
}

// readKeepalived reads the virtual servers of a keepalived.conf.
func readKeepalived(c *collector, text string) {
	groups := map[string]*block{}
	all := blocks(c, text)
	for _, b := range all {
		if b.words[0] == "virtual_server_group" {
			groups[b.argument(1)] = b
		}
	}
	for _, b := range all {
		switch b.words[0] {
		case "virtual_server":
			v := &virtualServer{collector: c, block: b}
			v.read(groups)
		case "virtual_server_group", "global_defs":
		default:
			c.addNote(b.line, "%s is skipped: only virtual servers are converted", b.words[0])
		}
	}
}

// virtualServer is a virtual server while it is read.
type virtualServer struct {
	*collector
	*block
	service lb.Service
	kind    *block
	persist bool
	sorry   *block
	checks  []lb.Probe // of each server
	checker lb.Probe   // settings of checks without their own
	delay   time.Duration
}

func (v *virtualServer) read(groups map[string]*block) {
	v.service.Protocol, v.service.Algorithm = lb.UDP, lb.LeastConnections // keepalived's defaults
	for _, b := range v.lines {
		v.option(b)
	}
	named := slices.ContainsFunc(v.lines, func(b *block) bool { return b.words[0] == "protocol" })
	if !named && v.argument(1) != "fwmark" {
		v.addNote(v.line, "protocol is missing: UDP, as keepalived since 2.0")
	}
	if v.persist {
		v.service.Algorithm = lb.Persist
	}
	if !v.method() {
		return
	}
	if v.sorry != nil {
		if e, err := v.endpoint(v.sorry); err != nil {
			v.addNote(v.sorry.line, "sorry_server is skipped: %v", err)
		} else {
			e.Backup = 1
			v.service.Endpoints = append(v.service.Endpoints, e)
		}
	}
	v.probe()
	v.addresses(groups)
}

// method sets the mode, and reports whether loxilb has one.
func (v *virtualServer) method() bool {
	if v.kind == nil {
		return true
	}
	switch v.kind.argument(1) {
	case "NAT":
	case "DR":
		v.service.Mode = lb.ModeDSR
	case "TUN":
		v.service.Mode, v.service.Tunnel = lb.ModeDSR, lb.TunnelIPIP
		return v.tunnel()
	default:
		v.addNote(v.kind.line, "lb_kind %s is unknown: NAT is used", v.kind.argument(1))
	}
	return true
}

// tunnel reads the words after TUN: type gue port 6080.
func (v *virtualServer) tunnel() bool {
	kind, port := "ipip", ""
	for i, word := range v.kind.words {
		switch word {
		case "type":
			kind = v.kind.argument(i + 1)
		case "port":
			port = v.kind.argument(i + 1)
		}
	}
	switch kind {
	case "ipip":
	case "gue":
		v.service.Tunnel = lb.TunnelGUE
		if port != guePort {
			v.addNote(v.kind.line, gueNote, port)
		}
	default:
		v.addNote(v.kind.line, "a virtual server with a tunnel of type %s is skipped: loxilb supports ipip and gue", kind)
		return false
	}
	return true
}

// addresses makes a service for each address of the virtual server.
func (v *virtualServer) addresses(groups map[string]*block) {
	list := []*block{{line: v.line, words: v.words[1:]}}
	switch v.argument(1) {
	case "group":
		g := groups[v.argument(2)]
		if g == nil {
			v.addNote(v.line, "virtual_server_group %s not found", v.argument(2))
			return
		}
		list = g.lines
	case "fwmark":
		v.addNote(v.line, "a virtual server of a firewall mark has no address: create a service for each VIP, with --mark")
		return
	}
	for _, b := range list {
		s := v.service
		s.Endpoints = slices.Clone(s.Endpoints)
		var err error
		if s.VIP, err = address(b.argument(0)); err == nil {
			first, last, isRange := strings.Cut(b.argument(1), "-")
			if s.Port, err = portOf(first, s.Protocol.String()); err == nil && isRange {
				s.PortMax, err = portOf(last, s.Protocol.String())
			}
		}
		if err != nil {
			v.addNote(b.line, "virtual server %s is skipped: %v", strings.Join(b.words, " "), err)
			continue
		}
		v.add(b.line, s)
	}
}

func (v *virtualServer) option(b *block) {
	value := b.argument(1)
	switch b.words[0] {
	case "delay_loop":
		if n, err := strconv.ParseFloat(value, 32); err == nil && n > 0 {
			v.delay = time.Duration(n * float64(time.Second))
		}
	case "lb_algo", "lvs_sched":
		var why string
		if v.service.Algorithm, why = scheduler(value); why != "" {
			v.addNote(b.line, "%s %s: %s", b.words[0], value, why)
		}
	case "lb_kind", "lvs_method":
		v.kind = b
	case "protocol":
		p, err := lb.ParseProtocol(strings.ToLower(value))
		if err != nil {
			v.addNote(b.line, "%v", err)
		}
		v.service.Protocol = p
	case "persistence_timeout":
		n, err := strconv.Atoi(value)
		if err != nil {
			n = 360 // keepalived's own
		}
		v.persist, v.service.PersistTimeout = true, time.Duration(n)*time.Second
	case "persistence_granularity":
		v.service.PersistPrefix = prefixOf(value)
	case "virtualhost":
		v.service.Probe.Host = value
	case "sorry_server":
		v.sorry = &block{line: b.line, words: append([]string{""}, b.words[1:]...)}
	case "real_server":
		v.server(b)
	case "connect_timeout", "retry":
		checkerTimes(b, &v.checker)
	case "alpha", "delay_before_retry", "inhibit_on_failure", "warmup", "sorry_server_inhibit", "no_alpha":
	default:
		v.addNote(b.line, "%s is ignored: not supported by loxilb", b.words[0])
	}
}

// endpoint returns the address and port of a block whose first word is something else.
func (v *virtualServer) endpoint(b *block) (e lb.Endpoint, err error) {
	e.Weight = 1
	if e.Addr, err = address(b.argument(1)); err != nil {
		return e, err
	}
	e.Port, err = portOf(b.argument(2), "tcp")
	return e, err
}

func (v *virtualServer) server(b *block) {
	e, err := v.endpoint(b)
	if err != nil {
		v.addNote(b.line, "real_server %s is skipped: %v", b.argument(1), err)
		return
	}
	check := lb.Probe{Type: lb.ProbeNone}
	for _, o := range b.lines {
		switch name := o.words[0]; name {
		case "weight":
			w, err := weight(o.argument(1))
			if err != nil {
				v.addNote(o.line, "%v", err)
			}
			e.Weight = w
		case "inhibit_on_failure", "alpha", "delay_loop", "retry", "delay_before_retry", "notify_up", "notify_down":
			if strings.HasPrefix(name, "notify") {
				v.addNote(o.line, "%s is ignored: follow events with loxicmd get events -w", name)
			}
		case "TCP_CHECK", "HTTP_GET", "SSL_GET", "UDP_CHECK", "PING_CHECK", "DNS_CHECK":
			if check.Type != lb.ProbeNone {
				v.addNote(o.line, "%s is ignored: an endpoint has one probe", name)
				continue
			}
			check = v.check(o)
		default:
			v.addNote(o.line, "%s of a server is ignored: not supported by loxilb", name)
		}
	}
	v.service.Endpoints = append(v.service.Endpoints, e)
	v.checks = append(v.checks, check)
}

// check returns a probe by a checker of keepalived.
func (v *virtualServer) check(b *block) lb.Probe {
	p := lb.Probe{Type: map[string]lb.ProbeType{
		"TCP_CHECK": lb.ProbeTCP, "HTTP_GET": lb.ProbeHTTP, "SSL_GET": lb.ProbeHTTPS, "UDP_CHECK": lb.ProbeUDP, "PING_CHECK": lb.ProbePing, "DNS_CHECK": lb.ProbeDNS,
	}[b.words[0]]}
	for _, o := range b.lines {
		value := o.argument(1)
		switch o.words[0] {
		case "connect_port":
			var err error
			if p.Port, err = portOf(value, "tcp"); err != nil {
				v.addNote(o.line, "%v", err)
			}
		case "connect_timeout", "retry", "nb_get_retry":
			checkerTimes(o, &p)
		case "virtualhost":
			p.Host = value
		case "name":
			p.Request = value
		case "url":
			v.url(o, &p)
		case "delay_before_retry", "delay_loop", "warmup", "alpha":
		default:
			v.addNote(o.line, "%s of %s is ignored: not supported by loxilb", o.words[0], b.words[0])
		}
	}
	if len(p.Statuses) == 0 && (p.Type == lb.ProbeHTTP || p.Type == lb.ProbeHTTPS) {
		p.Statuses = []lb.StatusRange{{First: 200, Last: 299}}
	}
	return p
}

// checkerTimes reads connect_timeout or retry.
func checkerTimes(b *block, p *lb.Probe) {
	value := b.argument(1)
	if b.words[0] == "connect_timeout" {
		if n, err := strconv.ParseFloat(value, 32); err == nil {
			p.Timeout = time.Duration(n * float64(time.Second))
		}
	} else if n, err := strconv.Atoi(value); err == nil {
		p.Fall = n + 1
	}
}

func (v *virtualServer) url(b *block, p *lb.Probe) {
	if p.Request != "" {
		v.addNote(b.line, "a second url is ignored: a probe requests one")
		return
	}
	for _, o := range b.lines {
		switch value := o.argument(1); o.words[0] {
		case "path":
			p.Request = value
		case "virtualhost":
			p.Host = value
		case "status_code":
			for _, word := range o.words[1:] {
				var s lb.StatusRange
				if n, _ := fmt.Sscanf(word, "%d-%d", &s.First, &s.Last); n == 0 {
					v.addNote(o.line, "status_code %q is not a status", word)
					continue
				} else if n == 1 {
					s.Last = s.First
				}
				p.Statuses = append(p.Statuses, s)
			}
		default:
			v.addNote(o.line, "%s of a url is ignored: loxilb checks the status, and a text by probeResp", o.words[0])
		}
	}
}

// probe merges the probes of the servers into one: a service has one probe.
func (v *virtualServer) probe() {
	if len(v.checks) == 0 {
		return
	}
	host := v.service.Probe.Host
	for i := range v.checks[1:] {
		if !sameProbe(&v.checks[0], &v.checks[1+i]) {
			v.addNote(v.line, "servers have different checks: the first one is used for all")
			break
		}
	}
	p := v.checks[0]
	if p.Type == lb.ProbeNone {
		v.service.Probe = lb.Probe{}
		return
	}
	p.Timeout, p.Fall = cmp.Or(p.Timeout, v.checker.Timeout), cmp.Or(p.Fall, v.checker.Fall)
	if v.delay > 0 {
		p.Interval = min(max(v.delay, 100*time.Millisecond), 24*time.Hour)
	}
	if p.Timeout > p.Interval {
		p.Timeout = p.Interval
	}
	if p.Host == "" && (p.Type == lb.ProbeHTTP || p.Type == lb.ProbeHTTPS) {
		p.Host = host
	}
	v.service.Monitor, v.service.Probe = true, p
}

func sameProbe(a, b *lb.Probe) bool {
	x, y := *a, *b
	x.Statuses, y.Statuses = nil, nil
	return fmt.Sprint(x) == fmt.Sprint(y) && slices.Equal(a.Statuses, b.Statuses)
}
