package importer

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// IPVS writes services in the format of `ipvsadm -R`. Notes report what IPVS does not support. A
// note about a service has the line of the text that creates it; a note about a skipped service has
// the line that it would have had.
func IPVS(services []lb.Service) (text string, notes []Note) {
	var b strings.Builder
	line := 0
	for i := range services {
		s := &services[i]
		note := func(format string, args ...any) {
			notes = append(notes, Note{line + 1, fmt.Sprintf("service %s: ", s.Key) + fmt.Sprintf(format, args...)})
		}
		if why := beyondIPVS(s); why != "" {
			note("%s: skipped", why)
			continue
		}
		flag := map[lb.Protocol]string{lb.TCP: "-t", lb.UDP: "-u", lb.SCTP: "--sctp-service"}[s.Protocol]
		at := net.JoinHostPort(s.VIP.String(), strconv.Itoa(int(s.Port)))
		fmt.Fprintf(&b, "-A %s %s -s %s", flag, at, ipvsScheduler(s, note))
		if s.Algorithm == lb.Persist {
			seconds := int(s.PersistTimeout.Seconds())
			if seconds == 0 {
				seconds = int(lb.DefaultPersistTimeout.Seconds())
			}
			fmt.Fprintf(&b, " -p %d", seconds)
			if s.PersistPrefix != 0 && int(s.PersistPrefix) != s.VIP.BitLen() {
				fmt.Fprintf(&b, " -M %s", ipvsMask(s))
			}
		}
		b.WriteString("\n")
		line++
		if s.Mode.TranslatesSource() {
			note("IPVS masquerading keeps the client's address, mode %s does not", s.Mode)
		}
		if names := unsupportedSettings(s); len(names) > 0 {
			note("IPVS does not have these settings, which are ignored: %s", strings.Join(names, ", "))
		}
		for _, e := range s.Endpoints {
			if e.Backup != 0 {
				note("IPVS has no backups: endpoint %s is skipped", e)
				continue
			}
			fmt.Fprintf(&b, "-a %s %s -r %s %s -w %d\n", flag, at, e.AddrPort(), ipvsForwarding(s), e.Weight)
			line++
		}
	}
	return b.String(), notes
}

// beyondIPVS returns why IPVS does not support a service.
func beyondIPVS(s *lb.Service) string {
	switch {
	case s.PortMax != 0:
		return "IPVS has no ranges of ports"
	case s.Mark != 0:
		return "IPVS has no services with an address and a mark"
	case s.Protocol == lb.ICMP:
		return "IPVS does not balance ICMP"
	case s.VIP.IsUnspecified():
		return "IPVS has no service for every address"
	}
	for _, e := range s.Endpoints {
		if e.PortMax != 0 {
			return "IPVS has no ranges of ports"
		}
		if e.Addr.Is4() != s.VIP.Is4() && s.Tunnel == lb.TunnelNone {
			return "IPVS does not translate between IP versions"
		}
	}
	return ""
}

// unsupportedSettings returns the settings of a service that IPVS does not have.
func unsupportedSettings(s *lb.Service) (names []string) {
	for _, f := range lb.Fields() {
		switch f.Name {
		case lb.FieldMode, lb.FieldSelect, lb.FieldEndpoints, lb.FieldPersistTimeout, lb.FieldPersistPrefix, lb.FieldTunnel,
			lb.FieldName, lb.FieldManaged, lb.FieldOwner, lb.FieldOwnerTime: // exported, or of no effect on packets
		default:
			if !f.IsDefault(s) {
				names = append(names, f.Text)
			}
		}
	}
	if s.Monitored() && !s.Monitor {
		names = append(names, "monitor") // by its mode
	}
	return names
}

func ipvsScheduler(s *lb.Service, note func(string, ...any)) string {
	switch s.Algorithm {
	case lb.RoundRobin:
		return "rr"
	case lb.Priority:
		return "wrr"
	case lb.LeastConnections:
		return "wlc"
	case lb.Hash:
		return "mh"
	case lb.Persist:
		return "wrr"
	}
	note("IPVS has no algorithm %s: wrr is used", s.Algorithm)
	return "wrr"
}

func ipvsForwarding(s *lb.Service) string {
	switch {
	case s.Mode == lb.ModeDSR && s.Tunnel == lb.TunnelGUE:
		return "-i --tun-type gue --tun-port 6080"
	case s.Mode == lb.ModeDSR && s.Tunnel == lb.TunnelIPIP:
		return "-i"
	case s.Mode == lb.ModeDSR:
		return "-g"
	}
	return "-m"
}

// ipvsMask returns a netmask for IPv4, a length for IPv6.
func ipvsMask(s *lb.Service) string {
	if !s.VIP.Is4() {
		return strconv.Itoa(int(s.PersistPrefix))
	}
	return net.IP(net.CIDRMask(int(s.PersistPrefix), 32)).String()
}
