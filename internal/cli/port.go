package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func getPort(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "port",
		Short:   "show the interfaces; -o wide shows what they have received and sent",
		Example: "  loxicmd get port -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showing(cmd.Context(), o, func(ctx context.Context, c *v1.Client) (*http.Response, error) { return c.GetPorts(ctx) },
				func(list *v1.PortList) *table { return portTable(list, o.output == "wide") })
		},
	}
}

func portTable(list *v1.PortList, wide bool) *table {
	header := []string{"index", "portname", "MAC", "link/state", "L3Info", "L2Info"}
	if wide {
		header = []string{"index", "portname", "MAC", "link/state", "mtu", "isActive/bpf", "Port type", "Statistics", "L3Info", "L2Info", "Sync"}
	}
	t := newTable(header...)
	for i := range list.PortAttr {
		p := &list.PortAttr[i]
		hard, soft, stat := &p.PortHardwareInformation, &p.PortSoftwareInformation, &p.PortStatisticInformation
		l3 := append(append([]string{fmt.Sprintf("Routed: %v", p.PortL3Information.Routed)},
			listed("IPv4", p.PortL3Information.IPv4Address)...), listed("IPv6", p.PortL3Information.IPv6Address)...)
		l2 := []string{fmt.Sprintf("IsPVID: %v", p.PortL2Information.IsPvid), fmt.Sprintf("VID : %d", p.PortL2Information.Vid)}
		first := [][]string{{strconv.Itoa(p.PortNo)}, {p.PortName}, {hard.MacAddress}, {fmt.Sprintf("%v/%v", hard.Link, hard.State)}}
		if !wide {
			t.addLines(append(first, l3, l2)...)
			continue
		}
		t.addLines(append(first, []string{strconv.Itoa(hard.Mtu)}, []string{fmt.Sprintf("%v/%v", soft.PortActive, soft.BpfLoaded)},
			[]string{strconv.Itoa(soft.PortType)},
			[]string{
				fmt.Sprintf("rx/tx byte : %d/%d", stat.RxBytes, stat.TxBytes),
				fmt.Sprintf("rx/tx packets : %d/%d", stat.RxPackets, stat.TxPackets),
				fmt.Sprintf("rx/tx error : %d/%d", stat.RxErrors, stat.TxErrors),
			}, l3, l2, []string{strconv.Itoa(p.DataplaneSync)})...)
	}
	return t
}

// listed is a line as the contract has it, and one more for each further value.
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
