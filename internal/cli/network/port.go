package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

const portTypes = "Shows interfaces. With -o wide, TYPE is a sum: 1 an interface of its own, 2 of a bond, 4 a bond,\n" +
	"8 of a bridge or a VLAN of another, 16 a bridge, 64 a VXLAN. The last column shows how XDP is\n" +
	"attached, or why it is not."

func portKind(o *session.Options) session.Kind[v1.PortList, v1.PortEntry] {
	return session.Kind[v1.PortList, v1.PortEntry]{
		Word: "port", Key: "portAttr", Object: "interface", Fetch: (*v1.Client).GetPorts,
		GetHelp:      session.Help{Short: "Show interfaces; -o wide shows traffic counters", Long: portTypes, Example: "  loxicmd get port -o wide"},
		DescribeHelp: session.Help{Short: "Show an interface in full, with its status and events", Example: "  loxicmd describe port"},
		Items:        func(l *v1.PortList) *[]v1.PortEntry { return &l.PortAttr },
		Name:         func(d *v1.PortEntry) string { return d.PortName },
		OtherNames:   func(d *v1.PortEntry) []string { return []string{strconv.Itoa(d.PortNo)} },
		Draw:         func(list *v1.PortList) *session.Table { return portTable(list, o.Output == "wide") },
	}
}

func portTable(list *v1.PortList, wide bool) *session.Table {
	header := []string{"index", "portname", "MAC", "link/state", "L3Info", "L2Info"}
	if wide {
		header = []string{"index", "portname", "MAC", "link/state", "mtu", "isActive/bpf", "Port type", "Statistics", "L3Info", "L2Info", "Sync"}
	}
	wantsXDP := func(p v1.PortEntry) bool { return p.PortSoftwareInformation.Xdp != "" }
	withXDP := wide && slices.ContainsFunc(list.PortAttr, wantsXDP)
	if withXDP {
		header = append(header, "XDP")
	}
	t := session.NewTable(header...)
	for i := range list.PortAttr {
		p := &list.PortAttr[i]
		hard, soft, stat := &p.PortHardwareInformation, &p.PortSoftwareInformation, &p.PortStatisticInformation
		l3 := append(append([]string{fmt.Sprintf("Routed: %v", p.PortL3Information.Routed)},
			listed("IPv4", p.PortL3Information.IPv4Address)...), listed("IPv6", p.PortL3Information.IPv6Address)...)
		l2 := []string{fmt.Sprintf("IsPVID: %v", p.PortL2Information.IsPvid), fmt.Sprintf("VID : %d", p.PortL2Information.Vid)}
		first := [][]string{{strconv.Itoa(p.PortNo)}, {p.PortName}, {hard.MacAddress}, {fmt.Sprintf("%v/%v", hard.Link, hard.State)}}
		if !wide {
			t.AddLines(append(first, l3, l2)...)
			continue
		}
		cells := append(first, []string{strconv.Itoa(hard.Mtu)},
			[]string{fmt.Sprintf("%v/%v", soft.PortActive, soft.BpfLoaded)},
			[]string{strconv.Itoa(soft.PortType)},
			[]string{
				fmt.Sprintf("rx/tx byte : %d/%d", stat.RxBytes, stat.TxBytes),
				fmt.Sprintf("rx/tx packets : %d/%d", stat.RxPackets, stat.TxPackets),
				fmt.Sprintf("rx/tx error : %d/%d", stat.RxErrors, stat.TxErrors),
			}, l3, l2, []string{strconv.Itoa(p.DataplaneSync)})
		if withXDP {
			cells = append(cells, xdpLines(soft.Xdp))
		}
		t.AddLines(cells...)
	}
	return t
}

// xdpLines returns how XDP is attached, or why not, in a narrow column.
func xdpLines(xdp string) (lines []string) {
	const width = 40
	if xdp == "" {
		return []string{"-"}
	}
	for word := range strings.FieldsSeq(xdp) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// listed returns a line in the contract's format, and another line for each further value.
func listed(name string, values []string) []string {
	if len(values) == 0 {
		return []string{name + " : []"}
	}
	lines := []string{name + " : " + values[0]}
	for _, v := range values[1:] {
		lines = append(lines, strings.Repeat(" ", len(name)+3)+v)
	}
	return lines
}
