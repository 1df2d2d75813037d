package network

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/netobj"
)

func createVXLAN(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "vxlan VNI INTERFACE",
		Short: "Create a VXLAN tunnel, vxlanVNI, over an interface",
		Long: "Creates a VXLAN tunnel over an interface, named vxlanVNI, from the interface's first address at\n" +
			"UDP port 4789, and sets it up. Use create ip to give it an address, create vlanmember to add it\n" +
			"to a VLAN, and create vxlanpeer to add peers.",
		Example: "  loxicmd create vxlan 78 eth0\n  loxicmd create vxlanpeer 78 192.168.0.2\n  loxicmd create ip 10.78.0.1/24 vxlan78",
		Args:    session.Arguments("VNI", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := netobj.ParseVXLAN(args[0], args[1])
			if err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateVxlan(ctx, v1.Vxlan{VxlanID: v.ID, EpIntf: v.Dev})
			})
		},
	}
}

func deleteVXLAN(o *session.Options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "vxlan VNI",
		Short: "Delete a VXLAN tunnel, of any origin",
		Long: "Deletes a VXLAN tunnel and everything created on it: peers, addresses, neighbours, forwarding\n" +
			"entries.",
		Example: "  loxicmd delete vxlan 78",
		Args:    session.Arguments("VNI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := netobj.ParseVXLANID("vxlanID", args[0])
			if err != nil {
				return err
			}
			v := netobj.VXLAN{ID: id}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteVxlan(ctx, v.Key(), &v1.DeleteVxlanParams{Force: session.ForceText(force)})
			})
		},
	}
	session.ForceFlag(cmd, &force)
	return cmd
}

func createVXLANPeer(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "vxlanpeer VNI IP",
		Aliases: kinds.VXLANPeer().Aliases,
		Short:   "Add a peer to a VXLAN tunnel",
		Long:    "Adds a peer that receives the tunnel's broadcast, multicast and unknown unicast frames.",
		Example: "  loxicmd create vxlanpeer 78 192.168.0.2",
		Args:    session.Arguments("VNI", "IP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := netobj.ParseVXLANPeer(args[0], args[1])
			if err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateVxlanPeer(ctx, strconv.Itoa(p.ID), v1.VxlanPeer{PeerIP: p.Peer.String()})
			})
		},
	}
}

func deleteVXLANPeer(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "vxlanpeer VNI IP",
		Aliases: kinds.VXLANPeer().Aliases,
		Short:   "Remove a peer from a VXLAN tunnel",
		Example: "  loxicmd delete vxlanpeer 78 192.168.0.2",
		Args:    session.Arguments("VNI", "IP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := netobj.ParseVXLANPeer(args[0], args[1])
			if err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteVxlanPeer(ctx, strconv.Itoa(p.ID), p.Peer.String())
			})
		},
	}
}

func vxlanKind() session.Kind[v1.VxlanList, v1.VxlanEntry] {
	return session.Kind[v1.VxlanList, v1.VxlanEntry]{
		Word: "vxlan", Key: "vxlanAttr", Object: "vxlan", Fetch: (*v1.Client).GetVxlans,
		GetHelp:      session.Help{Short: "Show VXLAN tunnels and their peers", Example: "  loxicmd get vxlan"},
		DescribeHelp: session.Help{Short: "Show a VXLAN tunnel in full, with its status and events", Example: "  loxicmd describe vxlan"},
		Items:        func(l *v1.VxlanList) *[]v1.VxlanEntry { return &l.VxlanAttr },
		Name:         func(d *v1.VxlanEntry) string { return strconv.Itoa(d.VxlanID) },
		OtherNames:   func(d *v1.VxlanEntry) []string { return []string{d.VxlanName} },
		Draw: func(list *v1.VxlanList) *session.Table {
			t := session.NewTable("Device Name", "Vxlan ID", "endpoint interface", "Peer IP")
			for _, v := range list.VxlanAttr {
				t.AddLines([]string{v.VxlanName}, []string{strconv.Itoa(v.VxlanID)}, []string{v.EpIntf}, v.PeerIP)
			}
			return t
		},
	}
}
