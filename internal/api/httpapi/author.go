package httpapi

import (
	"net"
	"net/http"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/store"
)

// author says who asks for a change. Without a name of its own the change is named by its objects.
func author(r *http.Request, doing string) store.Author {
	who := rest.PrincipalOf(r)
	by := store.Author{Who: who.Name, From: r.RemoteAddr, Doing: doing}
	if who.By == transport.BySocket {
		by.From = "socket"
	} else if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		by.From = host
	}
	return by
}

// maxObjectsTold is how many objects an entry of the audit log names.
const maxObjectsTold = 8

// recordChange notes what the request has changed, for the audit log.
func recordChange(r *http.Request, revision uint64, ids []store.ID) {
	who := rest.PrincipalOf(r)
	who.Revision = revision
	for _, id := range ids[:min(len(ids), maxObjectsTold)] {
		who.Objects = append(who.Objects, id.Kind+" "+id.Key)
	}
}
