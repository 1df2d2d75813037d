package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/policy"
)

func createMirror(o *session.Options) *cobra.Command {
	var info, target []string
	cmd := &cobra.Command{
		Use:     "mirror IDENT",
		Aliases: kinds.Mirror().Aliases,
		Short:   "Mirror packets of an interface, service, client or firewall rule",
		Long: "Copies arriving packets to an interface or a collector. A lost copy never delays or drops the\n" +
			"original.\n\n" +
			"--mirrorInfo takes type (0 or span, 1 or rspan, 2 or erspan, 3 or vxlan), port (span and rspan),\n" +
			"vlan (rspan), remoteIP, sourceIP and tunnelID (erspan and vxlan), and sample (copy one packet in\n" +
			"N). --targetObject takes attachment (1 or port, 2 or service, 3 or source, 4 or firewall),\n" +
			"mirrObjName (of firewall the rule's key, as in --firewallRule), and direction (in, out or both).\n" +
			"An object has one mirror per direction. The tunnelID of erspan is 1 to 1023.",
		Example: "  loxicmd create mirror mirr-1 --mirrorInfo=type:0,port:hs0 --targetObject=attachement:1,mirrObjName:hs1\n" +
			"  loxicmd create mirror web --mirrorInfo=type:vxlan,remoteIP:192.0.2.9,sourceIP:192.0.2.1,tunnelID:7,sample:100 --targetObject=attachment:service,mirrObjName:10.0.0.1:80/tcp\n" +
			"  loxicmd create mirror bad --mirrorInfo=type:span,port:hs0 --targetObject=attachment:firewall,mirrObjName:sourceIP:203.0.113.0/24,preference:200",
		Args: session.Exactly("its name, as in: loxicmd create mirror mirr-1 --mirrorInfo=type:0,port:hs0 --targetObject=attachement:1,mirrObjName:hs1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := mirrorRequest(args[0], info, target)
			if err != nil {
				return err
			}
			return o.CreateAt(cmd.Context(), kinds.Mirror(), &body)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&info, "mirrorInfo", nil, "type:TYPE,port:PORT,vlan:VLAN,remoteIP:IP,sourceIP:IP,tunnelID:ID,sample:N")
	fs.StringSliceVar(&target, "targetObject", nil, "attachment:ATTACHMENT,mirrObjName:OBJECT,direction:DIRECTION; attachement is an alias of attachment")
	_ = cmd.MarkFlagRequired("mirrorInfo")
	_ = cmd.MarkFlagRequired("targetObject")
	return cmd
}

func mirrorRequest(name string, info, target []string) (body v1.Mirror, err error) {
	body.MirrorIdent = name
	i, t := &body.MirrorInfo, &body.TargetObject
	err = setPairs("--mirrorInfo", info, map[string]func(string) error{
		"type":     func(text string) error { kind, err := policy.ParseMirrorType(text); i.Type = int(kind); return err },
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
	attach := func(text string) error { to, err := policy.ParseAttachTo(text); t.Attachment = int(to); return err }
	return body, setPairs("--targetObject", wholeKeys(target), map[string]func(string) error{
		"attachment": attach, "attachement": attach,
		"mirrObjName": func(text string) error { t.MirrObjName = text; return nil },
		"direction":   func(text string) error { t.Direction = text; return nil },
	})
}

// wholeKeys rejoins firewall rule keys, which the flag parser has split at commas.
func wholeKeys(target []string) (out []string) {
	name := -1
	for _, pair := range target {
		key, _, _ := strings.Cut(pair, ":")
		if name >= 0 && policy.IsRuleKey(key) {
			out[name] += "," + pair
			continue
		}
		if key == "mirrObjName" {
			name = len(out)
		}
		out = append(out, pair)
	}
	return out
}

// setPairs calls the function of each KEY:VALUE with the value, which may contain colons.
func setPairs(flag string, pairs []string, set map[string]func(string) error) error {
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, ":")
		f := set[key]
		if !found || f == nil {
			return fmt.Errorf("%s %q is not KEY:VALUE (allowed keys: %s)", flag, pair, strings.Join(slices.Sorted(maps.Keys(set)), ", "))
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
