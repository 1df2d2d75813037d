package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// precondition is what a request says about the service that it changes: nothing, its version, that there is one
// (If-Match: *), or that there is none (If-None-Match: *).
type precondition struct {
	given  bool
	header string // by which it was given
	any    bool   // any version, but one
	want   uint64 // 0: none
}

func preconditionOf(r *http.Request) (c precondition, p *problem) {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case match == "" && none == "":
		return c, nil
	case match != "" && none != "":
		return c, refuse(http.StatusBadRequest, "If-Match stands beside If-None-Match: one of them")
	case none == "*":
		return precondition{given: true, header: "If-None-Match"}, nil
	case none != "":
		return c, refuseField(http.StatusBadRequest, "If-None-Match", none, "is no precondition of a change", "*")
	case match == "*":
		return precondition{given: true, header: "If-Match", any: true}, nil
	}
	version, err := strconv.ParseUint(strings.Trim(match, `"`), 10, 64)
	if err != nil || version == 0 {
		return c, refuseField(http.StatusBadRequest, "If-Match", match, "is not the version of a service", `one version in quotes, as in "42", or *`)
	}
	return precondition{given: true, header: "If-Match", want: version}, nil
}

// forOne refuses a precondition of a request that is about several services.
func (c *precondition) forOne(one bool) *problem {
	if !c.given || one {
		return nil
	}
	return refuse(http.StatusBadRequest, "%s is for a request about one service", c.header)
}

// check compares with what there is, in the transaction that makes the change.
func (c *precondition) check(tx *store.Tx, services *desired.Services, key lb.Key) error {
	id := desired.ServiceID(key)
	if !c.given {
		return nil
	}
	if c.any {
		meta, ok := services.Meta(tx, id.Key)
		if !ok {
			return refuse(http.StatusPreconditionFailed, "%s does not exist, and If-Match asks for one", id)
		}
		return tx.Expect(id, meta.Version)
	}
	return tx.Expect(id, c.want)
}
