package httpapi

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// CreateMirror has packets copied, or changes what is.
func (a *API) CreateMirror(w http.ResponseWriter, r *http.Request) {
	mirror, p := decoded(a, w, r, decodeMirror)
	if p != nil {
		p.write(w)
		return
	}
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, a.Store.Mirrors, mirror.Name); err != nil {
			return err
		}
		if err := a.Store.Mirrors.Put(tx, mirror); err != nil {
			return err
		}
		if !tx.Changed() {
			return refuse(http.StatusConflict, "mirror %s exists already with the same content", mirror.Name)
		}
		return nil
	})
}

// decodeMirror reads and checks a mirror without looking at the store.
func decodeMirror(data []byte) (mirror lb.Mirror, p *problem) {
	body, p := decodeBody[v1.Mirror](data)
	if p != nil {
		return mirror, p
	}
	return checkedMirror(body)
}

// readMirror reads a mirror of a list.
func readMirror(spec []byte) (mirror lb.Mirror, p *problem) {
	body, p := strictly[v1.Mirror](spec)
	if p != nil {
		return mirror, p
	}
	return checkedMirror(body)
}

// showMirror is a mirror as POST takes it.
func showMirror(m *lb.Mirror) any {
	out := mirrorAnswer(m, lb.MirrorStats{})
	out.Sync = 0
	return out
}

func checkedMirror(body *v1.Mirror) (lb.Mirror, *problem) {
	mirror, err := mirrorOf(body)
	if err == nil {
		mirror = mirror.Normal()
		err = mirror.Validate()
	}
	if err != nil {
		return mirror, mirrorProblem(err)
	}
	return mirror, nil
}

func mirrorOf(body *v1.Mirror) (m lb.Mirror, err error) {
	info := &body.MirrorInfo
	m = lb.Mirror{Name: body.MirrorIdent, Port: info.Port}
	if m.Type, err = lb.ParseMirrorType(strconv.Itoa(info.Type)); err != nil {
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
	if target.Attachment != int(lb.AttachPort) {
		direction = cmp.Or(direction, string(lb.Both))
	}
	m.Attachment, err = attachmentOf(target.Attachment, target.MirrObjName, direction)
	return m, err
}

// mirrorProblem renames the field of an error into the contract's words.
func mirrorProblem(err error) *problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	if name := mirrorWord(fe.Field); name != "" {
		return fieldProblem(http.StatusBadRequest, renamed(name, fe))
	}
	return fieldProblem(http.StatusBadRequest, fe)
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

// GetMirrors answers with all mirrors.
func (a *API) GetMirrors(w http.ResponseWriter, r *http.Request) {
	out := newStream(w, "mirrAttr")
	for m := range a.Store.Mirrors.All(a.Store.Snapshot()) {
		if r.Context().Err() != nil || !out.item(mirrorAnswer(&m, a.DataPath.MirrorStats(m.Name))) {
			return
		}
	}
	out.end()
}

// mirrorAnswer is a mirror as the contract writes it, so that it can be sent back as it is.
func mirrorAnswer(m *lb.Mirror, stats lb.MirrorStats) *v1.Mirror {
	out := &v1.Mirror{
		MirrorIdent: m.Name, Attached: stats.Attached, Packets: stats.Packets, Bytes: stats.Bytes, Lost: stats.Lost,
		MirrorInfo:   v1.MirrorInfo{Type: int(m.Type), Port: m.Port, Vlan: int(m.VLAN), TunnelID: int(m.TunnelID), Sample: int(m.OneOf)},
		TargetObject: v1.MirrorTarget{Attachment: int(m.Attachment.To), MirrObjName: m.Attachment.Name, Direction: string(m.Attachment.Direction)},
	}
	if m.Tunneled() {
		out.MirrorInfo.RemoteIP, out.MirrorInfo.SourceIP = m.Remote.String(), m.Source.String()
	}
	if stats.Attached == 0 {
		out.Sync = 1
	}
	return out
}

// DeleteMirror takes a mirror away.
func (a *API) DeleteMirror(w http.ResponseWriter, r *http.Request, ident string) {
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, a.Store.Mirrors, ident); err != nil {
			return err
		}
		return tx.Delete(a.Store.Mirrors.ID(ident))
	})
}
