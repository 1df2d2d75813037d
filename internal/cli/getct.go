package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func getCT(o *options) *cobra.Command {
	params := &v1.GetConntracksParams{}
	cmd := &cobra.Command{
		Use:     "ct",
		Aliases: []string{"conntrack", "cts", "conntracks"},
		Short:   "show connections, a line for each direction",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetConntracks(cmd.Context(), params))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var list v1.ConntrackList
			if err := decode(body, &list); err != nil {
				return err
			}
			return o.print(conntracks(list.CtAttr).String())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&params.ServName, "servName", "", "only connections of the services of this name")
	fs.StringVar(&params.Vip, "vip", "", "only connections that clients made to this address")
	fs.StringVar(&params.Protocol, "proto", "", "only connections of this protocol (tcp, udp)")
	fs.IntVar(&params.Limit, "limit", 0, "at most so many lines; 0 is all")
	return cmd
}

func conntracks(list []v1.ConntrackEntry) *table {
	t := newTable("Service Name", "destIP", "srcIP", "dport", "sport", "proto", "ident", "state", "act", "packets", "bytes")
	for i := range list {
		c := &list[i]
		t.add(c.ServName, c.DestinationIP, c.SourceIP,
			strconv.Itoa(int(c.DestinationPort)), strconv.Itoa(int(c.SourcePort)),
			c.Protocol, c.Ident, c.ConntrackState, c.ConntrackAct,
			strconv.FormatUint(c.Packets, 10), strconv.FormatUint(c.Bytes, 10))
	}
	return t
}

func getVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "lbversion",
		Aliases: []string{"llbversion", "LBversion"},
		Short:   "show the version of the server",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetVersion(cmd.Context()))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var v v1.Version
			if err := decode(body, &v); err != nil {
				return err
			}
			t := newTable("LoxiLB Version", "LoxiLB Build Info")
			if o.output == "wide" {
				t = newTable("LoxiLB Version", "LoxiLB Build Info", "Namespace")
			}
			t.add([]string{v.Version, v.BuildInfo, v.Namespace}[:len(t.header)]...)
			return o.print(t.String())
		},
	}
}
