package kinds

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// Mirror registers mirrors.
func Mirror() *Kind[policy.Mirror, v1.Mirror] {
	words := Words{
		Name: "mirror", Document: MirrorDocument, Command: "mirror", Aliases: []string{"mirr", "mirrors"},
		List: "mirrAttr", Exported: true, Verified: true,
	}
	stored := asJSON(func(m policy.Mirror) string { return m.Name }, policy.Mirror.Validate)
	stored.Max, stored.Shared = 1024, true
	return &Kind[policy.Mirror, v1.Mirror]{
		Words:  words,
		Stored: uniquePerTarget(stored, words.Name, func(m policy.Mirror) policy.Attachment { return m.Attachment }),
		API: API[policy.Mirror, v1.Mirror]{
			Path: "/config/mirror", ObjectPath: "/ident/{ident}",
			Read: func(body *v1.Mirror) (policy.Mirror, error) { m, err := readMirror(body); return m.Normal(), err },
			Show: showMirror,
			Fields: map[string]string{
				lb.FieldIdent: "mirrorIdent", lb.FieldName: "mirrorIdent", lb.FieldMirrorPort: "port", lb.FieldVLAN: "vlan",
				lb.FieldRemote: "remoteIP", lb.FieldMirrorSource: "sourceIP", lb.FieldTunnelID: "tunnelID", lb.FieldTarget: "mirrObjName",
			},
		},
		CLI: CLI[v1.Mirror]{
			Texts:   Texts{Singular: "a mirror", Plural: "mirrors", Details: "counters", Argument: "IDENT", Sample: "mirr-1"},
			Name:    func(m *v1.Mirror) string { return m.MirrorIdent },
			Columns: mirrorColumns(),
		},
	}
}

// readMirror returns the mirror that a body describes.
func readMirror(body *v1.Mirror) (m policy.Mirror, err error) {
	info := &body.MirrorInfo
	m = policy.Mirror{Name: body.MirrorIdent, Port: info.Port}
	if m.Type, err = policy.ParseMirrorType(strconv.Itoa(info.Type)); err != nil {
		return m, err
	}
	for _, n := range []struct {
		field string
		value int
		most  int
	}{{lb.FieldVLAN, info.Vlan, math.MaxUint16}, {lb.FieldTunnelID, info.TunnelID, math.MaxUint32}, {lb.FieldSample, info.Sample, math.MaxUint32}} {
		if n.value < 0 || n.value > n.most {
			return m, lb.NewFieldError(n.field, strconv.Itoa(n.value), "is out of range", "")
		}
	}
	m.VLAN, m.TunnelID, m.OneOf = uint16(info.Vlan), uint32(info.TunnelID), uint32(info.Sample)
	if info.RemoteIP != "" {
		if m.Remote, err = lb.ParseAddr(lb.FieldRemote, info.RemoteIP); err != nil {
			return m, err
		}
	}
	if info.SourceIP != "" {
		if m.Source, err = lb.ParseAddr(lb.FieldMirrorSource, info.SourceIP); err != nil {
			return m, err
		}
	}
	target := &body.TargetObject
	direction := target.Direction
	if target.Attachment != int(policy.AttachPort) {
		direction = cmp.Or(direction, string(policy.DirectionBoth))
	}
	m.Attachment, err = attachmentOf(target.Attachment, target.MirrObjName, direction)
	return m, err
}

// showMirror returns a mirror in the existing loxilb's form.
func showMirror(m *policy.Mirror) *v1.Mirror {
	out := &v1.Mirror{
		MirrorIdent:  m.Name,
		MirrorInfo:   v1.MirrorInfo{Type: int(m.Type), Port: m.Port, Vlan: int(m.VLAN), TunnelID: int(m.TunnelID), Sample: int(m.OneOf)},
		TargetObject: v1.MirrorTarget{Attachment: int(m.Attachment.To), MirrObjName: m.Attachment.Name, Direction: string(m.Attachment.Direction)},
	}
	if m.Tunneled() {
		out.MirrorInfo.RemoteIP, out.MirrorInfo.SourceIP = m.Remote.String(), m.Source.String()
	}
	return out
}

// mirrorColumns has a mirror's properties on separate lines, like the existing loxicmd.
func mirrorColumns() []Column[*v1.Mirror] {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return []Column[*v1.Mirror]{
		{Header: "Mirror Name", Cell: func(m *v1.Mirror) string { return m.MirrorIdent }},
		{Header: "Mirror Info", Cell: func(m *v1.Mirror) string { return mirrorLines(&m.MirrorInfo) }},
		{Header: "Attachment", Cell: func(m *v1.Mirror) string { return policy.AttachTo(m.TargetObject.Attachment).String() }},
		{Header: "Object Name", Cell: func(m *v1.Mirror) string { return m.TargetObject.MirrObjName }},
		{Header: "Sync", Wide: true, Cell: func(m *v1.Mirror) string {
			if m.Sync == nil {
				return "0"
			}
			return strconv.Itoa(*m.Sync)
		}},
		{Header: "Direction", Wide: true, Cell: func(m *v1.Mirror) string { return m.TargetObject.Direction }},
		{Header: "Attached", Wide: true, Cell: func(m *v1.Mirror) string { return strconv.Itoa(m.Attached) }},
		{Header: "Packets", Wide: true, Cell: func(m *v1.Mirror) string { return number(m.Packets) }},
		{Header: "Bytes", Wide: true, Cell: func(m *v1.Mirror) string { return number(m.Bytes) }},
		{Header: "Lost", Wide: true, Cell: func(m *v1.Mirror) string { return number(m.Lost) }},
	}
}

func mirrorLines(info *v1.MirrorInfo) string {
	lines := []string{"Type : " + strings.ToUpper(policy.MirrorType(info.Type).String())}
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
	return strings.Join(lines, "\n")
}
