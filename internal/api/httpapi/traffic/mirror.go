package traffic

import (
	"cmp"
	"math"
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// mirrors returns how mirrors are asked about.
func mirrors() objects.Single[v1.Mirror, policy.Mirror] {
	return objects.Single[v1.Mirror, policy.Mirror]{Word: "mirror", Parse: mirrorOf, Words: mirrorWord}
}

// CreateMirror creates or changes a mirror.
func (a *API) CreateMirror(w http.ResponseWriter, r *http.Request) {
	mirrors().Create(a.Objects, w, r, a.Store.Mirrors)
}

// showMirror returns a mirror as POST takes it.
func showMirror(m *policy.Mirror) any {
	out := mirrorAnswer(m, policy.MirrorStats{})
	out.Sync = nil
	return out
}

func mirrorOf(body *v1.Mirror) (m policy.Mirror, err error) {
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
		direction = cmp.Or(direction, string(policy.Both))
	}
	m.Attachment, err = attachmentOf(target.Attachment, target.MirrObjName, direction)
	return m, err
}

func mirrorWord(field string) string {
	switch field {
	case lb.FieldIdent, lb.FieldName:
		return "mirrorIdent"
	case lb.FieldMirrorPort:
		return "port"
	case lb.FieldVLAN:
		return "vlan"
	case lb.FieldRemote:
		return "remoteIP"
	case lb.FieldMirrorSource:
		return "sourceIP"
	case lb.FieldTunnelID:
		return "tunnelID"
	case lb.FieldTarget:
		return "mirrObjName"
	}
	return ""
}

// GetMirrors replies with all mirrors.
func (a *API) GetMirrors(w http.ResponseWriter, r *http.Request) {
	out := rest.NewList(w, "mirrAttr")
	for m := range a.Store.Mirrors.All(a.Store.Snapshot()) {
		if r.Context().Err() != nil || !out.Item(mirrorAnswer(&m, a.DataPath.MirrorStats(m.Name))) {
			return
		}
	}
	out.End()
}

// mirrorAnswer returns a mirror as the contract writes it, so that it can be sent back as it is.
func mirrorAnswer(m *policy.Mirror, stats policy.MirrorStats) *v1.Mirror {
	sync := 0
	if stats.Attached == 0 {
		sync = 1
	}
	out := &v1.Mirror{
		MirrorIdent: m.Name, Sync: &sync, Attached: stats.Attached, Packets: stats.Packets, Bytes: stats.Bytes, Lost: stats.Lost,
		MirrorInfo:   v1.MirrorInfo{Type: int(m.Type), Port: m.Port, Vlan: int(m.VLAN), TunnelID: int(m.TunnelID), Sample: int(m.OneOf)},
		TargetObject: v1.MirrorTarget{Attachment: int(m.Attachment.To), MirrObjName: m.Attachment.Name, Direction: string(m.Attachment.Direction)},
	}
	if m.Tunneled() {
		out.MirrorInfo.RemoteIP, out.MirrorInfo.SourceIP = m.Remote.String(), m.Source.String()
	}
	return out
}

// DeleteMirror deletes a mirror.
func (a *API) DeleteMirror(w http.ResponseWriter, r *http.Request, ident string) {
	objects.DeleteOne(a.Objects, w, r, a.Store.Mirrors, ident)
}
