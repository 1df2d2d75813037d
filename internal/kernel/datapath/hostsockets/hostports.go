package hostsockets

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

const (
	// firstPort is SNAT_FIRST_PORT; spare is SNAT_PORTS minus SNAT_LIMIT, the number of ports kept
	// free.
	firstPort, spare = 1024, 512
	// minPorts is the least number of ports for connections. If the machine leaves fewer, none are
	// reserved.
	minPorts = 8192
	// checkPeriod is the interval of reading the machine's settings: the kernel does not report
	// changes.
	checkPeriod = 10 * time.Second

	settingsDir = "/proc/sys/net/ipv4/"
)

// Ports informs the packet path which ports the kernel assigns to this machine's own sockets.
type Ports struct {
	shared *loader.Collection

	mu      sync.Mutex
	written bpf.TcHostPorts
}

// NewPorts returns Ports that have reported nothing yet.
func NewPorts(c *loader.Collection) *Ports { return &Ports{shared: c} }

// KeepHostPorts follows the machine's settings until ctx ends.
func (p *Ports) KeepHostPorts(ctx context.Context) {
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	var problem string
	for {
		err := p.follow()
		if err != nil && err.Error() != problem {
			p.shared.Log.Warn("a connection may get the port of a socket of this machine", "error", err)
		}
		problem = ""
		if err != nil {
			problem = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// follow reads the settings, and writes changes.
func (p *Ports) follow() error {
	ranges, err := os.ReadFile(settingsDir + "ip_local_port_range")
	if err != nil {
		return err
	}
	reserved, err := os.ReadFile(settingsDir + "ip_local_reserved_ports")
	if err != nil {
		return err
	}
	row, problem := rowOf(string(ranges), string(reserved))
	p.mu.Lock()
	defer p.mu.Unlock()
	if row != p.written {
		if err := p.shared.Maps.KeptPorts.Put(uint32(0), row); err != nil {
			return fmt.Errorf("write the ports of this machine: %w", err)
		}
		p.written = row
	}
	return problem
}

// rowOf returns the row for the two settings as the kernel writes them.
func rowOf(local, reserved string) (row bpf.TcHostPorts, err error) {
	ends := strings.Fields(local)
	if len(ends) != 2 {
		return row, fmt.Errorf("net.ipv4.ip_local_port_range is %q, want two numbers", local)
	}
	var all, none bpf.TcHostPorts
	if err := setRange(&all, ends[0], ends[1]); err != nil {
		return row, fmt.Errorf("net.ipv4.ip_local_port_range: %w", err)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(reserved), ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		if err := setRange(&none, first, last); err != nil {
			return row, fmt.Errorf("net.ipv4.ip_local_reserved_ports: %w", err)
		}
	}
	left := 0
	for i := range all.Bits {
		row.Bits[i] = all.Bits[i] &^ none.Bits[i]
		if i >= firstPort/64 {
			left += 64 - bits.OnesCount64(row.Bits[i])
		}
	}
	if left < minPorts { // no limit: none are reserved; firewall rules use the ports nevertheless
		return row, fmt.Errorf("net.ipv4.ip_local_port_range leaves %d ports that this machine's sockets do not use, but %d are needed: make the range smaller, or reserve a part with net.ipv4.ip_local_reserved_ports", left, minPorts)
	}
	row.Limit = uint32(left - spare)
	return row, nil
}

// setRange adds a range of ports.
func setRange(row *bpf.TcHostPorts, first, last string) error {
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("%s-%s is not a range of ports", first, last)
	}
	for port := from; port <= to; port++ {
		row.Bits[port/64] |= 1 << (port % 64)
	}
	return nil
}

// AuditHostPorts compares the map with the content written by this process; with repair, it writes
// it again.
func (p *Ports) AuditHostPorts(repair bool) report.Compared {
	p.mu.Lock()
	defer p.mu.Unlock()
	comparison := rows.Comparison[uint32, bpf.TcHostPorts]{
		Table: "kept_ports", Map: p.shared.Maps.KeptPorts, Want: map[uint32]bpf.TcHostPorts{0: p.written}, Name: rows.Numbered[uint32]("row"),
	}
	return comparison.Check(repair)
}
