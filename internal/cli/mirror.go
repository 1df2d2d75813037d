package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// mirrorAliases are the contract's.
func mirrorAliases() []string { return []string{"mirr", "mirrors"} }

func createMirror(o *options) *cobra.Command {
	var info, target []string
	cmd := &cobra.Command{
		Use:     "mirror IDENT",
		Aliases: mirrorAliases(),
		Short:   "copy packets of an interface, of services, or of clients",
		Long: "Copies packets as they arrive, to an interface or to a collector. A copy that is lost never costs the original.\n\n" +
			"--mirrorInfo has type (0 or span, 1 or rspan, 2 or erspan, 3 or vxlan), port (of span and rspan), vlan (of rspan),\n" +
			"remoteIP, sourceIP and tunnelID (of erspan and vxlan), and sample (of so many packets one is copied).\n" +
			"--targetObject has attachment (1 or port, 2 or service, 3 or source), mirrObjName, and direction (in, out or both).",
		Example: "  loxicmd create mirror mirr-1 --mirrorInfo=type:0,port:hs0 --targetObject=attachement:1,mirrObjName:hs1\n" +
			"  loxicmd create mirror web --mirrorInfo=type:vxlan,remoteIP:192.0.2.9,sourceIP:192.0.2.1,tunnelID:7,sample:100 --targetObject=attachment:service,mirrObjName:10.0.0.1:80/tcp",
		Args: exactly("its name, as in: loxicmd create mirror mirr-1 --mirrorInfo=type:0,port:hs0 --targetObject=attachement:1,mirrObjName:hs1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := mirrorRequest(args[0], info, target)
			if err != nil {
				return err
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			return o.created(o.answer(client.CreateMirror(cmd.Context(), body)))
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&info, "mirrorInfo", nil, "type:TYPE,port:PORT,vlan:VLAN,remoteIP:IP,sourceIP:IP,tunnelID:ID,sample:N")
	fs.StringSliceVar(&target, "targetObject", nil, "attachment:ATTACHMENT,mirrObjName:OBJECT,direction:DIRECTION; attachement is attachment, too")
	_ = cmd.MarkFlagRequired("mirrorInfo")
	_ = cmd.MarkFlagRequired("targetObject")
	return cmd
}

func mirrorRequest(name string, info, target []string) (body v1.Mirror, err error) {
	body.MirrorIdent = name
	i, t := &body.MirrorInfo, &body.TargetObject
	err = setPairs("--mirrorInfo", info, map[string]func(string) error{
		"type":     func(text string) error { kind, err := lb.ParseMirrorType(text); i.Type = int(kind); return err },
		"port":     func(text string) error { i.Port = text; return nil },
		"vlan":     func(text string) error { return setInt(&i.Vlan, text) },
		"remoteIP": func(text string) error { i.RemoteIP = text; return nil },
		"sourceIP": func(text string) error { i.SourceIP = text; return nil },
		"tunnelID": func(text string) error { return setInt(&i.TunnelID, text) },
		"sample":   func(text string) error { return setInt(&i.Sample, text) },
	})
	if err != nil {
		return body, err
	}
	attach := func(text string) error { to, err := lb.ParseAttachTo(text); t.Attachment = int(to); return err }
	return body, setPairs("--targetObject", target, map[string]func(string) error{
		"attachment": attach, "attachement": attach,
		"mirrObjName": func(text string) error { t.MirrObjName = text; return nil },
		"direction":   func(text string) error { t.Direction = text; return nil },
	})
}

// setPairs reads KEY:VALUE, of which a value may have colons.
func setPairs(flag string, pairs []string, set map[string]func(string) error) error {
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, ":")
		f := set[key]
		if !found || f == nil {
			return fmt.Errorf("%s knows no %q, only %s", flag, pair, strings.Join(slices.Sorted(maps.Keys(set)), ", "))
		}
		if err := f(value); err != nil {
			return fmt.Errorf("%s %s: %w", flag, key, err)
		}
	}
	return nil
}

func setInt(n *int, text string) (err error) {
	if *n, err = strconv.Atoi(text); err != nil {
		err = fmt.Errorf("%q is not a number", text)
	}
	return err
}

func deleteMirror(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "mirror IDENT",
		Aliases: mirrorAliases(),
		Short:   "take a mirror away",
		Example: "  loxicmd delete mirror mirr-1",
		Args:    exactly("its name, as in: loxicmd delete mirror mirr-1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.DeleteMirror(cmd.Context(), args[0]))
			if err != nil {
				return err
			}
			return o.done(body)
		},
	}
}

func getMirror(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "mirror",
		Aliases: mirrorAliases(),
		Short:   "show mirrors; -o wide shows what they have copied",
		Example: "  loxicmd get mirror -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetMirrors(cmd.Context()))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var list v1.MirrorList
			if err := decode(body, &list); err != nil {
				return err
			}
			return o.print(mirrorTable(list.MirrAttr, o.output == "wide").String())
		},
	}
}

// mirrorTable has what a mirror is on lines of its own, as the contract's.
func mirrorTable(list []v1.Mirror, wide bool) *table {
	header := []string{"Mirror Name", "Mirror Info", "Attachment", "Object Name"}
	if wide {
		header = append(header, "Sync", "Direction", "Attached", "Packets", "Bytes", "Lost")
	}
	t := newTable(header...)
	for i := range list {
		m := &list[i]
		lines := mirrorLines(&m.MirrorInfo)
		row := []string{m.MirrorIdent, lines[0], lb.AttachTo(m.TargetObject.Attachment).String(), m.TargetObject.MirrObjName}
		if wide {
			row = append(row, strconv.Itoa(m.Sync), m.TargetObject.Direction, strconv.Itoa(m.Attached),
				strconv.FormatUint(m.Packets, 10), strconv.FormatUint(m.Bytes, 10), strconv.FormatUint(m.Lost, 10))
		}
		t.add(row...)
		for _, line := range lines[1:] {
			row := make([]string, len(header))
			row[1] = line
			t.add(row...)
		}
	}
	return t
}

func mirrorLines(info *v1.MirrorInfo) []string {
	lines := []string{"Type : " + strings.ToUpper(lb.MirrorType(info.Type).String())}
	add := func(title, value string) {
		if value != "" && value != "0" {
			lines = append(lines, title+" : "+value)
		}
	}
	add("Port", info.Port)
	add("Remote IP", info.RemoteIP)
	add("Source IP", info.SourceIP)
	add("Tunnel ID", strconv.Itoa(info.TunnelID))
	add("Vlan ID", strconv.Itoa(info.Vlan))
	add("One of", strconv.Itoa(info.Sample))
	return lines
}
