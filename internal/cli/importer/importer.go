// Package importer makes services of what other load balancers are configured by, and says of each line that it cannot take over why.
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

// Result is what a file has.
type Result struct {
	Services []lb.Service
	Notes    []Note // in the order of lines
}

// Note says what of a line was not taken over.
type Note struct {
	Line int
	Text string
}

// Formats are the programs whose files are read, by the words that users have for them.
func Formats() []string { return []string{"ipvsadm", "haproxy", "keepalived", "nft"} }

// Read makes services of a file of a format.
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
		return nil, fmt.Errorf("%q is no format that can be imported: one of %s", format, strings.Join(Formats(), ", "))
	}
	return c.result(), nil
}

// collector gathers services with the lines that they begin at.
type collector struct {
	services []*found
	notes    []Note
}

type found struct {
	lb.Service
	line int
}

func (c *collector) note(line int, format string, args ...any) {
	c.notes = append(c.notes, Note{line, fmt.Sprintf(format, args...)})
}

func (c *collector) add(line int, s lb.Service) *found {
	f := &found{s, line}
	c.services = append(c.services, f)
	return f
}

// result leaves out what could not be a service, and says so.
func (c *collector) result() *Result {
	r := &Result{}
	first := map[lb.Key]int{}
	for _, f := range c.services {
		other, twice := first[f.Key]
		err := f.Validate()
		switch {
		case len(f.Endpoints) == 0:
			c.note(f.line, "service %s has no server that can be taken over, and is left out", f.Key)
		case err != nil:
			c.note(f.line, "service %s is left out: %v", f.Key, err)
		case twice:
			c.note(f.line, "service %s is left out: it is there already, from line %d", f.Key, other)
		default:
			first[f.Key] = f.line
			r.Services = append(r.Services, f.Service)
		}
	}
	slices.SortStableFunc(c.notes, func(a, b Note) int { return cmp.Compare(a.Line, b.Line) })
	r.Notes = c.notes
	return r
}

// hostPort takes 10.0.0.1:80 or [2001:db8::1]:http apart.
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
		return a, fmt.Errorf("%q is no IP address: names are not looked up", text)
	}
	return a.Unmap(), nil
}

// portOf takes a number, or a name of /etc/services.
func portOf(text, protocol string) (uint16, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return uint16(n), nil
	}
	n, err := net.LookupPort(protocol, text)
	if err != nil || text == "" {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return uint16(n), nil
}

// weight is one as other programs have it, which loxilb has too up to 65535.
func weight(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("weight %q is out of range: 0 to 65535", text)
	}
	return uint16(n), nil
}

// scheduler is the algorithm that does what one of IPVS does, or comes nearest to it; then why says what is different.
func scheduler(name string) (a lb.Algorithm, why string) {
	switch name {
	case "rr", "":
		return lb.RoundRobin, ""
	case "wrr":
		return lb.Priority, ""
	case "wlc", "lc":
		return lb.LeastConnections, ""
	case "sed", "nq":
		return lb.LeastConnections, "least connections by weight (lc) is nearest to it"
	case "sh":
		return lb.Persist, "persist is nearest to it: a client stays where its last connection went"
	case "mh":
		return lb.Hash, "hash is nearest to it: consistent, but by ports too"
	}
	return lb.RoundRobin, "loxilb does not have it, round robin is taken"
}
