package objects

import (
	"net/http"
	"strings"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
)

// Precondition is a request's condition on the object to change: none, its version, that it exists
// (If-Match: *), or that it does not (If-None-Match: *).
type Precondition struct {
	given  bool
	header string // that states it
	any    bool   // the object must exist, in any version
	want   string // tag of the version; empty: the object must not exist
}

func preconditionOf(r *http.Request) (c Precondition, p *rest.Problem) {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case match == "" && none == "":
		return c, nil
	case match != "" && none != "":
		return c, rest.Refuse(http.StatusBadRequest, "If-Match and If-None-Match exclude each other: send one of them")
	case none == "*":
		return Precondition{given: true, header: "If-None-Match"}, nil
	case none != "":
		return c, rest.RefuseField(http.StatusBadRequest, "If-None-Match", none, "is not a precondition of a change", "*")
	case match == "*":
		return Precondition{given: true, header: "If-Match", any: true}, nil
	}
	tag, ok := store.ParseTag(strings.Trim(match, `"`))
	if !ok {
		return c, rest.RefuseField(http.StatusBadRequest, "If-Match", match, "is not the version of an object", `one version in quotes, as in "42", or *`)
	}
	return Precondition{given: true, header: "If-Match", want: tag}, nil
}

// forOne refuses a precondition of a request that is about several objects.
func (c *Precondition) forOne(one bool) *rest.Problem {
	if !c.given || one {
		return nil
	}
	return rest.Refuse(http.StatusBadRequest, "%s is for a request about one object", c.header)
}

// objects is the table of one kind.
type objects interface {
	ID(key string) store.ID
	Meta(v store.View, key string) (store.Meta, bool)
}

// Check compares with the stored object, in the transaction that makes the change.
func (c *Precondition) Check(tx *store.Tx, kind objects, key string) error {
	if !c.given {
		return nil
	}
	id := kind.ID(key)
	if c.any {
		meta, ok := kind.Meta(tx, key)
		if !ok {
			return rest.Refuse(http.StatusPreconditionFailed, "%s does not exist, and If-Match asks for one", id)
		}
		return tx.Expect(id, meta.Version)
	}
	if c.want == "" {
		return tx.Expect(id, 0)
	}
	return tx.ExpectTag(id, c.want)
}
