// Package importer converts configurations of other load balancers to services, and reports the
// reason for each line that it cannot convert.
package importer

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// Result is the conversion of a file.
type Result struct {
	Services []lb.Service
	Notes    []Note // in the order of lines
}

// Note reports the part of a line that was not converted.
type Note struct {
	Line int
	Text string
}

// Formats returns the names of the programs whose files can be read.
func Formats() []string { return []string{"ipvsadm", "haproxy", "keepalived", "nft"} }

// Read converts a file in a format to services.
func Read(format, text string) (*Result, error) {
	c := &collector{}
	switch format {
	case "ipvsadm":
		readIPVS(c, text)
	case "haproxy":
		readHAProxy(c, text)
	case "keepalived":
		readKeepalived(c, text)
	case "nft":
		readNFT(c, text)
	default:
		return nil, fmt.Errorf("import format %q is unknown (allowed: %s)", format, strings.Join(Formats(), ", "))
	}
	return c.result(), nil
}

// collector collects services with their first lines.
type collector struct {
	services []*found
	notes    []Note
}

type found struct {
	lb.Service
	line int
}

func (c *collector) addNote(line int, format string, args ...any) {
	c.notes = append(c.notes, Note{line, fmt.Sprintf(format, args...)})
}

func (c *collector) add(line int, s lb.Service) *found {
	f := &found{s, line}
	c.services = append(c.services, f)
	return f
}

// result returns the valid services, and reports the others.
func (c *collector) result() *Result {
	r := &Result{}
	first := map[lb.Key]int{}
	for _, f := range c.services {
		other, twice := first[f.Key]
		err := f.Validate()
		switch {
		case len(f.Endpoints) == 0:
			c.addNote(f.line, "service %s is skipped: no server of it can be converted", f.Key)
		case err != nil:
			c.addNote(f.line, "service %s is skipped: %v", f.Key, err)
		case twice:
			c.addNote(f.line, "service %s is skipped: already defined in line %d", f.Key, other)
		default:
			first[f.Key] = f.line
			r.Services = append(r.Services, f.Service)
		}
	}
	slices.SortStableFunc(c.notes, func(a, b Note) int { return cmp.Compare(a.Line, b.Line) })
	r.Notes = c.notes
	return r
}

// hostPort splits 10.0.0.1:80 or [2001:db8::1]:http.
func hostPort(text, protocol string) (a netip.Addr, port uint16, err error) {
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return a, 0, fmt.Errorf("%q is not ADDRESS:PORT", text)
	}
	if a, err = address(host); err != nil {
		return a, 0, err
	}
	port, err = portOf(service, protocol)
	return a, port, err
}

func address(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return a, fmt.Errorf("%q is not an IP address: host names are not resolved", text)
	}
	return a.Unmap(), nil
}

// portOf parses a number, or a name of /etc/services.
func portOf(text, protocol string) (uint16, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return uint16(n), nil
	}
	// LookupPort also takes signs: +1000 is 1000 there, an offset in HAProxy.
	if text == "" || strings.ContainsRune("+-", rune(text[0])) {
		return 0, fmt.Errorf("%q is not a port", text)
	}
	n, err := net.LookupPort(protocol, text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port", text)
	}
	return uint16(n), nil
}

// weight parses another program's weight, which loxilb supports up to 65535.
func weight(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("weight %q is out of range (allowed: 0 to 65535)", text)
	}
	return uint16(n), nil
}

// scheduler returns the algorithm that is equivalent or closest to an IPVS scheduler; why explains
// a difference.
func scheduler(name string) (a lb.Algorithm, why string) {
	switch name {
	case "rr", "":
		return lb.RoundRobin, ""
	case "wrr":
		return lb.Priority, ""
	case "wlc", "lc":
		return lb.LeastConnections, ""
	case "sed", "nq":
		return lb.LeastConnections, "replaced by lc, weighted least connections"
	case "sh":
		return lb.Persist, "replaced by persist: a client keeps its last endpoint"
	case "mh":
		return lb.Hash, "replaced by hash: consistent, but also by ports"
	}
	return lb.RoundRobin, "not supported by loxilb, round robin is used"
}
