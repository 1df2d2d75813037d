package network

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/netobj"
)

func createVLAN(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "vlan VID",
		Short: "Create the bridge of a VLAN, vlanVID",
		Long: "Creates the bridge of a VLAN, named vlanVID, and sets it up. Use create vlanmember to add\n" +
			"interfaces.",
		Example: "  loxicmd create vlan 100",
		Args:    session.Arguments("VID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := netobj.ParseVLAN("vid", args[0])
			if err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateVlan(ctx, v1.Vlan{Vid: v.ID})
			})
		},
	}
}

func deleteVLAN(o *session.Options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "vlan VID",
		Short: "Delete the bridge of a VLAN, of any origin",
		Long: "Deletes the bridge of a VLAN and everything created on it: members, addresses, neighbours,\n" +
			"forwarding entries.",
		Example: "  loxicmd delete vlan 100",
		Args:    session.Arguments("VID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := netobj.ParseVLAN("vid", args[0])
			if err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteVlan(ctx, v.Key(), &v1.DeleteVlanParams{Force: session.ForceText(force)})
			})
		},
	}
	session.ForceFlag(cmd, &force)
	return cmd
}

func createVLANMember(o *session.Options) *cobra.Command {
	var tagged, force bool
	cmd := &cobra.Command{
		Use:     "vlanmember VID INTERFACE",
		Aliases: kinds.VLANMember().Aliases,
		Short:   "Add an interface to a VLAN",
		Long: "Adds an interface to the bridge of a VLAN: untagged, or with --tagged the frames that carry the\n" +
			"VLAN's tag. Tagged members use an interface eth0.100 on top, which needs the kernel module\n" +
			"8021q.",
		Example: "  loxicmd create vlanmember 100 eth1\n  loxicmd create vlanmember 100 eth0 --tagged",
		Args:    session.Arguments("VID", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := netobj.ParseVLANMember(args[0], args[1], tagged)
			if err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateVlanMember(ctx, strconv.Itoa(m.VLAN), &v1.CreateVlanMemberParams{Force: session.ForceText(force)}, v1.VlanMember{Dev: m.Dev, Tagged: tagged})
			})
		},
	}
	cmd.Flags().BoolVar(&tagged, "tagged", false, "add it for frames that carry the VLAN's tag")
	session.ForceFlag(cmd, &force)
	return cmd
}

func deleteVLANMember(o *session.Options) *cobra.Command {
	var tagged bool
	cmd := &cobra.Command{
		Use:     "vlanmember VID INTERFACE",
		Aliases: kinds.VLANMember().Aliases,
		Short:   "Remove an interface from a VLAN",
		Example: "  loxicmd delete vlanmember 100 eth0 --tagged",
		Args:    session.Arguments("VID", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := netobj.ParseVLANMember(args[0], args[1], tagged)
			if err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteVlanMember(ctx, strconv.Itoa(m.VLAN), m.Dev, strconv.FormatBool(tagged))
			})
		},
	}
	cmd.Flags().BoolVar(&tagged, "tagged", false, "remove its tagged membership")
	return cmd
}

func vlanKind(o *session.Options) session.Kind[v1.VlanList, v1.VlanEntry] {
	return session.Kind[v1.VlanList, v1.VlanEntry]{
		Word: "vlan", Key: "vlanAttr", Object: "vlan", Fetch: (*v1.Client).GetVlans,
		GetHelp:      session.Help{Short: "Show VLANs and their members; -o wide shows traffic counters", Example: "  loxicmd get vlan -o wide"},
		DescribeHelp: session.Help{Short: "Show a VLAN in full, with its status and events", Example: "  loxicmd describe vlan"},
		Items:        func(l *v1.VlanList) *[]v1.VlanEntry { return &l.VlanAttr },
		Name:         func(d *v1.VlanEntry) string { return strconv.Itoa(d.Vid) },
		OtherNames:   func(d *v1.VlanEntry) []string { return []string{d.Dev} },
		Draw:         func(list *v1.VlanList) *session.Table { return vlanTable(list, o.Output == "wide") },
	}
}

func vlanTable(list *v1.VlanList, wide bool) *session.Table {
	header := []string{"Device Name", "Vlan ID", "Member"}
	if wide {
		header = append(header, "Statistics")
	}
	t := session.NewTable(header...)
	for _, v := range list.VlanAttr {
		var members []string
		for _, m := range v.Member {
			members = append(members, "Device: "+m.Dev, fmt.Sprintf("tagged: %v", m.Tagged))
		}
		s := &v.VlanStatistic
		t.AddLines([][]string{{v.Dev}, {strconv.Itoa(v.Vid)}, members, {
			fmt.Sprintf("In/Out byte : %d/%d", s.InBytes, s.OutBytes),
			fmt.Sprintf("In/Out packets : %d/%d", s.InPackets, s.OutPackets),
		}}[:len(header)]...)
	}
	return t
}
