package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/netobj"
)

// vlanMemberAliases are the contract's.
func vlanMemberAliases() []string { return []string{"vlanMember", "vlan-member", "vlan_member"} }

func createVLAN(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "vlan VID",
		Short:   "make the bridge of a VLAN, vlanVID",
		Long:    "Makes the bridge of a VLAN, which is called vlanVID, and sets it up. create vlanmember puts interfaces into it.",
		Example: "  loxicmd create vlan 100",
		Args:    arguments("VID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := netobj.ParseVLAN("vid", args[0])
			if err != nil {
				return err
			}
			return o.creating(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateVlan(ctx, v1.Vlan{Vid: v.ID})
			})
		},
	}
}

func deleteVLAN(o *options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "vlan VID",
		Short:   "delete the bridge of a VLAN, whoever made it",
		Long:    "Deletes the bridge of a VLAN, and what create has made in it: members, addresses, neighbours, forwarding entries.",
		Example: "  loxicmd delete vlan 100",
		Args:    arguments("VID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := netobj.ParseVLAN("vid", args[0])
			if err != nil {
				return err
			}
			if err := ownDevice(force, v.Device()); err != nil {
				return err
			}
			return o.deleting(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) { return c.DeleteVlan(ctx, v.Key()) })
		},
	}
	forceFlag(cmd, &force)
	return cmd
}

func createVLANMember(o *options) *cobra.Command {
	var tagged, force bool
	cmd := &cobra.Command{
		Use:     "vlanmember VID INTERFACE",
		Aliases: vlanMemberAliases(),
		Short:   "put an interface into a VLAN",
		Long: "Puts an interface into the bridge of a VLAN: itself, or, with --tagged, the part of it that has the VLAN's tag, by an\n" +
			"interface eth0.100 on top of it, for which the kernel needs the module 8021q.",
		Example: "  loxicmd create vlanmember 100 eth1\n  loxicmd create vlanmember 100 eth0 --tagged",
		Args:    arguments("VID", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := netobj.ParseVLANMember(args[0], args[1], tagged)
			if err != nil {
				return err
			}
			if err := ownDevice(force || tagged, m.Dev); err != nil {
				return err
			}
			return o.creating(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateVlanMember(ctx, strconv.Itoa(m.VLAN), v1.VlanMember{Dev: m.Dev, Tagged: tagged})
			})
		},
	}
	cmd.Flags().BoolVar(&tagged, "tagged", false, "by its frames with the VLAN's tag")
	cmd.Flags().BoolVar(&force, "force", false, "also if you are reached by it")
	return cmd
}

func deleteVLANMember(o *options) *cobra.Command {
	var tagged bool
	cmd := &cobra.Command{
		Use:     "vlanmember VID INTERFACE",
		Aliases: vlanMemberAliases(),
		Short:   "take an interface out of a VLAN",
		Example: "  loxicmd delete vlanmember 100 eth0 --tagged",
		Args:    arguments("VID", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := netobj.ParseVLANMember(args[0], args[1], tagged)
			if err != nil {
				return err
			}
			return o.deleting(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteVlanMember(ctx, strconv.Itoa(m.VLAN), m.Dev, strconv.FormatBool(tagged))
			})
		},
	}
	cmd.Flags().BoolVar(&tagged, "tagged", false, "as it was put in")
	return cmd
}

func getVLAN(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "vlan",
		Short:   "show VLANs with their members; -o wide shows what these have received and sent",
		Example: "  loxicmd get vlan -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showing(cmd.Context(), o, func(ctx context.Context, c *v1.Client) (*http.Response, error) { return c.GetVlans(ctx) },
				func(list *v1.VlanList) *table { return vlanTable(list, o.output == "wide") })
		},
	}
}

func vlanTable(list *v1.VlanList, wide bool) *table {
	header := []string{"Device Name", "Vlan ID", "Member"}
	if wide {
		header = append(header, "Statistics")
	}
	t := newTable(header...)
	for _, v := range list.VlanAttr {
		var members []string
		for _, m := range v.Member {
			members = append(members, "Device: "+m.Dev, fmt.Sprintf("tagged: %v", m.Tagged))
		}
		s := &v.VlanStatistic
		t.addLines([][]string{{v.Dev}, {strconv.Itoa(v.Vid)}, members, {
			fmt.Sprintf("In/Out byte : %d/%d", s.InBytes, s.OutBytes),
			fmt.Sprintf("In/Out packets : %d/%d", s.InPackets, s.OutPackets),
		}}[:len(header)]...)
	}
	return t
}
