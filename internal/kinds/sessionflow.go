package kinds

import (
	"net/url"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// SessionFlowName is the name of the kind in messages and journals.
const SessionFlowName = "sessionulcl"

// SessionFlow registers classifiers of sessions.
func SessionFlow() *Kind[lb.SessionFlow, v1.SessionUlCl] {
	stored := asJSON(lb.SessionFlow.Key, lb.SessionFlow.Validate)
	stored.Max, stored.Plural, stored.Shared = 60_000, "session classifiers", true
	return &Kind[lb.SessionFlow, v1.SessionUlCl]{
		Words: Words{
			Name: SessionFlowName, Document: SessionFlowDocument, Command: "sessionulcl", Aliases: []string{"ulcl", "ulcls", "sessionulcls"},
			List: "ulclAttr", Exported: true, Verified: true,
		},
		Stored: stored,
		API: API[lb.SessionFlow, v1.SessionUlCl]{
			Path: "/config/sessionulcl", ObjectPath: "/ident/{ident}/ulclAddress/{ip_address}", Key: sessionFlowKey, Read: readSessionFlow, Show: showSessionFlow,
			Fields: map[string]string{lb.FieldName: "ulclIdent", lb.FieldSession: "ulclIdent", lb.FieldPeer: "ulclIP", lb.FieldQFI: "qfi"},
		},
		CLI: CLI[v1.SessionUlCl]{
			Texts:        Texts{Singular: "a classifier of a session", Plural: "classifiers of sessions", Argument: "USER", Sample: "user1"},
			Name:         func(f *v1.SessionUlCl) string { return f.UlclIdent },
			CustomDelete: true, // with the address
			Columns: []Column[*v1.SessionUlCl]{
				{Header: "Ident", Cell: func(f *v1.SessionUlCl) string { return f.UlclIdent }},
				{Header: "Qfi", Cell: func(f *v1.SessionUlCl) string { return strconv.Itoa(f.UlclArgument.Qfi) }},
				{Header: "Ulcl IP", Cell: func(f *v1.SessionUlCl) string { return f.UlclArgument.UlclIP }},
			},
		},
	}
}

func readSessionFlow(body *v1.SessionUlCl) (f lb.SessionFlow, err error) {
	qfi := body.UlclArgument.Qfi
	if qfi < 0 || qfi > lb.MaxQFI {
		return f, lb.NewFieldError(lb.FieldQFI, strconv.Itoa(qfi), "is out of range", "0 to 63")
	}
	f = lb.SessionFlow{Session: body.UlclIdent, QFI: uint8(qfi)}
	f.Peer, err = lb.ParseAddr(lb.FieldPeer, body.UlclArgument.UlclIP)
	return f, err
}

func sessionFlowKey(name string, _ url.Values) (string, error) {
	session, address, _ := strings.Cut(name, "/")
	peer, err := lb.ParseAddr("ip_address", address)
	return lb.SessionFlow{Session: session, Peer: peer}.Key(), err
}

func showSessionFlow(f *lb.SessionFlow) *v1.SessionUlCl {
	return &v1.SessionUlCl{UlclIdent: f.Session, UlclArgument: v1.UlClArgument{Qfi: int(f.QFI), UlclIP: f.Peer.String()}}
}
