package kinds

import (
	"fmt"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// SessionName is the name of the kind in messages and journals.
const SessionName = "session"

// Session registers sessions of mobile users.
func Session() *Kind[lb.Session, v1.Session] {
	stored := asJSON(func(s lb.Session) string { return s.Name }, lb.Session.Validate)
	stored.Max, stored.Plural, stored.Shared = 20_000, "sessions", true
	stored.UniqueValues = func(s lb.Session) []string {
		return []string{fmt.Sprintf("tunnel %d:%s", s.Core.TEID, s.Core.Addr)}
	}
	stored.RefuseDuplicate = func(s lb.Session, other string) error {
		return lb.NewFieldError(lb.FieldSession, s.Name, "has the core tunnel of session "+other, "another TEID or IP")
	}
	return &Kind[lb.Session, v1.Session]{
		Words:  Words{Name: SessionName, Document: SessionDocument, Command: "session", Aliases: []string{"sessions"}, List: "sessionAttr", Exported: true, Verified: true},
		Stored: stored,
		API: API[lb.Session, v1.Session]{
			Path: "/config/session", ObjectPath: "/ident/{ident}", Read: readSession, Show: showSession,
			Fields: map[string]string{
				lb.FieldName: "ident", lb.FieldSession: "ident", lb.FieldUser: "sessionIP", lb.FieldAccessTunnel: "accessNetworkTunnel", lb.FieldCoreTunnel: "coreNetworkTunnel",
			},
		},
		CLI: CLI[v1.Session]{
			Texts: Texts{Singular: "a session of a mobile user", Plural: "sessions of mobile users", Argument: "USER", Sample: "user1"},
			Name:  func(s *v1.Session) string { return s.Ident },
			Columns: []Column[*v1.Session]{
				{Header: "Ident", Cell: func(s *v1.Session) string { return s.Ident }},
				{Header: "session IP", Cell: func(s *v1.Session) string { return s.SessionIP }},
				{Header: "access Network Tunnel", Cell: func(s *v1.Session) string {
					return fmt.Sprintf("%d:%s", s.AccessNetworkTunnel.TeID, s.AccessNetworkTunnel.TunnelIP)
				}},
				{Header: "core Network Tunnel", Cell: func(s *v1.Session) string {
					return fmt.Sprintf("%d:%s", s.CoreNetworkTunnel.TeID, s.CoreNetworkTunnel.TunnelIP)
				}},
			},
		},
	}
}

func readSession(body *v1.Session) (s lb.Session, err error) {
	s.Name = body.Ident
	if s.User, err = lb.ParseAddr(lb.FieldUser, body.SessionIP); err != nil {
		return s, err
	}
	s.Access.TEID, s.Core.TEID = body.AccessNetworkTunnel.TeID, body.CoreNetworkTunnel.TeID
	if s.Access.Addr, err = lb.ParseAddr(lb.FieldAccessTunnel, body.AccessNetworkTunnel.TunnelIP); err != nil {
		return s, err
	}
	s.Core.Addr, err = lb.ParseAddr(lb.FieldCoreTunnel, body.CoreNetworkTunnel.TunnelIP)
	return s, err
}

func showSession(s *lb.Session) *v1.Session {
	return &v1.Session{
		Ident: s.Name, SessionIP: s.User.String(),
		AccessNetworkTunnel: v1.AccessTunnel{TeID: s.Access.TEID, TunnelIP: s.Access.Addr.String()},
		CoreNetworkTunnel:   v1.CoreTunnel{TeID: s.Core.TEID, TunnelIP: s.Core.Addr.String()},
	}
}
